"""The split of warm replicas among images."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.core.image_split import HALF_LIFE_S, RecentDemand, split_warm, updated_split

demands = st.dictionaries(st.sampled_from("abcde"), st.floats(1.0, 1e6), min_size=1)
warms = st.integers(0, 64)
minima = st.integers(0, 8)


@given(warms, demands, minima)
def test_all_are_given_and_none_too_few(warm: int, demand: Mapping[str, float], minimum: int) -> None:
    """The shares make up the whole; each has its minimum, as far as there are enough."""
    shares = split_warm(warm, demand, minimum)
    assert shares.keys() == demand.keys()
    assert sum(shares.values()) == warm
    assert min(shares.values()) >= min(minimum, warm // len(demand))


@given(warms, demands, minima, st.floats(1.0, 100.0), st.data())
def test_more_demand_never_gets_less(
    warm: int, demand: Mapping[str, float], minimum: int, factor: float, data: st.DataObject
) -> None:
    """For the image itself; and of two images the one with more demand has no smaller share."""
    name = data.draw(st.sampled_from(sorted(demand)))
    more = split_warm(warm, {**demand, name: demand[name] * factor}, minimum)
    shares = split_warm(warm, demand, minimum)
    assert more[name] >= shares[name]
    for one, other in pairwise(sorted(demand, key=demand.__getitem__)):
        assert shares[one] <= shares[other] or demand[one] == demand[other]


@pytest.mark.parametrize(
    ("warm", "demand", "expected"),
    [
        (24, {"a": 1, "b": 1, "c": 1}, {"a": 8, "b": 8, "c": 8}),
        (24, {"a": 4, "b": 1, "c": 1}, {"a": 12, "b": 6, "c": 6}),
        (18, {"a": 36, "b": 16, "c": 4}, {"a": 9, "b": 6, "c": 3}),
        (10, {"a": 100, "b": 1}, {"a": 9, "b": 1}),
        (1, {"a": 1, "b": 2}, {"a": 0, "b": 1}),
    ],
)
def test_shares_follow_demand(warm: int, demand: dict[str, float], expected: dict[str, int]) -> None:
    """In proportion to its square root, with one of each."""
    assert split_warm(warm, demand, 1) == expected


def test_a_small_change_changes_nothing_and_a_large_one_does() -> None:
    """Idle replicas are not retired for one request more or less."""
    even = split_warm(24, {"a": 10, "b": 10}, 1)
    assert updated_split(even, 24, {"a": 11, "b": 10}, 1) is even
    assert updated_split(even, 24, {"a": 90, "b": 10}, 1) == {"a": 18, "b": 6}
    assert updated_split(even, 20, {"a": 13, "b": 10}, 1) == {"a": 11, "b": 9}
    assert updated_split({"a": 1, "b": 0}, 1, {"a": 1, "b": 2}, 1) == {"a": 0, "b": 1}


def test_old_requests_count_less() -> None:
    """Half after the half-life; an image that nobody asks for comes back to its first count."""
    demand = RecentDemand(["a", "b"])
    for _ in range(8):
        demand.add("a", 0.0)
    assert demand.counts() == {"a": 9.0, "b": 1.0}
    demand.add("b", HALF_LIFE_S)
    assert demand.counts() == {"a": 5.0, "b": 2.0}
