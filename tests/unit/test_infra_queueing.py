"""Shared cores against what is known in closed form, and against simulations."""

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
from osgym_infra.cost.queueing import Work
from osgym_infra.errors import BadInput, CannotMeet

services = st.floats(0.01, 2)
thinks = st.floats(0.1, 60)


def test_one_machine_and_one_repairman_are_known() -> None:
    """With one customer nobody waits: R = D, X = 1/(Z + D), and p95 is that of the service alone."""
    found = queueing.load(1, 1, Work(0.5, 4.5))
    assert found.slowdown == pytest.approx(1.0)
    assert found.steps_per_s == pytest.approx(0.2)
    assert found.p95_s == pytest.approx(0.5 * math.log(20), rel=1e-4)


def test_two_customers_on_one_server_are_known() -> None:
    """p(0) = 1/(1 + 2r + 2r²) with r = D/Z, from the balance equations by hand."""
    r = 0.25
    p0 = 1 / (1 + 2 * r + 2 * r * r)
    assert queueing.distribution(1, 2, r) == pytest.approx([p0, 2 * r * p0, 2 * r * r * p0])
    found = queueing.load(1, 2, Work(1.0, 4.0))
    assert found.steps_per_s == pytest.approx(1 - p0)
    assert found.slowdown == pytest.approx(2 / (1 - p0) - 4)


def test_without_thinking_all_are_at_the_station() -> None:
    """Ten on two servers without a pause: each waits for five times its own service."""
    found = queueing.load(2, 10, Work(1.0, 0.0))
    assert found.slowdown == pytest.approx(5.0)
    assert found.steps_per_s == pytest.approx(2.0)


@given(st.integers(1, 40), services, thinks)
def test_nobody_waits_when_there_is_a_core_for_each(customers: int, service: float, think: float) -> None:
    """K ≤ c is the exponential service itself."""
    found = queueing.load(customers, customers, Work(service, think))
    assert found.slowdown == pytest.approx(1.0, rel=1e-6)
    assert found.p95_s == pytest.approx(service * math.log(20), rel=1e-3)


@settings(deadline=None)
@given(st.integers(1, 24), st.integers(1, 200), services, thinks)
def test_more_replicas_are_never_faster(servers: int, customers: int, service: float, think: float) -> None:
    """Response and percentile rise with K, and stay within the asymptotic bounds."""
    one, two = (queueing.load(servers, k, Work(service, think)) for k in (customers, customers + 1))
    assert two.slowdown >= one.slowdown * (1 - 1e-6)
    assert two.p95_s >= one.p95_s * (1 - 1e-4)
    floor = max(service, customers * service / servers - think)
    response_s = service * one.slowdown
    assert floor * (1 - 1e-6) <= response_s <= service * max(1.0, customers / servers) * (1 + 1e-6) + service


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 16), st.integers(1, 120), services, thinks)
def test_the_tail_is_a_tail(servers: int, customers: int, service: float, think: float) -> None:
    """P(response > t) starts at 1, falls, and its integral is the mean response."""
    work = Work(service, think)
    seen = queueing.distribution(servers, customers - 1, work.ratio)
    assert queueing.exceeds(servers, seen, 0.0) == pytest.approx(1.0)
    end = 30 * queueing.load(servers, customers, work).slowdown
    steps = 400
    tail = [queueing.exceeds(servers, seen, end * i / steps) for i in range(steps + 1)]
    assert all(a >= b - 1e-9 for a, b in itertools.pairwise(tail))
    simpson = sum((1 if i in (0, steps) else 4 if i % 2 else 2) * p for i, p in enumerate(tail))
    assert simpson * end / steps / 3 == pytest.approx(
        queueing.load(servers, customers, work).slowdown, rel=0.02
    )


