"""The local runtime: replicas as namespaces over an overlay, made by a zygote, gone without trace."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osgym_host.images.errors import NamespaceUnavailable
from osgym_host.images.idmap import IdMap, current_idmap
from osgym_host.runtimes import cgroups, usage
from osgym_host.runtimes.base import (
    BranchPoint,
    Capabilities,
    Egress,
    GuestTampered,
    PointFailed,
    Replica,
    ReplicaCreateFailed,
    ReplicaDestroyFailed,
    ReplicaNotFound,
    ReplicaRecord,
    ReplicaSpec,
    Runtime,
    RuntimeFault,
    RuntimeNotRunning,
    RuntimeUnsupported,
    StartReport,
    Usage,
)
from osgym_host.runtimes.egress.tools import NetworkFailed
from osgym_host.runtimes.held_files import HeldFiles, devices_of
from osgym_host.runtimes.local import attestation, network, protocol, spawn, syscalls
from osgym_host.runtimes.local.criu.installed import InstalledCriu, find_criu
from osgym_host.runtimes.local.criu.points import LocalPoints
from osgym_host.runtimes.local.instance import InstanceDir, record_process
from osgym_host.runtimes.local.isolation import Isolation, unbounded_because
from osgym_host.runtimes.local.ranges import ReplicaIds
from osgym_host.runtimes.local.replica import LocalReplica
from osgym_host.runtimes.local.spawn import ListenerChannel
from osgym_host.runtimes.local.supervisor import RequestFailed, Supervisor
from osgym_host.runtimes.processes import processes_of
from osgym_host.runtimes.replica_cgroup import Caps
from osgym_host.runtimes.replica_table import ReplicaTable, check_name
from osgym_host.runtimes.web.client import ReplicaProxy

_log = logging.getLogger(__name__)

_SPAWN_TIMEOUT_S = 30.0
_DEATH_TIMEOUT_S = 30.0
_REMOVE_TIMEOUT_S = 120.0
_MEASURE_TIMEOUT_S = 30.0
_STEPS_OF_MAPPED_IMAGE = frozenset({"id-mapped image", "overlay"})
"""Where kernels and file systems without id-mapped lower layers refuse."""


@dataclass(slots=True)
class _Running:
    """What exists between `start` and `stop`."""

    idmap: IdMap
    tree: cgroups.CgroupTree
    supervisor: Supervisor
    replicas_fd: int
    isolation: Isolation


class LocalRuntime(Runtime):
    """Replicas of one instance of the host agent, below `<data_dir>/run/<instance>`.

    What each method promises and raises says the contract, `base.Runtime`.
    """

    def __init__(
        self,
        data_dir: Path,
        instance: str = "default",
        links: network.ReplicaNetwork | None = None,
        proxy: ReplicaProxy | None = None,
        *,
        templates: bool = False,
    ) -> None:
        """Nothing is touched before `start`; with neither `links` nor `proxy` there is no egress.

        Args:
            templates: Look for CRIU, so that branch points can be taken of replicas after a set-up.

        Raises:
            ValueError: `instance` is not a plain name.
        """
        check_name("instance", instance)
        self._instance = InstanceDir(data_dir / "run" / instance)
        self._links = links
        self._proxy = proxy
        self._running: _Running | None = None
        self._state_lock = asyncio.Lock()
        self._replicas = ReplicaTable(self.name, LocalReplica, self._destroy)
        self._by_key: dict[str, LocalReplica] = {}
        self._early_exits: dict[str, int] = {}
        self._keys = itertools.count(1)
        self._templates = templates
        self._criu = InstalledCriu(lacking="task templates are off")
        self._points: LocalPoints | None = None

    @property
    def name(self) -> str:
        """`local`."""
        return "local"

    def capabilities(self) -> Capabilities:
        """Say what is enforced here."""
        tree = self._require().tree
        notes = () if self._links is None else self._links.notes
        return Capabilities(
            runtime=self.name,
            caps_memory="memory" in tree.enforces,
            caps_cpu="cpu" in tree.enforces,
            caps_pids="pids" in tree.enforces,
            egress=self._egress,
            adoption=False,
            notes=(*tree.notes, *filter(None, [self.ids_shared_because, unbounded_because()]), *notes),
        )

    @property
    def _egress(self) -> frozenset[Egress]:
        ways = [way.egress for way in (self._links, self._proxy) if way is not None]
        return frozenset({Egress.NONE}).union(*ways)

    @property
    def ids_shared_because(self) -> str:
        """Why replicas share one range of ids; empty while each has its own.

        What the kernel and the image's file system can do shows with the first replica.

        Raises:
            RuntimeNotRunning: Before `start` or after `stop`.
        """
        return self._require().isolation.shared_because

    @property
    def devices_shared(self) -> bool:
        """Whether some replica had to take the host's device nodes.

        Raises:
            RuntimeNotRunning: Before `start` or after `stop`.
        """
        return self._require().isolation.devices_shared

    @property
    def supervisor_pid(self) -> int:
        """PID of the zygote.

        Raises:
            RuntimeNotRunning: Before `start` or after `stop`.
        """
        return self._require().supervisor.pid

    # Start and stop --------------------------------------------------------------------------

    async def start(self) -> StartReport:
        """Take the instance's directory and clear what a killed predecessor left."""
        async with self._state_lock:
            if self._running is not None:
                return StartReport()
            self._replicas.open()
            if not syscalls.supported_machine():
                raise RuntimeUnsupported(f"no support for {syscalls.MACHINE} processors")
            try:
                idmap = current_idmap()
            except NamespaceUnavailable as exc:
                raise RuntimeUnsupported(str(exc)) from exc
            self._instance.acquire()
            try:
                await asyncio.to_thread(self._find_criu)
                return await self._start(idmap)
            except BaseException:
                self._instance.release()
                raise

    def _find_criu(self) -> None:
        points = self._instance.path / "points"
        LocalPoints(points, "").clear()
        if self._templates:
            self._criu = find_criu()
        self._points = LocalPoints(points, self._criu.path) if self._criu.usable else None

    async def _start(self, idmap: IdMap) -> StartReport:
        isolation = Isolation.open(self._instance.path)
        try:
            return await self._start_with(idmap, isolation)
        except BaseException:
            isolation.close()
            raise

    async def _start_with(self, idmap: IdMap, isolation: Isolation) -> StartReport:
        supervisor = await self._new_supervisor(idmap, isolation)
        try:
            tree = await asyncio.to_thread(
                cgroups.open_tree, cgroups.instance_group_name(self._instance.path)
            )
            killed = await asyncio.to_thread(self._instance.kill_leftovers, tree)
            names = self._instance.leftover_names()
            replicas_fd = os.open(self._instance.replicas, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if names:
                    await supervisor.request(
                        "remove", {"names": names}, [replicas_fd], timeout_s=_REMOVE_TIMEOUT_S
                    )
                # After the last process of a former replica.
                await self._open_links()
            except BaseException:
                os.close(replicas_fd)
                raise
        except BaseException:
            await supervisor.close()
            raise
        self._running = _Running(idmap, tree, supervisor, replicas_fd, isolation)
        return StartReport(reaped_replicas=len(names), reaped_processes=killed)

    async def _open_links(self) -> None:
        if self._links is not None:
            await self._links.start()
        else:
            mark = cgroups.instance_group_name(self._instance.path)
            await asyncio.to_thread(network.clear, mark, self._instance.egress_record)
        if self._proxy is not None:  # last, so that nothing else fails with it running
            await self._proxy.start()

    async def _new_supervisor(self, idmap: IdMap, isolation: Isolation) -> Supervisor:
        lock_fd = await self._instance.zygote_lock()
        lock_fds = [fd for fd in (lock_fd, isolation.lock_fd) if fd >= 0]
        try:
            supervisor = await Supervisor.start(idmap, lock_fds, self._on_exit)
        finally:
            os.close(lock_fd)
        record_process(self._instance.path / "zygote.json", supervisor.pid)
        supervisor.lost.add_done_callback(lambda _future: self._on_supervisor_lost(supervisor))
        return supervisor

    async def stop(self) -> None:
        """Destroy every replica and let go of the host."""
        errors = await self._replicas.close()
        async with self._state_lock:
            running, self._running = self._running, None
            if running is not None:
                await running.supervisor.close()
                if self._points is not None:
                    await self._points.close()
                os.close(running.replicas_fd)
                running.isolation.close()
                if self._proxy is not None:
                    await self._proxy.stop()
                try:
                    if self._links is not None:
                        await self._links.stop()
                except NetworkFailed as exc:
                    errors.append(ReplicaDestroyFailed(f"the instance's links are left: {exc}"))
                try:
                    await asyncio.to_thread(running.tree.remove)
                    self._instance.forget()
                except OSError as exc:
                    errors.append(ReplicaDestroyFailed(f"the instance's control group is busy: {exc}"))
                self._instance.release()
        if errors:
            raise errors[0]

    # Replicas --------------------------------------------------------------------------------

    async def create(self, spec: ReplicaSpec) -> Replica:
        """Start a fresh clone and return as soon as its session runs."""
        running = self._require()
        spawn.check_spec(spec, running.idmap, self._egress, origins=self._points is not None)
        return await self._replicas.create(spec.replica_id, lambda: self._create(spec))

    async def _create(self, spec: ReplicaSpec) -> LocalReplica:
        isolation = self._require().isolation
        rootfs = spawn.rootfs_image(spec).rootfs
        ids = isolation.take(rootfs)
        try:
            return await self._create_with(spec, ids)
        except ReplicaCreateFailed as exc:
            if ids is None or spec.origin is not None or exc.step not in _STEPS_OF_MAPPED_IMAGE:
                raise
            replica = await self._create_with(spec, None)
            isolation.refused(rootfs, str(exc))
            return replica

    async def _create_with(self, spec: ReplicaSpec, ids: ReplicaIds | None) -> LocalReplica:
        folder = self._instance.replicas / spec.replica_id
        key = f"{next(self._keys)}:{spec.replica_id}"
        log_tail = ""
        running = self._require()
        replica: LocalReplica | None = None
        try:
            supervisor = await self._ensure_supervisor()
            group = running.tree.make(
                spec.replica_id, Caps(ram_mib=spec.ram_mib, cpus=spec.cpus, pids=spec.pids)
            )
            replica = LocalReplica(spec, key, folder, group, ids)
            self._by_key[key] = replica
            try:
                await self._spawn(running, supervisor, replica)
            except BaseException:
                log_tail = replica.console_tail()
                if replica.pid:  # it runs, and what was to be noted of it could not be: a full disk
                    await self._destroy(replica)
                    raise
                self._by_key.pop(key, None)
                self._early_exits.pop(key, None)
                await self._clean_up(replica)
                raise
        except RequestFailed as exc:
            raise ReplicaCreateFailed(
                str(exc), step=exc.step, replica_id=spec.replica_id, log_tail=log_tail
            ) from exc
        except NetworkFailed as exc:
            raise ReplicaCreateFailed(str(exc), step="network", replica_id=spec.replica_id) from exc
        except OSError as exc:
            raise ReplicaCreateFailed(str(exc), step="prepare", replica_id=spec.replica_id) from exc
        finally:
            if replica is None:
                running.isolation.release(ids)
        return replica

    async def _spawn(self, running: _Running, supervisor: Supervisor, replica: LocalReplica) -> None:
        folder = replica.folder
        links = self._links if replica.spec.egress is not Egress.NONE else None
        name_server = (await links.reserve(folder.name)).host_ip if links is not None else ""
        proxy = self._proxy if self._proxy is not None and self._proxy.serves(replica.spec.egress) else None
        web = None if proxy is None else proxy.given()
        fields = spawn.request(replica, "pids" in running.tree.enforces, name_server, web)
        # Nobody but us can pass through `replicas`; the replica's root must pass through its folder.
        folder.mkdir()
        folder.chmod(0o711)
        if replica.spec.origin is not None and self._points is not None:
            fields["restore"] = await self._points.prepare(replica)
        with contextlib.ExitStack() as stack:
            given = [stack.enter_context(spawn.console(folder))]
            channel = None if proxy is None else stack.enter_context(contextlib.closing(ListenerChannel()))
            if channel is not None:
                given.append(channel.fd)
            answer, fds = await supervisor.request("spawn", fields, given, timeout_s=_SPAWN_TIMEOUT_S)
            await self._spawned(running, replica, answer, fds, links)
            if proxy is not None and channel is not None:
                await proxy.open(folder.name, channel.take())

    async def _spawned(
        self,
        running: _Running,
        replica: LocalReplica,
        answer: dict[str, Any],
        fds: list[int],
        links: network.ReplicaNetwork | None,
    ) -> None:
        """Note what runs, and connect its link; closes the descriptors."""
        try:
            replica.listening = answer["listening"]
            replica.runs(answer["pid"], fds[0])
            running.isolation.devices_shared |= not answer["own_devices"]
            record_process(replica.folder / "replica.json", replica.pid)
            early = self._early_exits.pop(replica.key, None)
            if early is not None:
                replica.ended(early)
            if links is not None:
                await links.connect(replica.folder.name, fds[1], replica.spec.egress)
        finally:
            for fd in fds[1:]:
                os.close(fd)

    async def destroy(self, replica: Replica) -> None:
        """Kill every process of the replica and remove all it left."""
        await self._replicas.destroy(replica)

    async def _destroy(self, replica: LocalReplica) -> None:
        if replica.exit_info is None:
            replica.destroying = True
            try:
                replica.kill()
            except PermissionError:
                fields = {"key": replica.key}
                with contextlib.suppress(RuntimeNotRunning):  # then the kernel kills it
                    supervisor = self._require().supervisor
                    await supervisor.request("kill", fields, timeout_s=_DEATH_TIMEOUT_S)
            try:
                async with asyncio.timeout(_DEATH_TIMEOUT_S):
                    await replica.wait_dead()
            except TimeoutError as exc:
                raise ReplicaDestroyFailed(
                    f"its first process {replica.pid} does not die", replica_id=replica.replica_id
                ) from exc
        self._by_key.pop(replica.key, None)
        await self._clean_up(replica)

    async def _clean_up(self, replica: LocalReplica) -> None:
        """Remove files and control groups of a replica without processes."""
        try:
            supervisor = await self._ensure_supervisor()
            if replica.pid == 0:  # its start failed or was not answered in time
                await supervisor.request("kill", {"key": replica.key}, timeout_s=_DEATH_TIMEOUT_S)
            await supervisor.request(
                "remove",
                {"names": [replica.folder.name]},
                [self._require().replicas_fd],
                timeout_s=_REMOVE_TIMEOUT_S,
            )
            if replica.spec.origin is not None:
                await asyncio.to_thread(replica.group.kill)  # whom a killed CRIU left
            await asyncio.to_thread(replica.group.remove)
            if self._proxy is not None:
                await self._proxy.close(replica.folder.name)
            if self._links is not None:
                await self._links.detach(replica.folder.name)
        except (OSError, RuntimeFault) as exc:
            raise ReplicaDestroyFailed(
                f"not everything of {replica.replica_id} could be removed: {exc}",
                replica_id=replica.replica_id,
            ) from exc
        replica.close()
        self._require().isolation.release(replica.ids)

    async def usage(self, replica: Replica, *, deep: bool = True) -> Usage:
        """Measure what the replica uses."""
        found = self._replicas.require(replica)
        running = self._require()
        pids = await asyncio.to_thread(_processes, found)
        overlay_mib: float | None = None
        held: HeldFiles | None = None
        if deep:
            fields = {
                "name": found.folder.name,
                "pids": sorted(pids or ())[: protocol.MAX_PIDS],
                "devices": list(found.disk_devices),
            }
            with contextlib.suppress(RuntimeFault):
                answer, _ = await running.supervisor.request(
                    "measure", fields, [running.replicas_fd], timeout_s=_MEASURE_TIMEOUT_S
                )
                used, deleted, in_flight, written = map(int, answer["result"].split())
                overlay_mib = used / (1 << 20)
                held = HeldFiles(deleted, in_flight, written if written >= 0 else None)
        return await asyncio.to_thread(
            usage.measure, found.group, pids, deep=deep, overlay_mib=overlay_mib, held=held
        )

    def used_cpu_s(self, replica: Replica) -> float | None:
        """Read it from its control group."""
        return self._replicas.require(replica).group.cpu_s()

    def set_cpu_weight(self, replica: Replica, weight: int) -> None:
        """Write it to its control group."""
        self._replicas.require(replica).group.set_cpu_weight(weight)

    async def witness(self, replica: Replica) -> None:
        """Note which process its guest agent is."""
        found = self._replicas.require(replica)
        await attestation.witness(self._require().supervisor, found, lambda: _processes(found))

    async def attest(self, replica: Replica, sockets: Sequence[int]) -> None:
        """Check that its guest agent is that process still, and runs the image's code."""
        found = self._replicas.require(replica)
        await attestation.attest(self._require().supervisor, found, lambda: _processes(found), sockets)

    # Branch points, of replicas that only a set-up has used ------------------------------------

    def why_no_templates(self) -> str | None:
        """Say what CRIU lacks."""
        return self._criu.lacking or None

    async def branch(self, replica: Replica, *, keep: bool = False) -> BranchPoint:
        """Dump it by CRIU, while it stands still; its agent must be what it was, and nobody connected."""
        found = self._replicas.require(replica)
        running = self._require()
        if self._points is None or keep:
            return await super().branch(replica, keep=keep)
        if found.exit_info is not None:
            raise ReplicaNotFound(f"{found.replica_id} is dead", replica_id=found.replica_id)
        try:
            await attestation.attest(running.supervisor, found, lambda: _processes(found), [])
        except GuestTampered as exc:
            raise PointFailed(f"its guest agent was changed: {exc}", replica_id=found.replica_id) from exc
        return await self._points.take(found, lambda: _processes(found))

    async def release_point(self, point: BranchPoint) -> None:
        """Let go of a point; what clones that live need of it goes with the last of them. Idempotent."""
        if self._points is not None:
            await self._points.release(point)

    def replicas(self) -> Sequence[Replica]:
        """Return the replicas not yet destroyed."""
        return self._replicas.all()

    async def adopt(self, record: ReplicaRecord) -> Replica:
        """Refuse: replicas end with their zygote, and that with its host agent."""
        raise RuntimeUnsupported("the local runtime keeps no replicas", replica_id=record.replica_id)

    async def reap(self, record: ReplicaRecord) -> None:
        """Do nothing: `start` has reaped already."""

    # What the zygote says ----------------------------------------------------------------------

    def _on_exit(self, key: str, status: int) -> None:
        replica = self._by_key.get(key)
        if replica is None:
            return
        if replica.pid == 0:  # the answer to its spawn was not looked at yet
            self._early_exits[key] = status
        else:
            replica.ended(status)

    def _on_supervisor_lost(self, supervisor: Supervisor) -> None:
        if self._running is not None and self._running.supervisor is supervisor:
            _log.error("the supervisor of replicas is gone; its replicas die with it")
            for replica in list(self._by_key.values()):
                if replica.pid:
                    replica.supervisor_lost()

    async def _ensure_supervisor(self) -> Supervisor:
        """Return the zygote, a new one when the old one died."""
        running = self._require()
        if not running.supervisor.lost.done():
            return running.supervisor
        async with self._state_lock:
            running = self._require()
            if running.supervisor.lost.done():
                await running.supervisor.close()
                running.supervisor = await self._new_supervisor(running.idmap, running.isolation)
            return running.supervisor

    def _require(self) -> _Running:
        if self._running is None:
            raise RuntimeNotRunning("the local runtime is not started")
        return self._running


def _processes(replica: LocalReplica) -> set[int] | None:
    """Return the processes of a replica, None when it is dead."""
    if replica.exit_info is not None:
        return None
    if not replica.disk_devices:
        replica.disk_devices = devices_of(f"/proc/{replica.pid}/root", str(replica.folder))
    return replica.group.pids() or processes_of(replica.pid)
