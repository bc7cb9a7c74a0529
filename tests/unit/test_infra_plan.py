"""The search: exact, covering, monotone; and the answer around it."""

from __future__ import annotations

import contextlib
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osgym_infra.cost.mix import HostOffer, affordable, cheapest_mix
from osgym_infra.errors import BadInput, CannotMeet

# Prices in sixteenths, so that sums are exact whatever their order.
usd = st.integers(0, 1600).map(lambda n: n / 16)
small = st.lists(
    st.tuples(
        st.integers(1, 6), usd, st.integers(0, 32).map(lambda n: n / 16), st.none() | st.integers(0, 3)
    ),
    min_size=1,
    max_size=4,
).map(lambda rows: [HostOffer(f"h{i}", *row) for i, row in enumerate(rows)])


def brute_force(choices: list[HostOffer], replicas: int) -> float:
    """The least cost over every number of hosts of each kind, filled from the lowest price per replica up."""
    best = math.inf
    counts = [
        range(min(math.ceil(replicas / c.capacity), math.inf if c.max_hosts is None else c.max_hosts) + 1)
        for c in choices
    ]
    for hosts in itertools.product(*counts):
        if sum(n * c.capacity for n, c in zip(hosts, choices, strict=True)) < replicas:
            continue
        cost, left = 0.0, replicas
        for n, c in sorted(zip(hosts, choices, strict=True), key=lambda pair: pair[1].usd_per_replica_day):
            placed = min(left, n * c.capacity)
            cost += n * c.usd_per_day + placed * c.usd_per_replica_day
            left -= placed
        best = min(best, cost)
    return best


@settings(max_examples=300, deadline=None)
@given(small, st.integers(1, 14))
def test_it_is_as_cheap_as_trying_everything(choices: list[HostOffer], replicas: int) -> None:
    """The exact minimum, also with prices per replica and quotas."""
    expected = brute_force(choices, replicas)
    if math.isinf(expected):
        with pytest.raises(CannotMeet):
            cheapest_mix(choices, replicas)
        return
    assert cheapest_mix(choices, replicas).usd_per_day == pytest.approx(expected)


@given(small, st.integers(1, 60))
def test_a_plan_covers_the_demand_and_adds_up(choices: list[HostOffer], replicas: int) -> None:
    """Exactly the replicas, on hosts that hold them, within quotas, at the price of its parts."""
    try:
        mix = cheapest_mix(choices, replicas)
    except CannotMeet:
        return
    by_name = {c.name: c for c in choices}
    assert mix.replicas == replicas
    assert mix.capacity == sum(by_name[name].capacity * n for name, n in mix.hosts.items()) >= replicas
    for name, n in mix.hosts.items():
        choice = by_name[name]
        assert 0 < mix.placed[name] <= n * choice.capacity
        assert choice.max_hosts is None or n <= choice.max_hosts
    cost = sum(by_name[n].usd_per_day * count for n, count in mix.hosts.items())
    cost += sum(by_name[n].usd_per_replica_day * count for n, count in mix.placed.items())
    assert mix.usd_per_day == pytest.approx(cost)


@given(small, st.integers(1, 40), st.integers(1, 10))
def test_more_demand_never_costs_less(choices: list[HostOffer], replicas: int, more: int) -> None:
    """Nor does it become possible."""
    try:
        larger = cheapest_mix(choices, replicas + more).usd_per_day
    except CannotMeet:
        return
    assert cheapest_mix(choices, replicas).usd_per_day <= larger + 1e-9


@given(small, st.integers(1, 40), st.integers(1, 6), usd)
def test_more_to_choose_from_never_costs_more(
    choices: list[HostOffer], replicas: int, capacity: int, price: float
) -> None:
    """A further offer can be left alone."""
    try:
        before = cheapest_mix(choices, replicas).usd_per_day
    except CannotMeet:
        return
    after = cheapest_mix([*choices, HostOffer("new", capacity, price)], replicas).usd_per_day
    assert after <= before + 1e-9


@given(small, usd)
def test_a_budget_buys_exactly_what_it_can(choices: list[HostOffer], budget: float) -> None:
    """The number that `affordable` names can be paid for, and one more cannot."""
    count = affordable(choices, budget, at_most=60)
    if count:
        assert cheapest_mix(choices, count).usd_per_day <= budget + 1e-9
    if count < 60:
        with contextlib.suppress(CannotMeet):
            assert cheapest_mix(choices, count + 1).usd_per_day > budget


def test_a_large_and_a_small_host_beat_two_large_ones() -> None:
    """110 replicas: one of 100 for 10 and one of 10 for 2, not 20."""
    mix = cheapest_mix([HostOffer("large", 100, 10.0), HostOffer("small", 10, 2.0)], 110)
    assert (mix.hosts, mix.usd_per_day) == ({"large": 1, "small": 1}, 12.0)


def test_a_quota_counts_the_host_that_is_not_full() -> None:
    """Two of ten are to be had, so 15 need both and 21 cannot be placed."""
    two = [HostOffer("h", 10, 1.0, max_hosts=2)]
    assert cheapest_mix(two, 15).hosts == {"h": 2}
    with pytest.raises(CannotMeet) as refused:
        cheapest_mix(two, 21)
    assert refused.value.details == {"most": 20}


def test_nothing_that_carries_anything_is_refused() -> None:
    """Also no replicas at all, and two offers of one name."""
    with pytest.raises(CannotMeet):
        cheapest_mix([HostOffer("h", 0, 1.0)], 1)
    with pytest.raises(BadInput):
        cheapest_mix([HostOffer("h", 1, 1.0)], 0)
    with pytest.raises(BadInput):
        cheapest_mix([HostOffer("h", 1, 1.0), HostOffer("h", 2, 1.0)], 1)
