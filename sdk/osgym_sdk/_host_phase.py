"""Phase of a host in the fleet of a client: a module of its own, since exceptions name it too."""

from __future__ import annotations

import enum


class HostPhase(enum.StrEnum):
    """Phase of a host in the fleet of a client."""

    JOINING = "joining"
    """The host was added or found and has not answered yet; it gets no episodes."""
    SERVING = "serving"
    AWAY = "away"
    """The host served and does not answer now; it is called again."""
    DRAINING = "draining"
    """The host says that it takes no new episodes, or was removed; running episodes go on."""
    GONE = "gone"
    """The host left, and runs no episode of this client any more."""
