"""Children of a running replica, and replicas that outlived their host agent: made for one lease each.

They never wait in the pool: each goes to its lease as soon as it is ready, and is destroyed when the
lease does not want it. Several are made all together or not at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from osgym_host.core.reasons import Reason
from osgym_host.replicas.asking import NotMade, Waiter
from osgym_host.replicas.manager import ReplicaManager, Revoked
from osgym_host.replicas.pool import Pool
from osgym_host.replicas.rooms import Room
from osgym_host.runtimes import base

log = logging.getLogger(__name__)

AT_ONCE = 16
"""Children of one branch point that are made at the same time; the others follow."""
BRANCH_S = 30.0
KEEP_S = 120.0
"""Deadline of a branch point that is written to disk."""
RELEASE_S = 30.0
COPY_S = 600.0
"""Deadline of writing or reading a point as one file."""


@dataclass(frozen=True, slots=True)
class Heir:
    """Who gets a replica: the lease, and whom to tell when it ends under it."""

    lease_id: str
    revoked: Revoked


class Branches:
    """Branch points and what is made from them. For one event loop."""

    def __init__(self, pool: Pool) -> None:
        """Works on the replicas of the pool."""
        self._pool = pool
        self._releases: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def room(self, count: int, wait_s: float) -> AsyncIterator[Room]:
        """Holds room for so many children, to be used by `make` inside the block.

        Raises:
            NoCapacity: There was none within `wait_s`.
            PoolStopping: The service is stopping.
        """
        room = await self._pool.ask_room(count, wait_s)
        try:
            yield room
        finally:
            self._pool.rooms.give_back(room)

    def check(self) -> None:
        """Finds out whether the runtime can branch, before anything is done.

        Raises:
            RuntimeUnsupported: It cannot; the message has the remedy.
        """
        if not self._pool.runtime.capabilities().branching:
            raise base.RuntimeUnsupported(
                f"The runtime {self._pool.runtime.name} cannot branch a replica.",
                remedy="Run the host with the setting runtime=qemu.",
            )

    async def take(self, manager: ReplicaManager, *, keep: bool = False) -> base.BranchPoint:
        """Takes a branch point of a leased replica; whoever gets it lets go of it with `let_go`.

        Raises:
            ReplicaNotFound, PointFailed, RuntimeUnsupported: As `Runtime.branch`.
        """
        if manager.clone is None:
            raise base.ReplicaNotFound("it is gone", replica_id=manager.replica_id)
        limit_s = KEEP_S if keep else BRANCH_S
        try:
            async with asyncio.timeout(limit_s):
                return await self._pool.runtime.branch(manager.clone, keep=keep)
        except TimeoutError as error:
            text = f"no branch point was taken within {limit_s:g} s"
            raise base.PointFailed(text, replica_id=manager.replica_id) from error

    async def make(self, room: Room, point: base.BranchPoint, heirs: Sequence[Heir]) -> list[ReplicaManager]:
        """Makes one child for each heir, in their order, each leased to it. All or none.

        When one fails, or this is cancelled, those that were made are retired.

        Raises:
            NotMade: One could not be made.
            PoolStopping: The service is stopping.
        """
        gate = asyncio.Semaphore(AT_ONCE)
        started: list[ReplicaManager] = []

        async def one(heir: Heir) -> ReplicaManager:
            async with gate:
                manager, waiter = self._pool.start_own(heir.lease_id, heir.revoked, room=room, origin=point)
                started.append(manager)
                return await _handed_over(manager, waiter)

        works = [asyncio.create_task(one(heir)) for heir in heirs]
        try:
            return list(await asyncio.gather(*works))
        except BaseException:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)
            for manager in started:
                manager.retire(Reason.SURPLUS)
            raise

    async def adopt(self, record: base.ReplicaRecord, heir: Heir) -> ReplicaManager:
        """Takes over a replica of a former host agent for the lease that held it.

        Raises:
            NotMade: It is gone or does not answer; what is left of it is removed.
        """
        manager, waiter = self._pool.start_own(heir.lease_id, heir.revoked, record=record)
        return await _handed_over(manager, waiter)

    async def export(self, point: base.BranchPoint, target: Path) -> None:
        """Writes a kept point as one file.

        Raises:
            PointNotFound, PointFailed: As `Runtime.export_point`.
        """
        try:
            async with asyncio.timeout(COPY_S):
                await self._pool.runtime.export_point(point, target)
        except TimeoutError as error:
            raise base.PointFailed(f"not written within {COPY_S:g} s") from error

    async def take_in(self, source: Path) -> base.BranchPoint:
        """Takes in a kept point of another host; the file is hostile.

        Raises:
            PointFailed: It is broken, or of another golden snapshot than this host's.
        """
        try:
            async with asyncio.timeout(COPY_S):
                return await self._pool.runtime.import_point(source)
        except TimeoutError as error:
            raise base.PointFailed(f"not read within {COPY_S:g} s") from error

    def let_go(self, point: base.BranchPoint) -> None:
        """Releases a point, in the background, once no child of it is being made any more."""
        task = asyncio.create_task(self._release(point), name=f"release:{point.point_id}")
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def settle(self) -> None:
        """Waits until every point that was let go is released (each within `RELEASE_S`)."""
        await asyncio.gather(*self._releases, return_exceptions=True)

    async def _release(self, point: base.BranchPoint) -> None:
        try:
            async with asyncio.timeout(RELEASE_S):
                for manager in self._pool.managers():
                    if manager.spec.origin == point:
                        await manager.tried.wait()
                await self._pool.runtime.release_point(point)
        except (base.RuntimeFault, OSError, TimeoutError) as error:
            log.warning("branch point %s: not released: %s", point.point_id, error)
        except Exception:  # the top of a task
            log.exception("branch point %s: a fault of ours", point.point_id)


async def _handed_over(manager: ReplicaManager, waiter: Waiter) -> ReplicaManager:
    try:
        return await waiter.answer
    except NotMade:
        raise
    except BaseException:
        manager.retire(Reason.SURPLUS)
        raise
