"""A bounded dictionary of several clients: none can evict the entries of others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from osgym_host.core.fair_dict import FairDict

PUTS = st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc")), max_size=120)


@given(PUTS, st.integers(1, 12))
def test_a_client_within_its_share_loses_nothing(puts: list[tuple[int, str]], most: int) -> None:
    """A client within its share keeps all entries, and the size stays within the bound."""
    found = FairDict[tuple[str, int], int](most)
    mine: list[tuple[str, int]] = []
    share = most // 3
    for at, (number, client) in enumerate(puts):
        found.put((client, number), at, client)
        if client == "a":
            mine = [*(key for key in mine if key != ("a", number)), ("a", number)]
        assert len(found) <= most
        assert all(found.get(key) is not None for key in mine[-share:] if share)


@given(PUTS)
def test_the_newest_is_kept_and_the_oldest_goes(puts: list[tuple[int, str]]) -> None:
    """For a single client, the dictionary behaves as an ordered one that drops its first entry."""
    found, expected = FairDict[int, int](5), dict[int, int]()
    for at, (number, _) in enumerate(puts):
        found.put(number, at, "a")
        expected.pop(number, None)
        expected[number] = at
        if len(expected) > 5:
            del expected[next(iter(expected))]
    assert {key: found.get(key) for key in range(31) if found.get(key) is not None} == expected


def test_what_may_not_be_lost_stays() -> None:
    """Entries that may not be evicted stay beyond the bound, until they are removed."""
    found = FairDict[str, bool](1, lambda removable: removable)
    found.put("a", False, "x")
    found.put("b", False, "x")
    assert len(found) == 2
    found.put("c", True, "x")
    assert (found.get("c"), len(found)) == (None, 2)
    found.remove("a")
    found.remove("a")
    assert len(found) == 1
