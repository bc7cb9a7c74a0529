"""Branching a replica: its machine stands still because we say so, and goes on whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

from osgym_host.runtimes.base import BranchPoint, PointFailed, ReplicaNotFound, RuntimeFault
from osgym_host.runtimes.qemu.branch import BranchKeeper, BranchSource
from osgym_host.runtimes.qemu.golden import Golden
from osgym_host.runtimes.qemu.replica import QemuReplica
from osgym_host.runtimes.qemu.stocks import Goldens


@dataclass(frozen=True, slots=True)
class Brancher:
    """Takes branch points of replicas."""

    points: BranchKeeper
    goldens: Goldens
    work: set[asyncio.Task[None]] = field(default_factory=set)

    async def take(self, replica: QemuReplica, *, keep: bool) -> BranchPoint:
        """Take a point. Cancelled, it is taken to its end, since the machine stands still, and released.

        Raises:
            ReplicaNotFound: It is dead or destroyed.
            PointFailed: It could not be taken; the replica goes on.
        """
        if replica.removed or replica.exit_info is not None:
            raise ReplicaNotFound(f"{replica.replica_id} is dead", replica_id=replica.replica_id)
        golden = self.goldens.find(replica.spec.image.digest)
        if golden is None:
            raise PointFailed(
                "the snapshot it was cloned from is gone from the store", replica_id=replica.replica_id
            )
        taking = asyncio.create_task(self._take(replica, golden, keep))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            undoing = asyncio.create_task(self._undo(taking))
            self.work.add(undoing)
            undoing.add_done_callback(self.work.discard)
            raise

    async def _take(self, replica: QemuReplica, golden: Golden, keep: bool) -> BranchPoint:
        try:
            with replica.standing():
                return await self.points.take(branch_source(replica, golden), keep=keep)
        finally:
            await replica.check_status()

    async def _undo(self, taking: asyncio.Task[BranchPoint]) -> None:
        with contextlib.suppress(RuntimeFault):
            await self.points.release(await taking)


def branch_source(replica: QemuReplica, golden: Golden) -> BranchSource:
    """What is needed of a replica to branch it."""
    vm = replica.vm
    return BranchSource(
        replica_id=replica.replica_id,
        generation=replica.generation,
        token=replica.guest_token,
        machine=vm.machine,
        ram=vm.ram,
        folder=vm.folder,
        overlay=vm.overlay,
        golden=golden,
    )
