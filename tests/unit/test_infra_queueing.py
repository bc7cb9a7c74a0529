"""M/M/c//K against what is known in closed form, and against a simulation."""

from __future__ import annotations

import heapq
import itertools
import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osgym_infra.cost import queueing
from osgym_infra.errors import BadInput, CannotMeet

services = st.floats(0.01, 2)
thinks = st.floats(0.1, 60)


def test_one_machine_and_one_repairman_are_known() -> None:
    """With one customer nobody waits: R = D, X = 1/(Z + D), and p95 is that of the service alone."""
    found = queueing.load(1, 1, 0.5, 4.5)
    assert found.response_s == pytest.approx(0.5)
    assert found.steps_per_s == pytest.approx(0.2)
    assert found.p95_s == pytest.approx(0.5 * math.log(20), rel=1e-4)


def test_two_customers_on_one_server_are_known() -> None:
    """p(0) = 1/(1 + 2r + 2r²) with r = D/Z, from the balance equations by hand."""
    r = 0.25
    p0 = 1 / (1 + 2 * r + 2 * r * r)
    assert queueing.distribution(1, 2, r) == pytest.approx([p0, 2 * r * p0, 2 * r * r * p0])
    found = queueing.load(1, 2, 1.0, 4.0)
    assert found.utilisation == pytest.approx(1 - p0)
    assert found.response_s == pytest.approx(2 / (1 - p0) - 4)


def test_without_thinking_all_are_at_the_station() -> None:
    """Ten on two servers without a pause: each waits for five times its own service."""
    found = queueing.load(2, 10, 1.0, 0.0)
    assert found.response_s == pytest.approx(5.0)
    assert found.utilisation == pytest.approx(1.0)


@given(st.integers(1, 40), services, thinks)
def test_nobody_waits_when_there_is_a_core_for_each(customers: int, service: float, think: float) -> None:
    """K ≤ c is the exponential service itself."""
    found = queueing.load(customers, customers, service, think)
    assert found.slowdown == pytest.approx(1.0, rel=1e-6)
    assert found.p95_s == pytest.approx(service * math.log(20), rel=1e-3)


@settings(deadline=None)
@given(st.integers(1, 24), st.integers(1, 200), services, thinks)
def test_more_replicas_are_never_faster(servers: int, customers: int, service: float, think: float) -> None:
    """Response and percentile rise with K, and stay within the asymptotic bounds."""
    one, two = (queueing.load(servers, k, service, think) for k in (customers, customers + 1))
    assert two.response_s >= one.response_s * (1 - 1e-6)
    assert two.p95_s >= one.p95_s * (1 - 1e-4)
    floor = max(service, customers * service / servers - think)
    assert (
        floor * (1 - 1e-6) <= one.response_s <= service * max(1.0, customers / servers) * (1 + 1e-6) + service
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 16), st.integers(1, 120), services, thinks)
def test_the_tail_is_a_tail(servers: int, customers: int, service: float, think: float) -> None:
    """P(response > t) starts at 1, falls, and its integral is the mean response."""
    seen = queueing.distribution(servers, customers - 1, service / think)
    assert queueing.exceeds(servers, seen, service, 0.0) == pytest.approx(1.0)
    end = 30 * queueing.load(servers, customers, service, think).response_s
    steps = 400
    tail = [queueing.exceeds(servers, seen, service, end * i / steps) for i in range(steps + 1)]
    assert all(a >= b - 1e-9 for a, b in itertools.pairwise(tail))
    simpson = sum((1 if i in (0, steps) else 4 if i % 2 else 2) * p for i, p in enumerate(tail))
    assert simpson * end / steps / 3 == pytest.approx(
        queueing.load(servers, customers, service, think).response_s, rel=0.02
    )


def simulate(servers: int, customers: int, service: float, think: float, steps: int) -> list[float]:
    """Response times of a first-come-first-served station with `customers` sources."""
    rng = random.Random(7)
    arrivals = [(rng.expovariate(1 / think), i) for i in range(customers)]
    heapq.heapify(arrivals)
    free = [0.0] * servers
    answers = []
    while len(answers) < steps:
        now, who = heapq.heappop(arrivals)
        start = max(now, heapq.heappop(free))
        end = start + rng.expovariate(1 / service)
        heapq.heappush(free, end)
        answers.append(end - now)
        heapq.heappush(arrivals, (end + rng.expovariate(1 / think), who))
    return answers[steps // 10 :]


@pytest.mark.parametrize(("servers", "customers"), [(2, 20), (4, 30), (8, 100)])
def test_it_agrees_with_a_simulation(servers: int, customers: int) -> None:
    """Mean within 5 %, 95th percentile within 7 %, 60,000 steps."""
    answers = simulate(servers, customers, 0.5, 4.5, 60_000)
    found = queueing.load(servers, customers, 0.5, 4.5)
    assert found.response_s == pytest.approx(statistics.fmean(answers), rel=0.05)
    assert found.p95_s == pytest.approx(statistics.quantiles(answers, n=20)[-1], rel=0.07)


@settings(max_examples=40, deadline=None)
@given(st.floats(1, 64), st.floats(0, 0.05), services, thinks, st.floats(1.05, 20))
def test_the_largest_k_meets_the_percentile_and_one_more_does_not(
    cores: float, idle: float, service: float, think: float, times: float
) -> None:
    """Exactly at the edge, as `load` itself sees it."""
    p95 = times * service * math.log(20)
    try:
        found = queueing.largest_k(cores, idle, service, think, p95, limit=2000)
    except CannotMeet:
        at = queueing.station(cores, 1, idle, service)
        assert at is None or queueing.load(1, 1, at.service_s, think).p95_s > p95 * (1 - 1e-4)
        return
    for count, good in ((found, True), (found + 1, False)):
        at = queueing.station(cores, count, idle, service)
        if count > 2000 or at is None:
            continue
        p95_here = queueing.load(at.servers, count, at.service_s, think).p95_s
        assert p95_here <= p95 * (1 + 1e-4) if good else p95_here >= p95 * (1 - 1e-4)


def test_what_one_replica_cannot_do_is_refused_with_what_it_can() -> None:
    """D = 100 ms has a p95 of 300 ms alone."""
    with pytest.raises(CannotMeet) as refused:
        queueing.largest_k(8, 0, 0.1, 10, 0.1)
    assert refused.value.field == "p95_ms"
    assert refused.value.details["least_ms"] == pytest.approx(299.57, abs=0.1)


def test_the_knee_is_where_the_asymptotes_cross() -> None:
    """8 cores, 0.1 CPU-s every 10 s: 800 replicas; idle CPU takes its part."""
    assert queueing.knee(8, 0, 0.1, 9.9) == pytest.approx(800)
    assert queueing.knee(8, 0.01, 0.1, 9.9) == pytest.approx(400)


def test_a_host_that_idles_itself_full_has_no_station() -> None:
    """100 replicas of 0.1 cores on 8: nothing is left; on 10.5, half a core makes steps twice as long."""
    assert queueing.station(8, 100, 0.1, 0.2) is None
    half = queueing.station(10.5, 100, 0.1, 0.2)
    assert half is not None
    assert (half.servers, half.service_s) == (1, pytest.approx(0.4))


@pytest.mark.parametrize(
    "arguments", [(0, 1, 1.0, 1.0), (1, 0, 1.0, 1.0), (1, 1, 0.0, 1.0), (1, 1, 1.0, -1.0)]
)
def test_impossible_stations_are_refused(arguments: tuple[int, int, float, float]) -> None:
    """No server, no customer, no service, negative thinking."""
    with pytest.raises(BadInput):
        queueing.load(*arguments)
