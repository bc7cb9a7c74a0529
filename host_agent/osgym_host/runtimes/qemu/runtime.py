"""The qemu runtime: replicas as virtual machines cloned from one running, warmed, frozen desktop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osgym_host.errors import OsgymHostError
from osgym_host.images.snapshots import Snapshot
from osgym_host.runtimes.base import (
    BranchPoint,
    Capabilities,
    Replica,
    ReplicaCreateFailed,
    ReplicaDestroyFailed,
    ReplicaExists,
    ReplicaNotFound,
    ReplicaRecord,
    ReplicaSpec,
    Runtime,
    RuntimeFault,
    RuntimeNotRunning,
    StartReport,
    Usage,
)
from osgym_host.runtimes.cgroups import CgroupTree
from osgym_host.runtimes.folder_lock import FolderLock
from osgym_host.runtimes.qemu import usage
from osgym_host.runtimes.qemu.adoption import facts_of, find_replicas, spec_of
from osgym_host.runtimes.qemu.agentless.attach import AgentlessGuests, is_agentless, notes_on
from osgym_host.runtimes.qemu.branch import BranchKeeper
from osgym_host.runtimes.qemu.branching import Brancher
from osgym_host.runtimes.qemu.golden import Golden, GoldenRam
from osgym_host.runtimes.qemu.groups import close_groups, open_groups
from osgym_host.runtimes.qemu.launcher import Launcher
from osgym_host.runtimes.qemu.network.base import Network
from osgym_host.runtimes.qemu.parked import StockOptions
from osgym_host.runtimes.qemu.replica import QemuReplica
from osgym_host.runtimes.qemu.runner.former import clear_former
from osgym_host.runtimes.qemu.sentry import Sentry
from osgym_host.runtimes.qemu.stocks import Goldens, Stocks
from osgym_host.runtimes.qemu.vms import Vm, VmOptions, VmYard
from osgym_host.runtimes.qemu.waking import Waker, check_spec
from osgym_host.runtimes.qemu.watch import WatchOptions

log = logging.getLogger(__name__)

PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Ids and instances become names of files and control groups."""


@dataclass(frozen=True, slots=True)
class QemuOptions:
    """How the runtime works.

    Attributes:
        vms: What all machines have in common.
        stock: How many processes are parked ahead of demand.
        watch: How machines are looked at.
        waking_at_once: Clones that wake up at the same time; more would only slow each other down.
        identity_timeout_s: From the clone's first instruction to its acknowledged identity.
    """

    vms: VmOptions = field(default_factory=VmOptions)
    stock: StockOptions = field(default_factory=StockOptions)
    watch: WatchOptions = field(default_factory=WatchOptions)
    waking_at_once: int = 4
    identity_timeout_s: float = 15.0


@dataclass(slots=True)
class _Running:
    """What exists between `start` and `stop`."""

    tree: CgroupTree
    launcher: Launcher
    yard: VmYard
    waker: Waker


