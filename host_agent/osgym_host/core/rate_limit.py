"""Rate limit for each of several callers: token buckets. Pure: callers pass the time."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field


@dataclass(slots=True)
class RateLimit:
    """Buckets by name, each refilled at the same rate.

    Attributes:
        per_s: Calls a second in the long run; 0: no limit.
        burst: Calls at once after a rest.
        most: Names that are known at a time; the one that asked longest ago is forgotten, as after a rest.
    """

    per_s: float
    burst: int
    most: int | None = None
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    """Name → calls left and the time of that balance; the latest caller is last."""

    def __contains__(self, name: str) -> bool:
        return name in self._buckets

    def __len__(self) -> int:
        return len(self._buckets)

    def left_s(self, name: str, now_s: float) -> float:
        """Return 0 if a call may be made now, else the seconds until one may; use no token."""
        if self.per_s <= 0:
            return 0.0
        return max(0.0, (1.0 - self._left(name, now_s)) / self.per_s)

    def wait_s(self, name: str, now_s: float) -> float:
        """Use a token and return 0; without one return the seconds until the next."""
        if self.per_s <= 0:
            return 0.0
        left = self._left(name, now_s)
        taken = 1.0 if left >= 1.0 else 0.0
        self._buckets[name] = (left - taken, now_s)
        self._buckets.move_to_end(name)
        if self.most is not None and len(self._buckets) > self.most:
            self._buckets.popitem(last=False)
        return 0.0 if taken else (1.0 - left) / self.per_s

    def _left(self, name: str, now_s: float) -> float:
        left, since_s = self._buckets.get(name, (float(self.burst), now_s))
        return min(float(self.burst), left + max(0.0, now_s - since_s) * self.per_s)
