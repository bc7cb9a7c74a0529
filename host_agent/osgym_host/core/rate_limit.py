"""How often each of several callers may ask: pure, a bucket of tokens for each, with the time handed in."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class RateLimit:
    """Buckets by name, each refilled at the same rate.

    Attributes:
        per_s: Calls a second in the long run; 0: no limit.
        burst: Calls at once after a rest.
    """

    per_s: float
    burst: int
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Name → calls left, and the time of that."""

    def wait_s(self, name: str, now_s: float) -> float:
        """Take one call; return 0, or the seconds until the next may be taken, when none was."""
        if self.per_s <= 0:
            return 0.0
        left, since_s = self._buckets.get(name, (float(self.burst), now_s))
        left = min(float(self.burst), left + max(0.0, now_s - since_s) * self.per_s)
        if left < 1.0:
            self._buckets[name] = (left, now_s)
            return (1.0 - left) / self.per_s
        self._buckets[name] = (left - 1.0, now_s)
        return 0.0
