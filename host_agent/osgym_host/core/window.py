"""Values of the time since the last summary: their number and percentiles. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_VALUES = 4096
"""Number of values kept of one window; further ones are only counted."""


@dataclass(frozen=True, slots=True)
class WindowSummary:
    """Summary of a window.

    Attributes:
        p50, p95: Percentiles of the kept values; None without values.
    """

    count: int
    p50: float | None
    p95: float | None


@dataclass(slots=True)
class Window:
    """Values since the last `take`."""

    count: int = 0
    values: list[float] = field(default_factory=list)

    def add(self, value: float) -> None:
        self.count += 1
        if len(self.values) < MAX_VALUES:
            self.values.append(value)

    def take(self) -> WindowSummary:
        """Return a summary and start a new window."""
        values = sorted(self.values)
        summary = WindowSummary(self.count, _rank(values, 0.5), _rank(values, 0.95))
        self.count, self.values = 0, []
        return summary


def _rank(values: list[float], share: float) -> float | None:
    """Return the smallest value that at least this share of the values does not exceed."""
    if not values:
        return None
    return values[max(0, -(-int(share * 100) * len(values) // 100) - 1)]
