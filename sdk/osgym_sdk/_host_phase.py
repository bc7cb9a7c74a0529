"""Where a host stands in the fleet of a client."""

from __future__ import annotations

import enum


class HostPhase(enum.StrEnum):
    """Where a host stands in the fleet of a client."""

    JOINING = "joining"
    """It was added or found, and has not answered yet; it gets no episodes."""
    SERVING = "serving"
    AWAY = "away"
    """It served and does not answer now; it is tried again."""
    DRAINING = "draining"
    """It takes no new episodes: it says so itself, or it was removed; those that run there go on."""
    GONE = "gone"
    """It left, and no episode of ours is there any more."""
