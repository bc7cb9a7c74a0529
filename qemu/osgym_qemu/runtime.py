"""Runtime of virtual machines cloned from one booted, warmed, frozen desktop."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from osgym_host.runtimes import usage
from osgym_host.runtimes.base import (
    BranchPoint,
    Capabilities,
    PointFailed,
    ReclaimedMemory,
    Replica,
    ReplicaDestroyFailed,
    ReplicaNotFound,
    ReplicaRecord,
    ReplicaSpec,
    Runtime,
    RuntimeNotRunning,
    RuntimeUnsupported,
    StartReport,
    Usage,
)
from osgym_host.runtimes.cgroups import CgroupTree
from osgym_host.runtimes.folder_lock import FolderLock
from osgym_host.runtimes.frozen_disk import DiskLayer, FrozenDisk
from osgym_host.runtimes.held_files import devices_of, held_files
from osgym_host.runtimes.instance_groups import close_groups, open_groups
from osgym_host.runtimes.replica_cgroup import CgroupGroup
from osgym_host.runtimes.replica_table import ReplicaTable, check_name
from osgym_host.runtimes.swap import reclaim
from osgym_protocol.reach import ReachKind
from osgym_qemu.agentless.attach import AgentlessGuests, is_agentless, notes_on, reach_of
from osgym_qemu.branching import BranchPointStore
from osgym_qemu.cloning.adoption import AdoptableVms
from osgym_qemu.cloning.managed_vm import VmOptions
from osgym_qemu.cloning.parked_pool import ParkedPoolOptions
from osgym_qemu.cloning.replica import QemuReplica
from osgym_qemu.cloning.resume import CloneResumer, check_spec
from osgym_qemu.cloning.snapshot_registry import ParkedPools, SnapshotRegistry
from osgym_qemu.cloning.vm_manager import VmManager
from osgym_qemu.golden.snapshot import GoldenRamCache, GoldenSnapshot
from osgym_qemu.health.monitor import HealthMonitor
from osgym_qemu.health.rules import HealthOptions
from osgym_qemu.machine.launcher import Launcher
from osgym_qemu.network.base import Network
from osgym_qemu.runner.container import clear_stale
from osgym_qemu.snapshots import Snapshot

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QemuOptions:
    """Options of the runtime.

    Attributes:
        resumes_at_once: Number of clones that resume at the same time; more would slow each other down.
        identity_timeout_s: Deadline from the clone's first instruction to its acknowledged identity.
    """

    vms: VmOptions = field(default_factory=VmOptions)
    parked: ParkedPoolOptions = field(default_factory=ParkedPoolOptions)
    health: HealthOptions = field(default_factory=HealthOptions)
    resumes_at_once: int = 4
    identity_timeout_s: float = 15.0


@dataclass(frozen=True, slots=True)
class _Started:
    """Resources between `start` and `stop`."""

    tree: CgroupTree
    launcher: Launcher
    vms: VmManager
    ram: GoldenRamCache
    resumer: CloneResumer
    health: HealthMonitor
    adoptable: AdoptableVms


class QemuRuntime(Runtime):
    """Virtual machines of one instance of the host agent, below `<data_dir>/run/<instance>`.

    `base.Runtime` documents what each method promises and raises.
    """

    def __init__(
        self,
        data_dir: Path,
        instance: str,
        make_launcher: Callable[[CgroupTree], Launcher],
        network: Network,
        options: QemuOptions | None = None,
        image: Snapshot | GoldenSnapshot | None = None,
    ) -> None:
        """Make the runtime. Nothing is touched before `start`.

        Args:
            make_launcher: Makes the launcher of processes, for the instance's control groups.
            image: Snapshot for which processes are parked from the start; for others only on demand.

        Raises:
            ValueError: `instance` is not a plain name.
        """
        check_name("instance", instance)
        self._folder = data_dir / "run" / instance
        self._lock = FolderLock(self._folder)
        self._make_launcher = make_launcher
        self._network = network
        self._options = options or QemuOptions()
        self._image = image
        self._snapshots = SnapshotRegistry(data_dir)
        self._points = BranchPointStore(run_folder=self._folder / "points", data_dir=data_dir)
        self._replicas = ReplicaTable(self.name, QemuReplica, self._destroy)
        self._state_lock = asyncio.Lock()
        self._started: _Started | None = None

    @property
    def name(self) -> str:
        return "qemu"

    def capabilities(self) -> Capabilities:
        """Return what is enforced. The cap on processes is one on QEMU's threads, not the guest's."""
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
            reach=self._reach_offered(),
        )

    # Start and stop ----------------------------------------------------------------------------------

    async def start(self) -> StartReport:
        async with self._state_lock:
            if self._started is not None:
                return StartReport()
            self._replicas.open()
            self._folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            self._lock.acquire()
            ram = GoldenRamCache()
            try:
                self._started, report = await self._start(ram)
            except BaseException:
                ram.close()
                self._lock.release()
                raise
        self._started.health.start()
        if self._image is not None:
            self._started.resumer.pools.of(self._snapshots.of(self._image))
        return report

    async def _start(self, ram: GoldenRamCache) -> tuple[_Started, StartReport]:
        options = self._options
        if opened := await asyncio.to_thread(self._snapshots.close_to_others):
            log.warning(
                "%d snapshot(s) were readable by other users of this host; their permissions were corrected",
                len(opened),
            )
        tree = await asyncio.to_thread(open_groups, self._folder)
        launcher = self._make_launcher(tree)
        vms = VmManager(self._folder, launcher, self._network, ram, options.vms)
        vms.open()
        agentless = AgentlessGuests(self._folder / "guests")
        agentless.open()
        await launcher.prepare()
        await self._network.start()
        adoptable = await AdoptableVms.find(vms)
        containers = any(record.keeper for record in vms.records.read_all())
        machines, processes = await vms.reap(adoptable.names)
        processes += await clear_stale(
            launcher.runner, self._folder, tree, keep=adoptable.names, containers=containers
        )
        points = await self._points.start()
        resumer = CloneResumer(
            vms=vms,
            pools=ParkedPools(options.parked, vms),
            network=self._network,
            points=self._points,
            agentless=agentless,
            slots=asyncio.Semaphore(options.resumes_at_once),
            parked_caps=options.vms.caps,
            identity_timeout_s=options.identity_timeout_s,
        )
        started = _Started(
            tree, launcher, vms, ram, resumer, HealthMonitor(options.health, self._replicas.all), adoptable
        )
        return started, StartReport(
            adoptable=adoptable.records(),
            points=points,
            reaped_replicas=machines,
            reaped_processes=processes,
        )

    async def stop(self) -> None:
        self._replicas.refuse()
        if self._started is not None:
            await self._started.resumer.pools.close()
            await self._points.settle()
            await self._started.health.stop()
        errors = await self._replicas.close()
        async with self._state_lock:
            started, self._started = self._started, None
            if started is not None:
                errors += await self._release(started)
        if errors:
            raise errors[0]

    async def _release(self, started: _Started) -> list[BaseException]:
        """Release everything after the last replica; return the errors."""
        errors = await started.adoptable.remove_all()
        results = await asyncio.gather(self._points.stop(), self._network.stop(), return_exceptions=True)
        errors += [result for result in results if isinstance(result, BaseException)]
        await started.launcher.close()
        try:
            await asyncio.to_thread(close_groups, self._folder, started.tree)
            started.vms.close()
            started.resumer.agentless.close()
        except OSError as exc:
            errors.append(ReplicaDestroyFailed(f"files of this host agent could not be removed: {exc}"))
        started.ram.close()
        self._lock.release()
        return errors

    # Replicas ----------------------------------------------------------------------------------------

    async def create(self, spec: ReplicaSpec) -> Replica:
        """Resume a clone, or a child of `spec.origin`, and return when it has acknowledged its identity."""
        resumer = self._require().resumer
        check_name("replica_id", spec.replica_id)
        golden = self._snapshots.of(spec.image)
        check_spec(spec, golden, self._network)
        return await self._replicas.create(spec.replica_id, lambda: resumer.create(spec, golden))

    async def destroy(self, replica: Replica) -> None:
        await self._replicas.destroy(replica)

    async def _destroy(self, replica: QemuReplica) -> None:
        replica.destroying = True
        await replica.vm.remove()
        await replica.wait_dead()
        await replica.close()

    async def usage(self, replica: Replica, *, deep: bool = True) -> Usage:
        found = self._replicas.require(replica)
        pid = found.pid if found.exit_info is None else None
        return await asyncio.to_thread(measure_vm, found.vm.group, pid, found.vm.folder, deep=deep)

    def used_cpu_s(self, replica: Replica) -> float | None:
        group = self._replicas.require(replica).vm.group
        return None if group is None else group.cpu_s()

    def set_cpu_weight(self, replica: Replica, weight: int) -> None:
        group = self._replicas.require(replica).vm.group
        if group is not None:
            group.set_cpu_weight(weight)

    def can_pause(self, replica: Replica) -> bool:
        group = self._replicas.require(replica).vm.group
        return group is not None and group.can_freeze

    async def pause(self, replica: Replica) -> None:
        self._set_frozen(replica, True)

    async def unpause(self, replica: Replica) -> None:
        self._set_frozen(replica, False)

    def _set_frozen(self, replica: Replica, frozen: bool) -> None:
        found = self._replicas.require(replica)
        if found.vm.group is None:
            raise RuntimeUnsupported("a virtual machine without control groups cannot be paused")
        found.set_frozen(found.vm.group, frozen)

    async def reclaim(self, replica: Replica) -> ReclaimedMemory | None:
        group = self._replicas.require(replica).vm.group
        if group is None:
            return None
        return await asyncio.to_thread(reclaim, group)

    def replicas(self) -> Sequence[Replica]:
        return self._replicas.all()

    # What a previous host agent left -------------------------------------------------------------------

    async def adopt(self, record: ReplicaRecord) -> Replica:
        """Take over a replica of a previous host agent: same process, same guest, same token."""
        started = self._require()
        vm = started.adoptable.require(record)
        self._replicas.check_free(record.replica_id)
        replica = await started.adoptable.adopt(vm, self._snapshots, started.resumer)
        self._replicas.add(replica)
        return replica

    async def reap(self, record: ReplicaRecord) -> None:
        if self._started is not None:
            await self._started.adoptable.reap(record)

    async def freeze_disk(self, replica: Replica) -> FrozenDisk | None:
        """Put a new layer on top of its disk, so that the layers below stay unchanged. None for imported
        disks.
        """
        self._require()
        found = self._replicas.require(replica)
        golden = self._snapshots.find(found.spec.image.digest)
        if golden is None or is_agentless(golden) or found.exit_info is not None:
            return None
        layers = await self._points.freeze_disk(found.branch_source(golden))
        below = DiskLayer(golden.image, golden.image_format), DiskLayer(golden.disk, "qcow2")
        return FrozenDisk((*below, *(DiskLayer(path, "qcow2") for path in layers)))

    # Branching ---------------------------------------------------------------------------------------

    async def branch(self, replica: Replica, *, keep: bool = False) -> BranchPoint:
        self._require()
        found = self._replicas.require(replica)
        if found.exit_info is not None:
            raise ReplicaNotFound(f"{found.replica_id} is dead", replica_id=found.replica_id)
        golden = self._snapshots.find(found.spec.image.digest)
        if golden is None:
            raise PointFailed(
                "the snapshot it was cloned from was removed from the store", replica_id=found.replica_id
            )
        return await self._points.take(found.branch_source(golden), keep=keep)

    async def release_point(self, point: BranchPoint) -> None:
        await self._points.release(point)

    async def export_point(self, point: BranchPoint, target: Path) -> None:
        await self._points.export(point, target)

    async def import_point(self, source: Path) -> BranchPoint:
        return await self._points.import_(source)

    # What all share ----------------------------------------------------------------------------------

    def _notes_on_guest(self) -> tuple[str, ...]:
        return () if self._image is None else notes_on(self._snapshots.of(self._image))

    def _reach_offered(self) -> frozenset[ReachKind]:
        if self._image is None:
            return frozenset(ReachKind)
        return reach_of(self._snapshots.of(self._image))

    def _require(self) -> _Started:
        if self._started is None:
            raise RuntimeNotRunning("the qemu runtime is not started")
        return self._started


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def measure_vm(group: CgroupGroup | None, pid: int | None, folder: Path, *, deep: bool) -> Usage:
    """Measure a machine.

    Args:
        pid: PID of QEMU; None when it is dead. Other processes in its groups, such as the forwarder of a
            container, count as well.
    """
    pids = None
    if pid is not None:
        pids = {pid} | (group.pids() if group is not None else set())
    return usage.measure(
        group,
        pids,
        deep=deep,
        overlay_mib=disk_mib(folder) if deep else None,
        held=held_files(pids, devices_of(str(folder))) if deep and pids is not None else None,
    )


def disk_mib(folder: Path) -> float:
    """Return the disk space of the files in a machine's folder in MiB.

    A layer that several machines share (branches, by hard links) counts for each in equal parts.
    """
    total = 0.0
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return 0.0
    for entry in entries:
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        total += found.st_blocks * 512 / max(1, found.st_nlink)
    return total / (1 << 20)
