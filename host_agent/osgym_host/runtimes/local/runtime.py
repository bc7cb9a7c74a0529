"""Local runtime: replicas as namespaces over an overlay, made by a zygote, removed without trace."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from osgym_host.images.errors import NamespaceUnavailable
from osgym_host.images.idmap import current_idmap
from osgym_host.runtimes import usage
from osgym_host.runtimes.base import (
    BranchPoint,
    Capabilities,
    GuestTampered,
    PointFailed,
    ReclaimedMemory,
    Replica,
    ReplicaCreateFailed,
    ReplicaDestroyFailed,
    ReplicaNotFound,
    ReplicaSpec,
    Runtime,
    RuntimeFault,
    RuntimeNotRunning,
    RuntimeUnsupported,
    StartReport,
    Usage,
)
from osgym_host.runtimes.egress.tools import NetworkFailed
from osgym_host.runtimes.local import attestation, network, spawn, syscalls
from osgym_host.runtimes.local.criu.kept import KeptDumps
from osgym_host.runtimes.local.criu.points import LocalPoints
from osgym_host.runtimes.local.egress_provider import EgressProvider, ReplicaEgress
from osgym_host.runtimes.local.instance import InstanceDir, record_process
from osgym_host.runtimes.local.isolation import unbounded_because
from osgym_host.runtimes.local.locked_files import LockedFiles
from osgym_host.runtimes.local.ranges import ReplicaIds
from osgym_host.runtimes.local.replica import LocalReplica
from osgym_host.runtimes.local.running import REMOVE_TIMEOUT_S, Running, SupervisorCallbacks
from osgym_host.runtimes.local.supervisor import RequestFailed, Supervisor, measure_disk
from osgym_host.runtimes.replica_cgroup import Caps
from osgym_host.runtimes.replica_table import ReplicaTable, check_name
from osgym_host.runtimes.swap import reclaim
from osgym_host.runtimes.web.client import ProxyFailed, ReplicaProxy

_log = logging.getLogger(__name__)

_SPAWN_TIMEOUT_S = 30.0
_DEATH_TIMEOUT_S = 30.0
_STEPS_OF_MAPPED_IMAGE = frozenset({"id-mapped image", "overlay"})
"""Steps that fail on kernels and file systems without id-mapped lower layers."""


class LocalRuntime(Runtime):
    """Replicas of one instance of the host agent, below `<data_dir>/run/<instance>`.

    `base.Runtime` documents what each method promises and raises.
    """

    def __init__(
        self,
        data_dir: Path,
        instance: str = "default",
        links: network.ReplicaNetwork | None = None,
        proxy: ReplicaProxy | None = None,
        *,
        templates: bool = False,
        branching: bool = False,
        kept: Path | None = None,
    ) -> None:
        """Without `links` and `proxy`, replicas have no egress. Nothing is touched before `start`.

        Args:
            templates: Look for CRIU, so that branch points can be taken of replicas after a set-up.
            branching: Also take them of replicas that somebody has used; needs `templates`.
            kept: Folder of kept branch points; None: one below `data_dir`.

        Raises:
            ValueError: `instance` is not a plain name.
        """
        check_name("instance", instance)
        self._instance = InstanceDir(data_dir / "run" / instance)
        self._egress = EgressProvider(links, proxy)
        self._running: Running | None = None
        self._state_lock = asyncio.Lock()
        self._replicas = ReplicaTable(self.name, LocalReplica, self._destroy)
        self._by_key: dict[str, LocalReplica] = {}
        self._early_exits: dict[str, int] = {}
        self._keys = itertools.count(1)
        self._locked_files = LockedFiles()
        self._branching = branching
        self._points = LocalPoints(
            self._instance.path / "points",
            KeptDumps(kept or data_dir / "checkpoints-local"),
            wanted=templates,
        )

    @property
    def name(self) -> str:
        return "local"

    def capabilities(self) -> Capabilities:
        tree = self._require().tree
        return Capabilities(
            runtime=self.name,
            caps_memory="memory" in tree.enforces,
            caps_cpu="cpu" in tree.enforces,
            caps_pids="pids" in tree.enforces,
            egress=self._egress.egress,
            branching=self._branching and not self._points.lacking,
            notes=(
                *tree.notes,
                *filter(None, [self.ids_shared_because, unbounded_because()]),
                *self._egress.notes,
            ),
        )

    @property
    def ids_shared_because(self) -> str:
        """Reason why replicas share one range of ids; empty while each has its own.

        What the kernel and the image's file system can do shows with the first replica.

        Raises:
            RuntimeNotRunning: Before `start` or after `stop`.
        """
        return self._require().isolation.shared_because

    @property
    def devices_shared(self) -> bool:
        """Whether some replica had to take the host's device nodes."""
        return self._require().isolation.devices_shared

    @property
    def supervisor_pid(self) -> int:
        """PID of the zygote."""
        return self._require().supervisor.pid

    # Start and stop --------------------------------------------------------------------------

    async def start(self) -> StartReport:
        async with self._state_lock:
            if self._running is not None:
                return StartReport()
            self._replicas.open()
            if not syscalls.supported_machine():
                raise RuntimeUnsupported(f"the local runtime does not support {syscalls.MACHINE} processors")
            try:
                idmap = current_idmap()
            except NamespaceUnavailable as exc:
                raise RuntimeUnsupported(str(exc)) from exc
            self._instance.acquire()
            try:
                kept = await asyncio.to_thread(self._points.open)
                callbacks = SupervisorCallbacks(self._on_exit, self._on_supervisor_lost)
                self._running, report = await Running.open(self._instance, idmap, self._egress, callbacks)
            except BaseException:
                self._instance.release()
                raise
            return replace(report, points=kept)

    async def stop(self) -> None:
        errors = await self._replicas.close()
        async with self._state_lock:
            running, self._running = self._running, None
            if running is not None:
                await self._points.close()
                await asyncio.to_thread(self._locked_files.close)
                errors += await running.close()
        if errors:
            raise errors[0]

    # Replicas --------------------------------------------------------------------------------

    async def create(self, spec: ReplicaSpec) -> Replica:
        running = self._require()
        spawn.check_spec(spec, running.idmap, self._egress.egress, origins=not self._points.lacking)
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
            caps = Caps(ram_mib=spec.ram_mib, cpus=spec.cpus, pids=spec.pids)
            # A replica that may be dumped has no separate session, and CRIU restores all into one group.
            session = caps.for_session() if self._points.lacking else None
            group = running.tree.make(spec.replica_id, caps, session)
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
        except (NetworkFailed, ProxyFailed) as exc:
            raise ReplicaCreateFailed(str(exc), step="network", replica_id=spec.replica_id) from exc
        except OSError as exc:
            raise ReplicaCreateFailed(str(exc), step="prepare", replica_id=spec.replica_id) from exc
        finally:
            if replica is None:
                running.isolation.release(ids)
        return replica

    async def _spawn(self, running: Running, supervisor: Supervisor, replica: LocalReplica) -> None:
        folder = replica.folder
        with contextlib.closing(await self._egress.reserve(folder.name, replica.spec.egress)) as egress:
            fields = spawn.request(
                replica,
                "pids" in running.tree.enforces,
                egress.name_server,
                egress.proxy_setup,
                can_be_dumped=not self._points.lacking,
            )
            replica.one_pid_namespace = spawn.ONE_PID_NAMESPACE in fields["environment"]
            # Nobody but us can pass through `replicas`; the replica's root must pass through its folder.
            folder.mkdir()
            folder.chmod(0o711)
            if replica.spec.origin is not None:
                fields["restore"] = await self._points.prepare(replica)
            with spawn.console(folder) as console:
                answer, fds = await supervisor.request(
                    "spawn", fields, [console, *egress.fds], timeout_s=_SPAWN_TIMEOUT_S
                )
            await self._spawned(running, replica, answer, fds, egress)

    async def _spawned(
        self,
        running: Running,
        replica: LocalReplica,
        answer: dict[str, Any],
        fds: list[int],
        egress: ReplicaEgress,
    ) -> None:
        """Record the started process and open its egress; closes the descriptors."""
        try:
            replica.listening = answer["listening"]
            replica.runs(answer["pid"], fds[0])
            running.isolation.devices_shared |= not answer["own_devices"]
            record_process(replica.folder / "replica.json", replica.pid)
            early = self._early_exits.pop(replica.key, None)
            if early is not None:
                replica.ended(early)
            await self._egress.connect(egress, fds[1:])
        finally:
            for fd in fds[1:]:
                os.close(fd)

    async def destroy(self, replica: Replica) -> None:
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
                    f"the replica's first process {replica.pid} does not end after SIGKILL",
                    replica_id=replica.replica_id,
                ) from exc
        self._by_key.pop(replica.key, None)
        await self._clean_up(replica)

    async def _clean_up(self, replica: LocalReplica) -> None:
        """Remove files and control groups of a replica without processes."""
        try:
            supervisor = await self._ensure_supervisor()
            if replica.pid == 0:  # its start failed or was not answered in time
                await supervisor.request("kill", {"key": replica.key}, timeout_s=_DEATH_TIMEOUT_S)
            if replica.spec.origin is not None:
                await asyncio.to_thread(replica.group.kill)  # whom a killed CRIU left; they may write still
            await supervisor.request(
                "remove",
                {"names": [replica.folder.name]},
                [self._require().replicas_fd],
                timeout_s=REMOVE_TIMEOUT_S,
            )
            await asyncio.to_thread(replica.group.remove)
            await self._egress.close(replica.folder.name)
        except (OSError, RuntimeFault) as exc:
            raise ReplicaDestroyFailed(
                f"not everything of {replica.replica_id} could be removed: {exc}",
                replica_id=replica.replica_id,
            ) from exc
        replica.close()
        self._require().isolation.release(replica.ids)

    async def usage(self, replica: Replica, *, deep: bool = True) -> Usage:
        found = self._replicas.require(replica)
        running = self._require()
        pids = await asyncio.to_thread(found.processes)
        overlay_mib, held = (
            await measure_disk(running.supervisor, running.replicas_fd, found, pids) if deep else (None, None)
        )
        return await asyncio.to_thread(
            usage.measure, found.group, pids, deep=deep, overlay_mib=overlay_mib, held=held
        )

    def used_cpu_s(self, replica: Replica) -> float | None:
        return self._replicas.require(replica).group.cpu_s()

    def set_cpu_weight(self, replica: Replica, weight: int) -> None:
        self._replicas.require(replica).group.set_cpu_weight(weight)

    def can_pause(self, replica: Replica) -> bool:
        return self._replicas.require(replica).group.can_freeze

    async def pause(self, replica: Replica) -> None:
        await self._points.settled(self._replicas.require(replica))
        self._replicas.require(replica).group.set_frozen(True)

    async def unpause(self, replica: Replica) -> None:
        self._replicas.require(replica).group.set_frozen(False)

    async def reclaim(self, replica: Replica) -> ReclaimedMemory | None:
        found = self._replicas.require(replica)
        return await asyncio.to_thread(self._reclaim, found)

    def _reclaim(self, replica: LocalReplica) -> ReclaimedMemory | None:
        rootfs = spawn.rootfs_image(replica.spec).rootfs
        lock = self._locked_files.lock_mapped
        return reclaim(
            replica.group, before_shared=lambda: lock(replica.replica_id, replica.group.pids(), rootfs)
        )

    async def witness(self, replica: Replica) -> None:
        found = self._replicas.require(replica)
        await attestation.witness(self._require().supervisor, found, found.processes)

    async def attest(self, replica: Replica, sockets: Sequence[int]) -> bool:
        found = self._replicas.require(replica)
        return await attestation.attest(self._require().supervisor, found, found.processes, sockets)

    # Branch points -----------------------------------------------------------------------------

    def why_no_branching(self) -> RuntimeUnsupported | None:
        lacking = self._points.lacking if self._branching else "the setting branching is off"
        if not lacking:
            return None
        return RuntimeUnsupported(
            f"Episodes on this host cannot be forked, saved or suspended: {lacking}.",
            remedy="Set `branching: on` on a host with criu (see `osgym doctor`), or use `runtime: qemu`.",
        )

    def why_no_templates(self) -> str | None:
        return self._points.lacking or None

    def why_no_warm_clones(self) -> str | None:
        return self.why_no_templates()

    async def branch(self, replica: Replica, *, keep: bool = False) -> BranchPoint:
        """Dump the replica by CRIU. Its agent must be unchanged and nobody connected to it."""
        found = self._replicas.require(replica)
        running = self._require()
        if self._points.lacking:
            return await super().branch(replica, keep=keep)
        if found.exit_info is not None:
            raise ReplicaNotFound(f"{found.replica_id} is dead", replica_id=found.replica_id)
        try:
            await attestation.attest(running.supervisor, found, found.processes, [])
        except GuestTampered as exc:
            raise PointFailed(f"the guest agent was changed: {exc}", replica_id=found.replica_id) from exc
        return await self._points.take(found, found.processes, keep=keep)

    async def find_points(self) -> Sequence[BranchPoint]:
        return await asyncio.to_thread(self._points.find)

    async def release_point(self, point: BranchPoint) -> None:
        await self._points.release(point)

    def replicas(self) -> Sequence[Replica]:
        return self._replicas.all()

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
            _log.error("the supervisor of replicas ended, and its replicas with it")
            for replica in list(self._by_key.values()):
                if replica.pid:
                    replica.supervisor_lost()

    async def _ensure_supervisor(self) -> Supervisor:
        """Return the zygote; start a new one when the old one has ended."""
        running = self._require()
        if not running.supervisor.lost.done():
            return running.supervisor
        async with self._state_lock:
            running = self._require()
            return await running.renew_supervisor()

    def _require(self) -> Running:
        if self._running is None:
            raise RuntimeNotRunning("the local runtime is not started")
        return self._running
