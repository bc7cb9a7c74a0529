"""What happened between two looks: how often, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_VALUES = 4096
"""Of one window; of the further ones only the number is kept."""


@dataclass(frozen=True, slots=True)
class WindowSummary:
    """What a window had.

    Attributes:
        count: How many values.
        p50: The median of the values that were kept; None when there were none.
        p95: The same for 95 of 100.
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
        """Count a value."""
        self.count += 1
        if len(self.values) < MAX_VALUES:
            self.values.append(value)

    def take(self) -> WindowSummary:
        """Sum up, and begin anew."""
        values = sorted(self.values)
        summary = WindowSummary(self.count, _rank(values, 0.5), _rank(values, 0.95))
        self.count, self.values = 0, []
        return summary


def _rank(values: list[float], share: float) -> float | None:
    """The smallest value that at least this share of them does not exceed."""
    if not values:
        return None
    return values[max(0, -(-int(share * 100) * len(values) // 100) - 1)]
