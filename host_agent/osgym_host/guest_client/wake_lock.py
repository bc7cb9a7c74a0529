"""Lock that keeps a replica awake while its guest agent is called."""

from __future__ import annotations

from typing import Protocol


class WakeLock(Protocol):
    """Lock that any number of calls may hold at once."""

    async def acquire(self, *, still: bool = False) -> None:
        """Wake the replica, and keep it awake until `release`.

        Args:
            still: Its clocks need not go on, where they stand still while a policy thinks.

        Raises:
            HostSocketError: It could not be woken in time; nothing is held.
        """

    def release(self, *, still: bool = False) -> None:
        """End what one `acquire` began."""
