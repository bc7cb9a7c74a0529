"""Branching of running replicas, and adoption of replicas after a restart, for one lease each.

They never wait in the pool: each goes to its lease as soon as it is ready, and is destroyed when the
lease does not want it. Several are made all together or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from osgym_host.core.fair_queue import UNNAMED, ClientKey
from osgym_host.core.reasons import Reason
from osgym_host.guest_client import HostSocketError
from osgym_host.replicas.lease_queue import Waiter
from osgym_host.replicas.manager import OnRevoked, ReplicaManager
from osgym_host.replicas.pool import Pool
from osgym_host.replicas.pool_errors import ReplicaNotMade
from osgym_host.replicas.reservations import Reservation
from osgym_host.runtimes import base

AT_ONCE = 16
"""Number of children of one branch point that are made at once."""


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Holder of a lease on a replica, with the callback for the replica's loss."""

    lease_id: str
    on_revoked: OnRevoked


class ReplicaBrancher:
    """Saves the desktops of leased replicas, and makes replicas from them. For one event loop."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.saved = pool.replicas.saved

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
        lacking = self.saved.runtime.why_no_branching()
        if lacking is not None:
            raise lacking

    async def take(self, manager: ReplicaManager, *, keep: bool = False) -> base.BranchPoint:
        """Take a branch point of a leased replica; the caller must add it to `saved`.

        Raises:
            ReplicaNotFound, PointFailed, RuntimeUnsupported: As `Runtime.branch`.
        """
        if manager.clone is None:
            raise base.ReplicaNotFound("the replica is gone", replica_id=manager.replica_id)
        if manager.rest is not None:
            try:
                await manager.rest.acquire()
            except HostSocketError as error:
                raise base.PointFailed(str(error), replica_id=manager.replica_id) from error
        manager.points_under_way += 1
        try:
            manager.guest.drop_idle()  # what is made from it has none of this host's connections
            return await self.saved.take(manager.clone, keep=keep)
        finally:
            manager.points_under_way -= 1
            if manager.rest is not None:
                manager.rest.release()

    async def clone(
        self, point: base.BranchPoint, holder: LeaseHolder, wait_s: float, client: ClientKey
    ) -> ReplicaManager:
        """Make one child for a lease.

        Raises:
            As `reserve` and `make`.
        """
        async with self.reserve(1, wait_s, client) as reservation:
            (manager,) = await self.make(reservation, point, [holder])
        return manager

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


async def _handed_over(manager: ReplicaManager, waiter: Waiter) -> ReplicaManager:
    try:
        return await waiter.answer
    except ReplicaNotMade:
        raise
    except BaseException:
        manager.retire(Reason.SURPLUS)
        raise
