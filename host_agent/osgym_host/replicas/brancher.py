"""Branching of running replicas, and adoption of replicas after a restart, for one lease each.

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

from osgym_host.core.fair_queue import UNNAMED, ClientKey
from osgym_host.core.reasons import Reason
from osgym_host.replicas.lease_queue import Waiter
from osgym_host.replicas.manager import OnRevoked, ReplicaManager
from osgym_host.replicas.pool import Pool
from osgym_host.replicas.pool_errors import ReplicaNotMade
from osgym_host.replicas.reservations import Reservation
from osgym_host.runtimes import base

log = logging.getLogger(__name__)

AT_ONCE = 16
"""Number of children of one branch point that are made at once."""
BRANCH_S = 30.0
KEEP_S = 120.0
"""Deadline of a branch point that is written to disk."""
RELEASE_S = 30.0
COPY_S = 600.0
"""Deadline of writing or reading a point as one file."""


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Holder of a lease on a replica, with the callback for the replica's loss."""

    lease_id: str
    on_revoked: OnRevoked


class ReplicaBrancher:
    """Makes branch points and replicas from them. For one event loop."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._runtime = pool.replicas.runtime
        self._releases: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def reserve(
        self, count: int, wait_s: float, client: ClientKey = UNNAMED
    ) -> AsyncIterator[Reservation]:
        """Reserve capacity for `count` children, for `make` inside the block.

        Raises:
            PoolExhausted: There was none within `wait_s`.
            PoolStopping: The service is stopping.
        """
        reservation = await self._pool.reserve(count, wait_s, client)
        try:
            yield reservation
        finally:
            self._pool.reservations.give_back(reservation)

    def check(self) -> None:
        """Check that the runtime can branch.

        Raises:
            RuntimeUnsupported: It cannot; the message has the remedy.
        """
        if not self._runtime.capabilities().branching:
            raise base.RuntimeUnsupported(
                f"The runtime {self._runtime.name} cannot branch a replica.",
                remedy="Run the host with the setting runtime=qemu.",
            )

    def why_no_templates(self) -> str | None:
        """Return why no branch point of a replica can be taken after its setup; None if one can."""
        return self._runtime.why_no_templates()

    async def take(self, manager: ReplicaManager, *, keep: bool = False) -> base.BranchPoint:
        """Take a branch point of a leased replica; the caller must `release` it.

        Raises:
            ReplicaNotFound, PointFailed, RuntimeUnsupported: As `Runtime.branch`.
        """
        if manager.clone is None:
            raise base.ReplicaNotFound("it is gone", replica_id=manager.replica_id)
        limit_s = KEEP_S if keep else BRANCH_S
        manager.points_under_way += 1
        try:
            async with asyncio.timeout(limit_s):
                return await self._runtime.branch(manager.clone, keep=keep)
        except TimeoutError as error:
            text = f"no branch point was taken within {limit_s:g} s"
            raise base.PointFailed(text, replica_id=manager.replica_id) from error
        finally:
            manager.points_under_way -= 1

    async def make(
        self, reservation: Reservation, point: base.BranchPoint, holders: Sequence[LeaseHolder]
    ) -> list[ReplicaManager]:
        """Make one child for each holder, in their order, each leased to it. All or none.

        When one fails, or this is cancelled, those that were made are retired.

        Raises:
            ReplicaNotMade: One could not be made.
            PoolStopping: The service is stopping.
        """
        gate = asyncio.Semaphore(AT_ONCE)
        started: list[ReplicaManager] = []

        async def one(holder: LeaseHolder) -> ReplicaManager:
            async with gate:
                manager, waiter = self._pool.start_for_lease(
                    holder.lease_id, holder.on_revoked, reservation=reservation, origin=point
                )
                started.append(manager)
                return await _handed_over(manager, waiter)

        works = [asyncio.create_task(one(holder)) for holder in holders]
        try:
            return list(await asyncio.gather(*works))
        except BaseException:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)
            for manager in started:
                manager.retire(Reason.SURPLUS)
            raise

    async def adopt(self, record: base.ReplicaRecord, holder: LeaseHolder) -> ReplicaManager:
        """Adopt a replica of a previous host agent for the lease that held it.

        Raises:
            ReplicaNotMade: It is gone or does not answer; what is left of it is removed.
        """
        manager, waiter = self._pool.start_for_lease(holder.lease_id, holder.on_revoked, record=record)
        return await _handed_over(manager, waiter)

    async def export_point(self, point: base.BranchPoint, target: Path) -> None:
        """Write a kept point as one file.

        Raises:
            PointNotFound, PointFailed: As `Runtime.export_point`.
        """
        try:
            async with asyncio.timeout(COPY_S):
                await self._runtime.export_point(point, target)
        except TimeoutError as error:
            raise base.PointFailed(f"not written within {COPY_S:g} s") from error

    async def import_point(self, source: Path) -> base.BranchPoint:
        """Import a kept point of another host; the file is hostile input.

        Raises:
            PointFailed: It is broken, or of another golden snapshot than this host's.
        """
        try:
            async with asyncio.timeout(COPY_S):
                return await self._runtime.import_point(source)
        except TimeoutError as error:
            raise base.PointFailed(f"not read within {COPY_S:g} s") from error

    def release(self, point: base.BranchPoint) -> None:
        """Release a point in the background once no child of it is being made."""
        task = asyncio.create_task(self._release(point), name=f"release:{point.point_id}")
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def settle(self) -> None:
        """Wait until all released points are gone (each within `RELEASE_S`)."""
        await asyncio.gather(*self._releases, return_exceptions=True)

    async def _release(self, point: base.BranchPoint) -> None:
        try:
            async with asyncio.timeout(RELEASE_S):
                for manager in self._pool.replicas.managers():
                    if manager.spec.origin == point:
                        await manager.creation_over.wait()
                await self._runtime.release_point(point)
        except (base.RuntimeFault, OSError, TimeoutError) as error:
            log.warning("branch point %s: not released: %s", point.point_id, error)
        except Exception:  # the top of a task
            log.exception("branch point %s: a fault of ours", point.point_id)


async def _handed_over(manager: ReplicaManager, waiter: Waiter) -> ReplicaManager:
    try:
        return await waiter.answer
    except ReplicaNotMade:
        raise
    except BaseException:
        manager.retire(Reason.SURPLUS)
        raise