class QemuRuntime(Runtime):
    """Virtual machines of one instance of the host agent, below `<data_dir>/run/<instance>`."""

    def __init__(
        self,
        data_dir: Path,
        instance: str,
        make_launcher: Callable[[CgroupTree], Launcher],
        network: Network,
        options: QemuOptions | None = None,
        image: Snapshot | Golden | None = None,
    ) -> None:
        """Nothing is touched before `start`.

        Args:
            make_launcher: Makes what starts processes, for the instance's control groups.
            image: Processes are parked for this snapshot from the start; for others only as asked.

        Raises:
            ValueError: `instance` is not a plain name.
        """
        if not PLAIN_NAME.fullmatch(instance):
            raise ValueError(f"instance must match {PLAIN_NAME.pattern}, not {instance!r}")
        self._data_dir = data_dir
        self._folder = data_dir / "run" / instance
        self._lock = FolderLock(self._folder)
        self._make_launcher = make_launcher
        self._network = network
        self._options = options or QemuOptions()
        self._image = image
        self._ram = GoldenRam()
        self._points = BranchKeeper(run_folder=self._folder / "points", data_dir=data_dir)
        self._agentless = AgentlessGuests(self._folder / "guests")
        self._sentry = Sentry(self._options.watch, lambda: tuple(self._replicas.values()))
        self._goldens = Goldens(data_dir)
        self._stocks = Stocks(self._options.stock)
        self._brancher = Brancher(self._points, self._goldens)
        self._waking = asyncio.Semaphore(self._options.waking_at_once)
        self._state_lock = asyncio.Lock()
        self._running: _Running | None = None
        self._stopping = False
        self._found: dict[str, Vm] = {}
        self._replicas: dict[str, QemuReplica] = {}
        self._creating: dict[str, asyncio.Task[QemuReplica]] = {}
        self._destroying: dict[QemuReplica, asyncio.Task[None]] = {}
        self._background: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        """`qemu`."""
        return "qemu"

    def capabilities(self) -> Capabilities:
        """Say what is enforced here. The cap on processes is one on QEMU's threads, not the guest's."""
        launcher = self._require().launcher
        enforced = launcher.caps_enforced
        return Capabilities(
            runtime=self.name,
            caps_memory="memory" in enforced,
            caps_cpu="cpu" in enforced,
            caps_pids="pids" in enforced,
            egress=self._network.egress,
            adoption=True,
            notes=(*launcher.notes, *self._network.notes, *self._notes_on_guest()),
            branching=True,
        )

    # Start and stop ----------------------------------------------------------------------------------

    async def start(self) -> StartReport:
        """Take the instance's directory; find what a former host agent left, and clear the rest.

        Raises:
            RuntimeUnsupported: The host lacks something.
            DataDirBusy: Another live host agent holds the directory.
            RuntimeFault: Leftovers could not be removed.
        """
        async with self._state_lock:
            if self._running is not None:
                return StartReport()
            self._stopping = False
            self._stocks.open()
            self._folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            self._lock.acquire()
            try:
                report = await self._start()
            except BaseException:
                self._ram.close()
                self._lock.release()
                raise
        self._sentry.start()
        if self._image is not None:
            self._stocks.of(self._goldens.of(self._image), self._require().yard)
        return report

    async def _start(self) -> StartReport:
        options = self._options
        tree = await asyncio.to_thread(open_groups, self._folder)
        launcher = self._make_launcher(tree)
        yard = VmYard(self._folder, launcher, self._network, self._ram, options.vms)
        yard.open()
        self._agentless.open()
        await launcher.prepare()
        await self._network.start()
        self._found = await find_replicas(yard)
        found = list(self._found.values())
        kept = [vm.name for vm in found]
        containers = any(record.keeper for record in yard.records.read_all())
        machines, processes = await yard.reap(kept)
        processes += await clear_former(launcher.runner, self._folder, tree, keep=kept, containers=containers)
        points = await self._points.start()
        waker = Waker(
            yard,
            self._network,
            self._points,
            self._agentless,
            options.vms.caps,
            options.identity_timeout_s,
        )
        self._running = _Running(tree, launcher, yard, waker)
        return StartReport(
            adoptable=tuple(vm.record.as_replica() for vm in found),
            points=points,
            reaped_replicas=machines,
            reaped_processes=processes,
        )

    async def stop(self) -> None:
        """Destroy every replica, parked process and temporary branch point; let go of the host.

        Raises:
            ReplicaDestroyFailed: Something is left; all else was removed.
        """
        self._stopping = True
        await self._stocks.close()
        while work := {*self._creating.values(), *self._background, *self._brancher.work}:
            await asyncio.wait(work)
        await self._sentry.stop()
        results: list[object] = list(
            await asyncio.gather(*map(self.destroy, self.replicas()), return_exceptions=True)
        )
        async with self._state_lock:
            running, self._running = self._running, None
            if running is not None:
                results += await self._let_go(running)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _let_go(self, running: _Running) -> list[object]:
        """Remove what is left when there are no replicas any more; return what went wrong."""
        results: list[object] = []
        results += await asyncio.gather(*(vm.remove() for vm in self._found.values()), return_exceptions=True)
        self._found.clear()
        results += await asyncio.gather(self._points.stop(), self._network.stop(), return_exceptions=True)
        await running.launcher.close()
        try:
            await asyncio.to_thread(close_groups, self._folder, running.tree)
            running.yard.close()
            self._agentless.close()
        except OSError as exc:
            results.append(ReplicaDestroyFailed(f"something of the instance is left: {exc}"))
        self._ram.close()
        self._lock.release()
        return results

    # Replicas ----------------------------------------------------------------------------------------

    async def create(self, spec: ReplicaSpec) -> Replica:
        """Wake a clone, or a child of `spec.origin`, and return when it has acknowledged who it is.

        Raises:
            ReplicaExists: The id is in use.
            ReplicaCreateFailed: It could not be made; nothing of it is left.
            RuntimeUnsupported: The spec asks for another egress, screen or environment than there is.
            RuntimeNotRunning: Before `start` or after `stop`.
            ValueError: The spec is malformed.
        """
        self._require()
        if self._stopping:
            raise RuntimeNotRunning("the qemu runtime is stopping")
        if not PLAIN_NAME.fullmatch(spec.replica_id):
            raise ValueError(f"replica_id must match {PLAIN_NAME.pattern}, not {spec.replica_id!r}")
        golden = self._goldens.of(spec.image)
        check_spec(spec, golden, self._network)
        if spec.replica_id in self._replicas or spec.replica_id in self._creating:
            raise ReplicaExists(f"{spec.replica_id} exists", replica_id=spec.replica_id)
        task = asyncio.create_task(self._create(spec, golden), name=f"create {spec.replica_id}")
        self._creating[spec.replica_id] = task
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._in_background(self._undo_create(task))
            raise

    async def _undo_create(self, task: asyncio.Task[QemuReplica]) -> None:
        with contextlib.suppress(RuntimeFault):
            await self.destroy(await task)

    async def _create(self, spec: ReplicaSpec, golden: Golden) -> QemuReplica:
        try:
            stock = self._stocks.of(golden, self._require().yard)
            try:
                vm = await stock.take()
            except (OsgymHostError, OSError) as exc:
                if isinstance(exc, RuntimeNotRunning):
                    raise
                raise ReplicaCreateFailed(str(exc), step="park", replica_id=spec.replica_id) from exc
            with stock.resuming():
                replica = await self._wake(vm, spec, golden)
        finally:
            del self._creating[spec.replica_id]
        self._replicas[spec.replica_id] = replica
        return replica

    async def _wake(self, vm: Vm, spec: ReplicaSpec, golden: Golden) -> QemuReplica:
        async with self._waking:
            return await self._require().waker.wake(vm, spec, golden)

    async def destroy(self, replica: Replica) -> None:
        """Kill the machine and remove all it left.

        Raises:
            ReplicaDestroyFailed: Something is left; calling again tries again.
        """
        if not isinstance(replica, QemuReplica):
            raise TypeError(f"not a replica of this runtime: {replica!r}")
        if replica.removed:
            return
        task = self._destroying.get(replica)
        if task is None:
            task = asyncio.create_task(self._destroy(replica), name=f"destroy {replica.replica_id}")
            self._destroying[replica] = task
            self._background.add(task)
            task.add_done_callback(lambda done: self._destroyed(replica, done))
        await asyncio.shield(task)

    def _destroyed(self, replica: QemuReplica, task: asyncio.Task[None]) -> None:
        self._destroying.pop(replica, None)
        self._background.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            log.warning("replica %s could not be destroyed: %s", replica.replica_id, exc)

    async def _destroy(self, replica: QemuReplica) -> None:
        replica.destroying = True
        await replica.vm.remove()
        await replica.wait_dead()
        await replica.close()
        replica.removed = True
        if self._replicas.get(replica.replica_id) is replica:
            del self._replicas[replica.replica_id]

    async def usage(self, replica: Replica, *, deep: bool = True) -> Usage:
        """Measure what the replica uses.

        Raises:
            ReplicaNotFound: It was destroyed.
        """
        if not isinstance(replica, QemuReplica) or replica.removed:
            raise ReplicaNotFound(f"{replica.replica_id} was destroyed", replica_id=replica.replica_id)
        pid = replica.pid if replica.exit_info is None else None
        return await asyncio.to_thread(usage.measure, replica.vm.group, pid, replica.vm.folder, deep=deep)

    def replicas(self) -> Sequence[Replica]:
        """Return the replicas not yet destroyed."""
        return list(self._replicas.values())

    # What a former host agent left -------------------------------------------------------------------

    async def adopt(self, record: ReplicaRecord) -> Replica:
        """Take over a replica of a former host agent: same process, same guest, same token.

        Raises:
            ReplicaNotFound: It is gone, or not adoptable.
            ReplicaExists: Another replica has its id.
        """
        self._require()
        vm = self._found.get(record.replica_id)
        if vm is None or facts_of(vm).generation != record.generation or not vm.lives:
            raise ReplicaNotFound(f"{record.replica_id} is not there any more", replica_id=record.replica_id)
        if record.replica_id in self._replicas or record.replica_id in self._creating:
            raise ReplicaExists(f"{record.replica_id} exists", replica_id=record.replica_id)
        spec = spec_of(vm, self._goldens.image_of(vm.record.snapshot))
        del self._found[record.replica_id]
        replica = QemuReplica(spec, vm, spec.token)
        if isinstance(spec.image, Golden) and is_agentless(spec.image):
            try:
                await self._require().waker.serve_agentless(replica, spec.image)
            except (OsgymHostError, OSError) as exc:
                self._found[record.replica_id] = vm
                await replica.close()
                raise ReplicaNotFound(f"{record.replica_id}: {exc}", replica_id=record.replica_id) from exc
        self._replicas[replica.replica_id] = replica
        return replica

    async def reap(self, record: ReplicaRecord) -> None:
        """Destroy a replica of a former host agent. Idempotent.

        Raises:
            ReplicaDestroyFailed: Something is left.
        """
        vm = self._found.get(record.replica_id)
        if vm is None or facts_of(vm).generation != record.generation:
            return
        await asyncio.shield(vm.remove())
        self._found.pop(record.replica_id, None)

    # Branching ---------------------------------------------------------------------------------------

    async def branch(self, replica: Replica, *, keep: bool = False) -> BranchPoint:
        """Take the replica's disk and RAM as they are now; it stands still for milliseconds.

        Raises:
            ReplicaNotFound: It is dead or destroyed.
            PointFailed: It could not be taken; the replica goes on.
        """
        self._require()
        if not isinstance(replica, QemuReplica):
            raise TypeError(f"not a replica of this runtime: {replica!r}")
        return await self._brancher.take(replica, keep=keep)

    async def release_point(self, point: BranchPoint) -> None:
        """Let go of a point and remove its files, kept ones too. Idempotent."""
        await self._points.release(point)

    async def export_point(self, point: BranchPoint, target: Path) -> None:
        """Write a kept point as one file.

        Raises:
            PointNotFound: It is gone, or not a kept one.
        """
        await self._points.export(point, target)

    async def import_point(self, source: Path) -> BranchPoint:
        """Take in a kept point of another host; the file is hostile input.

        Raises:
            PointFailed: It is broken, or of another golden snapshot than this host's.
        """
        return await self._points.import_(source)

    # What all share ----------------------------------------------------------------------------------

    def _notes_on_guest(self) -> tuple[str, ...]:
        return () if self._image is None else notes_on(self._goldens.of(self._image))

    def _require(self) -> _Running:
        if self._running is None:
            raise RuntimeNotRunning("the qemu runtime is not started")
        return self._running

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))
