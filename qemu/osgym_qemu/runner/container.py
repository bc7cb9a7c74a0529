"""QEMU in a container of its own, started through the Docker SDK.

The container has no network, no capability, a read-only root and sees the machine's folder and the files
it reads, nothing else. It starts the entry (`entry.py`), which takes the golden RAM, the QMP socket and
the other descriptors over a unix socket in the machine's folder and becomes QEMU: descriptors, unlike
paths, work across the border, so QMP and the guest port are the host's own sockets as for a bare process.

The daemon is asked in a few threads of our own, each call with a deadline. Containers are not our
children: they outlive the host agent, and are found again by their labels.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from osgym_host.addresses import listen_at
from osgym_host.runtimes.base import RuntimeFault, RuntimeUnsupported
from osgym_host.runtimes.cgroups import CgroupTree, group_of, instance_group_name
from osgym_host.runtimes.processes import ProcessIdentity
from osgym_host.runtimes.replica_cgroup import MemoryEnd
from osgym_qemu.machine.launcher import (
    FoundProcess,
    Launcher,
    LaunchFailed,
    LaunchRequest,
    ProcessEnd,
    RunnerKind,
    VmProcess,
)
from osgym_qemu.runner import container_spec as spec
from osgym_qemu.runner import handover
from osgym_qemu.runner.daemon import DockerDaemon, DockerFailed, translated
from osgym_qemu.runner.held_process import HeldProcess, RunningProcess
from osgym_qemu.runner.output import ENVIRONMENT, bounded_output
from osgym_qemu.runner.process import ProcessLauncher
from osgym_qemu.runner.runner_image import find_runner_image
from osgym_qemu.runner.users import UserPool, chown_folder, user_of

START_TIMEOUT_S = 60.0
"""Deadline from the daemon's start of a container to its entry's call; 0.3 s on an idle host."""

_STATUS_TIMEOUT_S = 10.0
_POLL_S = 0.05
_KVM = Path("/dev/kvm")
log = logging.getLogger(__name__)


class ContainerProcess(HeldProcess):
    """QEMU as process 1 of a container, whose control groups the daemon makes and removes."""

    def __init__(
        self, name: str, running: RunningProcess, removed: Callable[[str], None], daemon: DockerDaemon
    ) -> None:
        self._daemon = daemon
        self._reading: asyncio.Task[None] | None = None
        super().__init__(name, running, removed)

    def _read_end(self, memory: MemoryEnd) -> None:
        self._reading = asyncio.create_task(self._read_status(memory))

    async def _read_status(self, memory: MemoryEnd) -> None:
        """Ask the daemon for the end, which it learns a moment after the kernel."""
        state: Mapping[str, Any] = {}
        with contextlib.suppress(DockerFailed, TimeoutError):
            async with asyncio.timeout(_STATUS_TIMEOUT_S):
                while True:
                    found = await self._daemon.run(self._daemon.api.inspect_container, self.keeper)
                    state = found["State"]
                    if not state.get("Running"):
                        break
                    await asyncio.sleep(_POLL_S)
        self._finish(end_of(state, "", memory))

    async def remove(self, *, timeout_s: float = 10.0) -> None:
        await self.kill(timeout_s=timeout_s)
        if self._reading is not None and not self._ended.is_set():
            await self._ended.wait()  # bounded by _STATUS_TIMEOUT_S
        await remove_container(self._daemon, self.keeper, timeout_s)
        self._removed(self._name)


def end_of(state: Mapping[str, Any], output: str, memory: MemoryEnd = MemoryEnd.NONE) -> ProcessEnd:
    """Return the end of a container from the daemon's `State`, whose codes above 128 are signals.

    Args:
        memory: What the kernel said, whatever the daemon knows. The daemon does not tell a machine's own cap
            from a host without memory, so its word alone is no evidence against the machine.
    """
    code = state.get("ExitCode")
    if not isinstance(code, int) or state.get("Running"):
        return ProcessEnd(memory=memory, output=output)
    if memory is MemoryEnd.NONE and state.get("OOMKilled"):
        memory = MemoryEnd.HOST
    if code > 128:
        return ProcessEnd(signal=code - 128, memory=memory, output=output)
    return ProcessEnd(exit_code=code, memory=memory, output=output)


async def remove_container(daemon: DockerDaemon, container_id: str, timeout_s: float) -> None:
    """Remove a container and wait until the daemon has forgotten it. Idempotent.

    Raises:
        RuntimeFault: The container still exists.
    """
    failure = "it is still being removed"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    await daemon.run(daemon.api.remove_container, container_id, force=True, v=True)
                except DockerFailed as exc:
                    if exc.gone:
                        return
                    failure = str(exc)
                await asyncio.sleep(_POLL_S)
    raise RuntimeFault(f"container {container_id[:12]} cannot be removed: {failure}")


class ContainerLauncher(Launcher):
    """Launcher of machines in containers of their own.

    Args:
        mark: Name of the instance on the daemon, unique there (`cgroups.instance_group_name`).
        daemon: Docker daemon; closed with the launcher.
        kvm: True if machines use /dev/kvm.
        qemu_version: QEMU's version of the snapshots; an image with another is refused.
    """

    def __init__(
        self,
        mark: str,
        daemon: DockerDaemon | None = None,
        *,
        kvm: bool = False,
        qemu_version: str | None = None,
    ) -> None:
        self._mark = mark
        self._daemon = daemon or DockerDaemon()
        self._kvm = kvm
        self._qemu_version = qemu_version
        self._users = UserPool(mark) if os.geteuid() == 0 else None
        self._image = ""
        self._enforced: frozenset[str] = frozenset()
        self._notes: tuple[str, ...] = ()
        self._live: set[str] = set()

    @property
    def runner(self) -> RunnerKind:
        return RunnerKind.CONTAINER

    @property
    def caps_enforced(self) -> frozenset[str]:
        return self._enforced

    @property
    def notes(self) -> tuple[str, ...]:
        return self._notes

    async def prepare(self) -> None:
        info = await self._daemon.open()
        options = " ".join(info.get("SecurityOptions") or ())
        if "rootless" in options or "userns" in options:
            raise RuntimeUnsupported(
                "the Docker daemon shifts user ids, so machines could not open their files",
                remedy="Use a daemon without --userns-remap that is not rootless, or set "
                "qemu.runner to process.",
            )
        image = await find_runner_image(self._daemon)
        if image is None:
            raise RuntimeUnsupported("there is no runner image", remedy="Build it with `osgym image runner`")
        if self._qemu_version is not None and image.qemu_version != self._qemu_version:
            raise RuntimeUnsupported(
                f"the runner image has QEMU {image.qemu_version}, but the snapshots need "
                f"{self._qemu_version}",
                remedy="Build it again with `osgym image runner --refresh`",
            )
        self._image = image.image_id
        offers = {"memory": "MemoryLimit", "cpu": "CpuCfsQuota", "pids": "PidsLimit"}
        self._enforced = frozenset(name for name, key in offers.items() if info.get(key))
        notes = [f"Containers are not capped in {name}." for name in offers if name not in self._enforced]
        if "seccomp" not in options:
            notes.append("Containers run without seccomp, which this Docker daemon does not support.")
        self._notes = tuple(notes)

    async def launch(self, request: LaunchRequest) -> VmProcess:
        """Start a container whose entry becomes QEMU."""
        if not self._image:
            raise LaunchFailed("the launcher was not prepared", replica_id=request.name)
        user = self._users.take(request.name) if self._users is not None else os.getuid()
        self._live.add(request.name)
        starting = asyncio.ensure_future(self._daemon.run(self._begin, request, user))
        try:
            begun = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(LaunchFailed, DockerFailed):
                abandoned = ContainerProcess(request.name, await starting, self._forget, self._daemon)
                await abandoned.remove()
            self._forget(request.name)
            raise
        except DockerFailed as exc:
            self._forget(request.name)
            raise LaunchFailed(f"the container could not be started: {exc}", replica_id=request.name) from exc
        except LaunchFailed:
            self._forget(request.name)
            raise
        return ContainerProcess(request.name, begun, self._forget, self._daemon)

    def _begin(self, request: LaunchRequest, user: int) -> RunningProcess:
        """Carry out the blocking part of `launch`, bounded by the daemon's and the entry's deadlines."""
        api = self._daemon.api
        body = spec.create_body(self._plan(request, user))
        name = f"{self._mark}-{request.name}"
        pidfd, output = -1, bounded_output()
        container_id = ""
        path = request.folder / handover.SOCKET_NAME
        try:
            header, text, fds = handover.encode(request, ENVIRONMENT, output)
            with listen_at(path) as listener:
                listener.settimeout(START_TIMEOUT_S)
                if self._users is not None:
                    chown_folder(request.folder, user, request.private)
                    os.chown(path, user, user)
                container_id = translated(api.create_container_from_config, body, name)["Id"]
                translated(api.start, container_id)
                channel, _ = listener.accept()
                with channel:
                    channel.settimeout(START_TIMEOUT_S)
                    identity = ProcessIdentity.of(handover.peer_pid(channel))
                    opened = identity.open() if identity is not None else None
                    if identity is None or opened is None:
                        raise LaunchFailed(
                            "the container's entry program ended at once", replica_id=request.name
                        )
                    pidfd = opened
                    handover.send(channel, header, text, fds)
                    if refusal := channel.recv(4096):
                        said = refusal.decode(errors="replace")
                        raise LaunchFailed(f"QEMU could not be started: {said}", replica_id=request.name)
        except (DockerFailed, LaunchFailed, OSError, ValueError) as exc:
            for fd in (pidfd, output):
                if fd >= 0:
                    os.close(fd)
            if container_id:
                with contextlib.suppress(DockerFailed):
                    translated(api.remove_container, container_id, force=True, v=True)
            if isinstance(exc, DockerFailed | LaunchFailed):
                raise
            raise LaunchFailed(
                f"the container's entry program did not accept the hand-over: {exc}", replica_id=request.name
            ) from exc
        finally:
            path.unlink(missing_ok=True)
        return _running(container_id, identity, pidfd, output)

    def _plan(self, request: LaunchRequest, user: int) -> spec.ContainerPlan:
        group = None
        if self._kvm and _KVM.stat().st_mode & 0o006 != 0o006:
            group = _KVM.stat().st_gid
        return spec.ContainerPlan(
            mark=self._mark,
            name=request.name,
            image=self._image,
            user=user,
            folder=request.folder,
            reads=request.reads,
            caps=request.caps,
            max_file_mib=request.max_file_mib,
            kvm=self._kvm,
            kvm_group=group,
        )

    def _forget(self, name: str) -> None:
        self._live.discard(name)
        if self._users is not None:
            self._users.release(name)

    async def find(self) -> Sequence[FoundProcess]:
        listed = await self._daemon.run(
            self._daemon.api.containers, all=True, filters=spec.label_filters(self._mark)
        )
        found = []
        for entry in listed:
            name = entry["Labels"].get(spec.LABEL_NAME, "")
            if name in self._live:
                continue
            pid = 0
            with contextlib.suppress(DockerFailed):
                state = (await self._daemon.run(self._daemon.api.inspect_container, entry["Id"]))["State"]
                pid = int(state.get("Pid") or 0)
            found.append(FoundProcess(name, entry["Id"], ProcessIdentity.of(pid) if pid > 0 else None))
        return found

    async def adopt(self, name: str, identity: ProcessIdentity, keeper: str) -> VmProcess | None:
        matching = [entry for entry in await self.find() if entry.keeper == keeper and entry.name == name]
        if not matching or matching[0].identity != identity:
            return None
        pidfd = identity.open()
        if pidfd is None:
            return None
        if self._users is not None:
            self._users.claim(name, user_of(identity.pid))
        self._live.add(name)
        return ContainerProcess(name, _running(keeper, identity, pidfd, None), self._forget, self._daemon)

    async def reap(self, keep: Collection[str] = ()) -> int:
        removed = 0
        for entry in await self.find():
            if entry.name not in keep:
                await remove_container(self._daemon, entry.keeper, 30.0)
                removed += 1
        return removed

    async def close(self) -> None:
        await self._daemon.close()


def _running(container_id: str, identity: ProcessIdentity, pidfd: int, output: int | None) -> RunningProcess:
    group = group_of(identity.pid, container_id)
    return RunningProcess(identity, pidfd, group, output, container_id)


async def clear_stale(
    now: RunnerKind, folder: Path, tree: CgroupTree, *, keep: Collection[str], containers: bool
) -> int:
    """Remove leftovers of the other launcher; the present launcher removes its own.

    Args:
        folder: `run/<instance>`.
        containers: True if the previous host agent had containers, by its records.

    Returns:
        Number of removed processes or containers.

    Raises:
        RuntimeFault: Something is left.
    """
    if now is not RunnerKind.PROCESS:
        return await ProcessLauncher(folder, tree=tree).reap(keep)
    if not containers:
        return 0
    daemon = DockerDaemon()
    launcher = ContainerLauncher(instance_group_name(folder), daemon)
    try:
        await daemon.open()
        return await launcher.reap(keep)
    except RuntimeUnsupported as exc:
        log.warning("containers of the previous host agent of %s cannot be removed: %s", folder.name, exc)
        return 0
    finally:
        await launcher.close()
