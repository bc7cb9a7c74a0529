"""When to try again: pure, with clock and random injected."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryBackoff:
    """Exponential delays with full jitter (each is drawn between half and the whole of its ceiling)."""

    first_s: float = 0.05
    factor: float = 2.0
    most_s: float = 2.0

    def delay_s(self, attempt: int, rng: random.Random) -> float:
        """Return seconds to wait after attempt number ``attempt`` (from 0) has failed."""
        ceiling = min(self.most_s, self.first_s * self.factor ** min(attempt, 30))
        return ceiling * rng.uniform(0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in monotonic time."""

    at_s: float

    @classmethod
    def after(cls, seconds: float, now_s: float) -> Deadline:
        return cls(now_s + seconds)

    def left_s(self, now_s: float) -> float:
        return max(0.0, self.at_s - now_s)


def next_delay(
    attempt: int, backoff: RetryBackoff, rng: random.Random, now_s: float, *deadlines: Deadline
) -> float | None:
    """Return how long to wait before the next attempt; None when it could not start before a deadline."""
    delay = backoff.delay_s(attempt, rng)
    return delay if all(now_s + delay < deadline.at_s for deadline in deadlines) else None
