"""Shares with their uncertainty, and the summary of a series of waits. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Z_95 = 1.959963984540054


def wilson(successes: int, trials: int, z: float = Z_95) -> tuple[float, float]:
    """Return Wilson's score interval of a share.

    Returns:
        (low, high), each within 0..1; (0, 1) without trials.
    """
    if trials == 0:
        return 0.0, 1.0
    share = successes / trials
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    centre = share + z * z / (2 * trials)
    scale = 1 + z * z / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` (0..1) of the sorted values do not exceed, interpolated.

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclass(frozen=True, slots=True)
class Summary:
    """One row of the result: the wait, and the share of frames that were not final.

    `regret_ms` is the median wait beyond the last change, over the final frames; None where no moment of the
    last change is known.
    """

    name: str
    actions: int
    premature: int
    mean_ms: float
    median_ms: float
    p95_ms: float
    regret_ms: float | None = None

    @property
    def share(self) -> float:
        return self.premature / self.actions if self.actions else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % Wilson interval of `share`."""
        return wilson(self.premature, self.actions)


def summarize(
    name: str, waits_ms: Sequence[float], premature: Sequence[bool], regrets_ms: Sequence[float | None] = ()
) -> Summary:
    """Summarize one policy.

    Args:
        regrets_ms: One for each wait; None where it is not known or the frame was not final.

    Raises:
        ValueError: The series differ in length, or are empty.
    """
    if len(waits_ms) != len(premature):
        raise ValueError("one wait and one verdict per action")
    known = [regret for regret in regrets_ms if regret is not None]
    return Summary(
        name=name,
        actions=len(waits_ms),
        premature=sum(premature),
        mean_ms=sum(waits_ms) / len(waits_ms),
        median_ms=percentile(waits_ms, 0.5),
        p95_ms=percentile(waits_ms, 0.95),
        regret_ms=percentile(known, 0.5) if known else None,
    )
