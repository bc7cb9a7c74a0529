"""Lock that keeps a replica awake while its guest agent is called."""

from __future__ import annotations

from typing import Protocol


class WakeLock(Protocol):
    """Lock that any number of calls may hold at once."""

    async def acquire(self) -> None:
        """Wake the replica, and keep it awake until `release`.

        Raises:
            HostSocketError: It could not be woken in time; nothing is held.
        """

    def release(self) -> None:
        """End what one `acquire` began."""
