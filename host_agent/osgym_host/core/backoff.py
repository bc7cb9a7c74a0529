"""Backoff and circuit breaker for repeated failures to make a replica."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Circuit(StrEnum):
    CLOSED = "closed"
    """Replicas are made as the plan wants."""
    OPEN = "open"
    """No replica is made until the pause is over."""
    HALF_OPEN = "half_open"
    """One replica at a time is made, as a trial."""


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Waiting times after the n-th failure in a row.

    Attributes:
        base_s: Wait after the first failure; doubles with each further one.
        open_after: Failures in a row after which only single attempts are made.
    """

    base_s: float = 0.5
    max_s: float = 60.0
    open_after: int = 3


@dataclass(frozen=True, slots=True)
class Backoff:
    """Failures in a row, and the earliest next attempt (same clock as `now`)."""

    failures: int = 0
    not_before: float = float("-inf")

    def failed(self, policy: BackoffPolicy, now: float) -> Backoff:
        """Return the state after one more failure at `now`."""
        failures = self.failures + 1
        pause = min(policy.max_s, policy.base_s * 2.0 ** min(failures - 1, 30))
        return replace(self, failures=failures, not_before=max(self.not_before, now + pause))

    def succeeded(self) -> Backoff:
        """Return the state after a replica became ready: failures count from 0 again."""
        return Backoff()

    def circuit(self, policy: BackoffPolicy, now: float) -> Circuit:
        """Return whether replicas may be made at `now`."""
        if now < self.not_before:
            return Circuit.OPEN
        if self.failures >= policy.open_after:
            return Circuit.HALF_OPEN
        return Circuit.CLOSED
