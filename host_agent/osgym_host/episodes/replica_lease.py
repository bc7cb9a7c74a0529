"""Lease of one replica: calls to its guest, which end with one typed error when the replica ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from osgym_host.core.loss import LossEvidence, may_be_of_a_full_disk
from osgym_host.core.reasons import Reason
from osgym_host.episodes.agent_faults import is_agents_own, may_be_agents_own
from osgym_host.episodes.errors import EpisodeOver
from osgym_host.errors import ServiceError
from osgym_host.guest_client import (
    GuestClient,
    GuestError,
    GuestProtocolError,
    GuestRefused,
    GuestTimeout,
    HostSocketError,
)
from osgym_host.replicas.manager import DEATH_NOTICE_S, ReplicaManager
from osgym_host.replicas.thinking import ThinkingClock
from osgym_host.runtimes import base
from osgym_host.runtimes.frozen_disk import FrozenDisk
from osgym_protocol.codes import ErrorCode

T = TypeVar("T")
CHARGED_QUIET_S = 2.0
"""Longest wait for a quiet desktop after time was charged for a thought."""


class ReplicaLease:
    """A leased replica.

    Attributes:
        lost: Set, with why, as soon as the replica ends under the lease or is released.
        manager: The replica's manager; None before `attach` and after `release`.
        replica_id, generation: Names of the replica, kept after its end.
        policy_acted: Returns whether an action of the policy was sent to it; evidence for `core.loss`.
        excuses_agent: Counts a fault of the guest agent; returns whether that is still the host's loss.
        disk_was_full: Returns whether the host's disk was full during the episode, which may be the cause.
    """

    def __init__(self, replica_id: str = "", generation: int = 0) -> None:
        """Make a lease without a replica, since the pool needs `on_revoked` before it leases one."""
        self.lost: asyncio.Future[EpisodeOver] = asyncio.get_running_loop().create_future()
        self.manager: ReplicaManager | None = None
        self.policy_acted: Callable[[], bool] = bool
        self.disk_was_full: Callable[[], bool] = bool
        self.excuses_agent: Callable[[], bool] = bool
        self._guest: GuestClient | None = None
        self.replica_id = replica_id
        self.generation = generation

    def attach(self, manager: ReplicaManager) -> None:
        self.manager, self._guest = manager, manager.guest
        self.replica_id, self.generation = manager.replica_id, manager.generation

    async def check_alive(self) -> None:
        """Check that the replica is alive before an action counts as one of the policy.

        Why it ended may be known a second later: an action that comes in between has not ended it.

        Raises:
            EpisodeOver: The replica is lost.
        """
        clone = None if self.manager is None else self.manager.clone
        if clone is not None and clone.exit_info is not None:
            await asyncio.wait((self.lost,), timeout=DEATH_NOTICE_S)
        if self.lost.done():
            raise self.loss()

    def on_revoked(self, reason: Reason, detail: str) -> None:
        """End the lease; the manager calls it when the replica ends."""
        if self.lost.done():
            return
        acted = self.policy_acted()
        if may_be_of_a_full_disk(LossEvidence(reason, acted)) and self.disk_was_full():
            reason, detail = Reason.DISK_FULL, f"{reason.value} while the host's disk was full: {detail}"
        self.lost.set_result(EpisodeOver(reason, detail, policy_acted=acted))

    @property
    def guest(self) -> GuestClient:
        """Client of the replica's guest agent.

        Raises:
            EpisodeOver: The replica is lost.
        """
        if self._guest is None or self.lost.done():
            raise self.loss()
        return self._guest

    def loss(self) -> EpisodeOver:
        return self.lost.result().copy()

    def release(self, reason: Reason, detail: str = "") -> None:
        """Retire the replica and end every call in flight with `reason`. Idempotent."""
        self.on_revoked(reason, detail)
        manager, self.manager, self._guest = self.manager, None, None
        if manager is not None:
            manager.retire(reason, detail)

    async def witness(self) -> None:
        """Record the identity of the guest agent before the client can change it.

        Raises:
            EpisodeOver: The replica is lost.
            RuntimeFault: It is about to be.
        """
        if self.manager is not None:
            await self.call(self.manager.witness())

    async def attest(self, *, afresh: bool) -> None:
        """Check that the guest agent still has its recorded identity.

        Args:
            afresh: Over a new connection, which the calls that follow use too.

        Raises:
            GuestTampered: It was replaced or changed: what it answers says nothing.
            RuntimeFault: It cannot be looked at.
            EpisodeOver: The replica is lost.
        """
        if self.manager is not None:
            await self.call(self.manager.attest(afresh=afresh))

    async def freeze_disk(self) -> FrozenDisk | None:
        """Return the disk as it is now, to be read from outside; None if the runtime has no such disk.

        Raises:
            RuntimeFault: It could not be done.
        """
        return None if self.manager is None else await self.manager.freeze_disk()

    @property
    def thinking(self) -> ThinkingClock | None:
        """Clock that stands still while the policy thinks; None: where it goes on."""
        rest = None if self.manager is None else self.manager.rest
        return None if rest is None else rest.thinking

    async def check_can_stand(self) -> None:
        """Check that the desktop can stand still, its clocks included.

        Raises:
            ServiceError: `unsupported`.
            EpisodeOver: The replica is lost.
        """
        rest = None if self.manager is None else self.manager.rest
        if rest is None or not rest.can_pause:
            text = (
                "think=paused: this host cannot pause a replica. The runtime local can, on a host with "
                "control groups of version 2."
            )
            raise ServiceError(ErrorCode.UNSUPPORTED, text)
        try:
            await self.call(self.guest.resume_clock(0.0))
        except GuestRefused as error:
            why = (
                "bake the image again, it has no clock that can stand still" if error.status == 404 else error
            )
            raise ServiceError(ErrorCode.UNSUPPORTED, f"think=paused: {why}.") from error

    @contextlib.asynccontextmanager
    async def awake(self) -> AsyncIterator[None]:
        """Let the desktop go on for more than one call, where it stands still between calls.

        Time that is charged for the policy's thought passes first.

        Raises:
            EpisodeOver: The replica is lost.
        """
        rest = None if self.manager is None else self.manager.rest
        if rest is None or (clock := rest.thinking) is None:
            yield
            return
        charged = clock.charges
        await self.call(rest.acquire())
        try:
            if clock.left_s:
                await self.call(asyncio.sleep(clock.left_s))
                clock.left_s = 0.0
            if charged:  # what was due meanwhile comes before what the policy does
                with contextlib.suppress(GuestRefused):
                    await self.call(self.guest.ready(timeout_s=CHARGED_QUIET_S))
            yield
        finally:
            rest.release()

    async def attempt(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a call to the guest and end it when the replica ends. The caller handles other errors.

        Raises:
            EpisodeOver: The replica is lost, or was when the call began.
            GuestError: The call failed. Unless the caller mends it, `give_up` is next.
        """
        if self.lost.done():
            work.close()
            raise self.loss()
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self.lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            raise self.loss()
        try:
            return task.result()
        finally:
            del task  # its error would keep this frame and this frame its error, with all that was read

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a call to the guest. An unreachable, hung or malformed guest loses the replica.

        Raises:
            EpisodeOver: The replica is lost, or was when the call began.
            GuestRefused: The guest answered with an error status; the replica lives on.
        """
        try:
            return await self.attempt(work)
        except GuestRefused:
            raise
        except GuestError as error:
            raise await self.give_up(error) from error

    async def give_up(self, error: GuestError) -> EpisodeOver:
        """Release the replica after a failed call; return the error to raise, with the real cause."""
        if isinstance(error, GuestTimeout):
            reason = Reason.GUEST_HUNG if self.manager is None else await self.manager.why_silent()
        elif isinstance(error, GuestRefused):
            reason = Reason.GUEST_FAILED if await self._is_agents_fault(error) else Reason.GUEST_PROTOCOL
        elif isinstance(error, GuestProtocolError):
            reason = Reason.GUEST_PROTOCOL
        else:
            reason = Reason.INTERNAL if isinstance(error, HostSocketError) else Reason.GUEST_DEAD
            await asyncio.wait((self.lost,), timeout=DEATH_NOTICE_S)
        if not self.lost.done():
            self.release(reason, str(error))
        return self.loss()

    async def _is_agents_fault(self, error: GuestRefused) -> bool:
        """Return whether the guest agent failed by itself; a tampered agent's answer is no evidence."""
        if self.manager is None or not may_be_agents_own(error):
            return False
        try:
            sound = await self.manager.attest(afresh=False)
        except (base.RuntimeFault, GuestError):
            return False
        return sound and (is_agents_own(error) or not self.policy_acted() or self.excuses_agent())
