"""The settle benchmark's statistics."""

from __future__ import annotations

import pytest
from benchmarks.settle.stats import percentile, summarize, wilson
from hypothesis import given
from hypothesis import strategies as st


def test_wilson_agrees_with_a_known_interval() -> None:
    """8 of 261 is 3.1 % with an interval of 1.6 to 5.9 %."""
    low, high = wilson(8, 261)
    assert (round(100 * low, 1), round(100 * high, 1)) == (1.6, 5.9)


@given(st.integers(0, 500), st.integers(1, 500))
def test_wilson_contains_the_share(successes: int, trials: int) -> None:
    """The interval lies within 0..1 and around the share it belongs to."""
    successes = min(successes, trials)
    low, high = wilson(successes, trials)
    assert 0 <= low <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= high <= 1


def test_nothing_is_known_without_trials() -> None:
    """Without a trial every share is possible."""
    assert wilson(0, 0) == (0.0, 1.0)


def test_percentile_interpolates() -> None:
    """Between two values a percentile lies between them; of none there is none."""
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([0.0, 10.0], 0.95) == pytest.approx(9.5)
    with pytest.raises(ValueError):
        percentile([], 0.5)


def test_summary_counts_and_averages() -> None:
    """Mean, median and share come from the series given; unequal series are refused."""
    summary = summarize("exact", [10.0, 20.0, 90.0], [False, True, False])
    assert (summary.mean_ms, summary.median_ms, summary.premature) == (40.0, 20.0, 1)
    assert summary.share == pytest.approx(1 / 3)
    with pytest.raises(ValueError):
        summarize("exact", [1.0], [])
