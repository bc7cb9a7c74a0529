"""One hold on one replica: calls to its guest that end when the replica does, with one typed error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from osgym_host.core.reasons import Reason
from osgym_host.episodes.errors import EpisodeOver
from osgym_host.guest import GuestClient, GuestError, GuestProtocolError, GuestRefused, GuestTimeout
from osgym_host.replicas.manager import DEATH_NOTICE_S, ReplicaManager

log = logging.getLogger(__name__)

T = TypeVar("T")


class Hold:
    """A leased replica. `lost` is set when it ends under the lease, for whatever reason."""

    def __init__(self) -> None:
        """Made before the replica is known: `revoked` goes to the pool, then `manager` is set."""
        self.lost: asyncio.Future[EpisodeOver] = asyncio.get_running_loop().create_future()
        self.manager: ReplicaManager | None = None

    def revoked(self, reason: Reason, detail: str) -> None:
        """Called by the manager when the replica ends under the lease."""
        if not self.lost.done():
            self.lost.set_result(EpisodeOver(reason, detail))

    @property
    def guest(self) -> GuestClient:
        """The client of the replica's guest agent.

        Raises:
            EpisodeOver: The replica is lost.
        """
        if self.lost.done():
            raise self.lost.result().again()
        assert self.manager is not None
        return self.manager.guest

    def let_go(self, reason: Reason, detail: str = "") -> None:
        """Gives the replica up: it retires, every call in flight ends with `reason`. Idempotent."""
        self.revoked(reason, detail)
        manager, self.manager = self.manager, None
        if manager is not None:
            manager.retire(reason, detail)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a call to the guest; ends at once when the replica does.

        A guest that is gone, hangs or talks nonsense loses the replica.

        Raises:
            EpisodeOver: The replica is lost, or was when the call began.
            GuestRefused: The guest answered with an error status; the replica lives on.
        """
        if self.lost.done():
            work.close()
            raise self.lost.result().again()
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self.lost), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise self.lost.result().again()
        try:
            return task.result()
        except GuestRefused:
            raise
        except GuestError as error:
            raise await self.blame(error) from error

    async def blame(self, error: GuestError) -> EpisodeOver:
        """Finds out why the call failed and gives the replica up."""
        if isinstance(error, GuestTimeout):
            reason = Reason.GUEST_HUNG
        elif isinstance(error, GuestProtocolError):
            reason = Reason.GUEST_PROTOCOL
        else:
            reason = Reason.GUEST_DEAD
            await asyncio.wait((self.lost,), timeout=DEATH_NOTICE_S)
        if not self.lost.done():
            self.let_go(reason, str(error))
        return self.lost.result().again()
