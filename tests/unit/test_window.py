"""What happened between two looks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.core.window import MAX_VALUES, Window, WindowSummary

values = st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=300)


def test_an_empty_window_has_no_ranks() -> None:
    """Neither at first nor after a look."""
    window = Window()
    window.add(3.0)
    assert window.take() == WindowSummary(1, 3.0, 3.0)
    assert window.take() == WindowSummary(0, None, None)


@given(values)
def test_ranks_are_values_that_enough_others_do_not_exceed(given: list[float]) -> None:
    """At least half, and at least 95 of 100."""
    window = Window()
    for value in given:
        window.add(value)
    summary = window.take()
    for rank, share in ((summary.p50, 0.5), (summary.p95, 0.95)):
        assert rank is not None and rank in given
        assert sum(value <= rank for value in given) >= share * len(given)
        assert sum(value < rank for value in given) < share * len(given)


@pytest.mark.parametrize("count", [MAX_VALUES, MAX_VALUES + 7])
def test_a_window_is_bounded(count: int) -> None:
    """Of what is too much, the number is still right."""
    window = Window()
    for value in range(count):
        window.add(float(value))
    assert len(window.values) == MAX_VALUES
    assert window.take().count == count
