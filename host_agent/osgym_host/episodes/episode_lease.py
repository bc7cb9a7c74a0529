"""A client's right to an episode, which runs out when nobody calls."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class EpisodeLease:
    """A client's right to an episode; as a context it is a call, under which it does not run out.

    Attributes:
        token: The secret that every call must carry.
        expires_at: When it runs out, monotonic; pushed back by every call.
        journaled_until: The `expires_at` that the journal knows of.
        calls: Calls in flight.
    """

    token: str
    ttl_s: float
    expires_at: float = 0.0
    journaled_until: float = 0.0
    calls: int = 0

    def renew(self) -> None:
        """Push the end back."""
        self.expires_at = time.monotonic() + self.ttl_s

    def idle_s(self) -> float:
        """Return for how long nobody has called; 0 during a call."""
        return 0.0 if self.calls else max(0.0, time.monotonic() - (self.expires_at - self.ttl_s))

    def __enter__(self) -> None:
        """Begin a call."""
        self.calls += 1

    def __exit__(self, *exc: object) -> None:
        """End a call."""
        self.calls -= 1
        self.renew()
