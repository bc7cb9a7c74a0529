"""Lease of an episode, which expires without calls."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class EpisodeLease:
    """Lease of an episode. As a context manager it is a call, during which it does not expire.

    Attributes:
        token: Secret that every call must carry.
        expires_at: Time of expiry by the monotonic clock; each call postpones it.
        journaled_until: Value of `expires_at` in the journal.
    """

    token: str
    ttl_s: float
    expires_at: float = 0.0
    journaled_until: float = 0.0
    calls: int = 0

    def renew(self) -> None:
        self.expires_at = time.monotonic() + self.ttl_s

    def idle_s(self) -> float:
        """Return the time since the last call; 0 during a call."""
        return 0.0 if self.calls else max(0.0, time.monotonic() - (self.expires_at - self.ttl_s))

    def __enter__(self) -> None:
        self.calls += 1

    def __exit__(self, *exc: object) -> None:
        self.calls -= 1
        self.renew()