def shared(servers: int, customers: int, work: Work, steps: int) -> tuple[list[float], list[float]]:
    """Response times of steps and of resets where n > c jobs get c/n of a core each (processor sharing)."""
    rng = random.Random(7)
    thinking = [(rng.expovariate(1 / work.think_s), i) for i in range(customers)]
    heapq.heapify(thinking)
    # A job ends when what each job has got so far, `given`, reaches what it wanted when it came.
    jobs: list[tuple[float, float, int, bool]] = []
    given = now = 0.0
    answers: list[float] = []
    resets: list[float] = []
    while len(answers) < steps:
        rate = min(1.0, servers / len(jobs)) if jobs else 1.0
        done = now + (jobs[0][0] - given) / rate if jobs else math.inf
        if thinking and thinking[0][0] <= done:
            given += (thinking[0][0] - now) * rate
            now, who = heapq.heappop(thinking)
            heapq.heappush(jobs, (given + rng.expovariate(1 / work.step_s), now, who, False))
            continue
        now, given = done, jobs[0][0]
        _, began, who, is_reset = heapq.heappop(jobs)
        (resets if is_reset else answers).append(now - began)
        if not is_reset and work.reset_s and rng.random() < 1 / work.steps_per_episode:
            heapq.heappush(jobs, (given + rng.expovariate(1 / work.reset_s), now, who, True))
        else:
            heapq.heappush(thinking, (now + rng.expovariate(1 / work.think_s), who))
    return answers[steps // 10 :], resets[len(resets) // 10 :]


def queued(servers: int, customers: int, work: Work, steps: int) -> list[float]:
    """Response times of steps where cores are not shared: first come, first served, resets among them."""
    rng = random.Random(7)
    arrivals = [(rng.expovariate(1 / work.think_s), i, False) for i in range(customers)]
    heapq.heapify(arrivals)
    free = [0.0] * servers
    answers = []
    while len(answers) < steps:
        now, who, is_reset = heapq.heappop(arrivals)
        end = max(now, heapq.heappop(free)) + rng.expovariate(1 / (work.reset_s if is_reset else work.step_s))
        heapq.heappush(free, end)
        if not is_reset:
            answers.append(end - now)
        if not is_reset and work.reset_s and rng.random() < 1 / work.steps_per_episode:
            heapq.heappush(arrivals, (end, who, True))
        else:
            heapq.heappush(arrivals, (end + rng.expovariate(1 / work.think_s), who, False))
    return answers[steps // 10 :]


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(values, n=20)[-1]


STEPS_ONLY = Work(0.5, 4.5)
WITH_RESETS = Work(0.13, 3.0, 0.5, 6)
LONG_RESETS = Work(0.1, 3.0, 1.5, 6)


@pytest.mark.parametrize(
    ("servers", "customers", "work"),
    [
        (2, 20, STEPS_ONLY), (4, 30, STEPS_ONLY), (8, 100, STEPS_ONLY),
        (2, 20, WITH_RESETS), (8, 100, WITH_RESETS), (19, 300, WITH_RESETS),
        (1, 6, LONG_RESETS), (2, 14, LONG_RESETS), (2, 30, LONG_RESETS),
    ],
)  # fmt: skip
def test_steps_and_resets_agree_with_a_simulation(servers: int, customers: int, work: Work) -> None:
    """Mean of steps within 4 %, 95th percentile of steps within 5 %, of resets within 8 %; 60,000 steps."""
    answers, resets = shared(servers, customers, work, 60_000)
    found = queueing.load(servers, customers, work)
    assert work.step_s * found.slowdown == pytest.approx(statistics.fmean(answers), rel=0.04)
    assert found.p95_s == pytest.approx(p95(answers), rel=0.05)
    if work.reset_s:
        assert found.reset_p95_s == pytest.approx(p95(resets), rel=0.08)
    else:
        assert found.reset_p95_s == 0


@pytest.mark.parametrize(("servers", "customers"), [(2, 20), (4, 30), (8, 100)])
def test_without_resets_sharing_and_queueing_have_one_mean(servers: int, customers: int) -> None:
    """For exponential demands of one kind the mean response does not depend on who goes first."""
    found = queueing.load(servers, customers, STEPS_ONLY)
    answers = queued(servers, customers, STEPS_ONLY, 60_000)
    assert STEPS_ONLY.step_s * found.slowdown == pytest.approx(statistics.fmean(answers), rel=0.05)


def test_a_step_is_not_as_long_as_a_reset() -> None:
    """On an idle host a step keeps its own percentile, D·ln 20, whatever a reset costs; counted into the
    steps, resets would forbid what is met with ease."""
    found = queueing.load(8, 1, LONG_RESETS)
    assert found.p95_s == pytest.approx(0.1 * math.log(20), rel=1e-4)
    assert found.reset_p95_s == pytest.approx(1.5 * math.log(20), rel=1e-4)
    mixed = Work(0.1 + 1.5 / 6, 3.0)
    with pytest.raises(CannotMeet):
        queueing.largest_k(8, 0, mixed, 0.4)
    assert queueing.largest_k(8, 0, LONG_RESETS, 0.4) > 20


def test_resets_slow_steps_down() -> None:
    """They want the same cores: with them fewer replicas meet a percentile."""
    without = queueing.largest_k(8, 0, Work(0.13, 3.0), 0.6)
    assert queueing.largest_k(8, 0, WITH_RESETS, 0.6) < 0.75 * without


@settings(max_examples=40, deadline=None)
@given(st.floats(1, 64), st.floats(0, 0.05), services, thinks, st.floats(1.05, 20), st.floats(0, 3))
def test_the_largest_k_meets_the_percentile_and_one_more_does_not(
    cores: float, idle: float, service: float, think: float, times: float, reset: float
) -> None:
    """Exactly at the edge, as `load` itself sees it."""
    work = Work(service, think, reset, 6)
    p95 = times * service * math.log(20)
    try:
        found = queueing.largest_k(cores, idle, work, p95, limit=2000)
    except CannotMeet:
        at = queueing.station(cores, 1, idle, work)
        assert at is None or queueing.load(1, 1, at.work).p95_s > p95 * (1 - 1e-4)
        return
    for count, good in ((found, True), (found + 1, False)):
        at = queueing.station(cores, count, idle, work)
        if count > 2000 or at is None:
            continue
        p95_here = queueing.load(at.servers, count, at.work).p95_s
        assert p95_here <= p95 * (1 + 1e-4) if good else p95_here >= p95 * (1 - 1e-4)


def test_what_one_replica_cannot_do_is_refused_with_what_it_can() -> None:
    """D = 100 ms has a p95 of 300 ms alone."""
    with pytest.raises(CannotMeet) as refused:
        queueing.largest_k(8, 0, Work(0.1, 10), 0.1)
    assert refused.value.field == "p95_ms"
    assert refused.value.details["least_ms"] == pytest.approx(299.57, abs=0.1)


def test_a_host_that_idles_itself_full_has_no_station() -> None:
    """100 replicas of 0.1 cores on 8: nothing is left; on 10.5, half a core makes steps twice as long."""
    assert queueing.station(8, 100, 0.1, Work(0.2, 1.0)) is None
    half = queueing.station(10.5, 100, 0.1, Work(0.2, 1.0, 2.0))
    assert half is not None
    assert half.servers == 1
    assert (half.work.step_s, half.work.reset_s) == (pytest.approx(0.4), pytest.approx(4.0))


@pytest.mark.parametrize(
    ("servers", "customers", "work"),
    [
        (0, 1, Work(1.0, 1.0)), (1, 0, Work(1.0, 1.0)), (1, 1, Work(0.0, 1.0)), (1, 1, Work(1.0, -1.0)),
        (1, 1, Work(1.0, 1.0, -1.0)),
    ],
)  # fmt: skip
def test_impossible_stations_are_refused(servers: int, customers: int, work: Work) -> None:
    """No server, no customer, no service, negative thinking, a negative reset."""
    with pytest.raises(BadInput):
        queueing.load(servers, customers, work)


def test_what_idles_takes_no_whole_core_of_a_small_host() -> None:
    """Of 1.94 cores both are left, a little slower; of 2.4 two; of 0.6 one that is slower by the rest."""
    work = Work(0.1, 2.0)
    assert queueing.station(2, 16, 0.00375, work) == queueing.Station(2, work.times(2 / 1.94))
    assert queueing.station(2.4, 1, 0.0, work) == queueing.Station(2, work)
    assert queueing.station(1, 1, 0.4, work) == queueing.Station(1, work.times(1 / 0.6))
