"""QEMU as a bare process: of an unprivileged user where the host agent is root, in a control group.

It is a child of the host agent without a parent-death signal (which would follow the spawning *thread*),
in a session of its own, so that it outlives the host agent and can be adopted by the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from osgym_host.runtimes.base import RuntimeFault
from osgym_host.runtimes.cgroups import CgroupTree
from osgym_host.runtimes.processes import ProcessIdentity, switch_huge_pages_off
from osgym_host.runtimes.replica_cgroup import CgroupGroup, MemoryEnd
from osgym_qemu.machine.launcher import (
    FoundProcess,
    Launcher,
    LaunchFailed,
    LaunchRequest,
    ProcessEnd,
    RunnerKind,
    VmProcess,
)
from osgym_qemu.runner.held_process import HeldProcess, RunningProcess
from osgym_qemu.runner.output import ENVIRONMENT, bounded_output
from osgym_qemu.runner.users import (
    UserPool,
    as_user,
    chown_folder,
    make_traversable,
    untraversable_parent,
    user_of,
    with_limits,
)

_HIGH_FD = 64
"""Number above those of a process's descriptors, for descriptors that are being moved."""
_KVM = Path("/dev/kvm")
_NO_SETPRIV = "Virtual machines run as root: install the package util-linux (setpriv)."
_NO_PRLIMIT = "The disk space of virtual machines is not bounded: install the package util-linux (prlimit)."


class BareProcess(HeldProcess):
    """QEMU process that is a child of this host agent or of a previous one."""

    def __init__(
        self, name: str, running: RunningProcess, removed: Callable[[str], None], *, child: bool
    ) -> None:
        self._child = child
        super().__init__(name, running, removed)

    def _read_end(self, memory: MemoryEnd) -> None:
        code: int | None = None
        number: int | None = None
        if self._child:
            with contextlib.suppress(ChildProcessError):
                _, status = os.waitpid(self.pid, os.WNOHANG)
                status = os.waitstatus_to_exitcode(status)
                code, number = (status, None) if status >= 0 else (None, -status)
        self._finish(ProcessEnd(code, number, memory))

    async def remove(self, *, timeout_s: float = 10.0) -> None:
        await self.kill(timeout_s=timeout_s)
        if self.group is not None:
            try:
                await asyncio.to_thread(self.group.remove, timeout_s)
            except OSError as exc:
                raise RuntimeFault(f"the control group of {self._name} is busy: {exc}") from exc
        self._removed(self._name)


class ProcessLauncher(Launcher):
    """Launcher of bare processes.

    Args:
        instance_folder: `run/<instance>`; machines' folders are below it.
        tree: Control groups of the instance, None for no caps.
        unprivileged: True to run each machine as a user of its own; only root can.
        kvm: True if machines use /dev/kvm.
    """

    def __init__(
        self,
        instance_folder: Path,
        *,
        tree: CgroupTree | None = None,
        unprivileged: bool = True,
        kvm: bool = False,
    ) -> None:
        self._folder = instance_folder
        self._tree = tree
        self._kvm = kvm
        self._users = UserPool(str(instance_folder)) if unprivileged and os.geteuid() == 0 else None
        self._setpriv = ""
        self._prlimit = ""
        self._notes: tuple[str, ...] = ()

    @property
    def runner(self) -> RunnerKind:
        return RunnerKind.PROCESS

    @property
    def caps_enforced(self) -> frozenset[str]:
        return self._tree.enforces if self._tree is not None else frozenset()

    @property
    def notes(self) -> tuple[str, ...]:
        return self._notes

    async def prepare(self) -> None:
        """Check the tools that drop root, and switch huge pages off for processes."""
        switch_huge_pages_off()
        self._prlimit = shutil.which("prlimit") or ""
        if not self._prlimit:
            self._notes = (_NO_PRLIMIT,)
        if self._users is None or self._setpriv:
            return
        setpriv = shutil.which("setpriv")
        closed = untraversable_parent(self._folder.parent) if self._folder.parent.exists() else None
        if setpriv is None:
            self._users = None
            self._notes = (*self._notes, _NO_SETPRIV)
        elif closed is not None:
            self._users = None
            note = f"Virtual machines run as root: other users cannot enter {closed} (chmod o+x)."
            self._notes = (*self._notes, note)
        else:
            self._setpriv = setpriv

    async def launch(self, request: LaunchRequest) -> VmProcess:
        user = self._users.take(request.name) if self._users is not None else None
        starting = asyncio.ensure_future(asyncio.to_thread(self._start, request, user))
        try:
            started = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(LaunchFailed):
                await asyncio.to_thread(_discard, await starting)
            self._forget(request.name)
            raise
        except LaunchFailed:
            self._forget(request.name)
            raise
        return BareProcess(request.name, started, self._forget, child=True)

    def _start(self, request: LaunchRequest, user: int | None) -> RunningProcess:
        argv = list(request.argv)
        program = shutil.which(argv[0])
        if program is None:
            raise LaunchFailed(f"{argv[0]} is not installed", replica_id=request.name)
        argv[0] = program
        group: CgroupGroup | None = None
        try:
            if user is not None:
                make_traversable(request.folder, self._folder)
                chown_folder(request.folder, user, request.private)
                argv = as_user(argv, user, self._groups(), setpriv=self._setpriv)
            argv = with_limits(argv, request.max_file_mib, prlimit=self._prlimit)
            if self._tree is not None:
                group = self._tree.make(request.name, request.caps)
            output = bounded_output()
            try:
                inside: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
                if request.namespace is not None:
                    argv, inside = request.namespace.around(argv), request.namespace.entered()
                with inside:
                    pid = spawn(argv, {**ENVIRONMENT, **request.env}, {1: output, 2: output, **request.fds})
            except OSError:
                os.close(output)
                raise
        except (OSError, ValueError) as exc:
            if group is not None:
                with contextlib.suppress(OSError):
                    group.remove()
            raise LaunchFailed(f"QEMU could not be started: {exc}", replica_id=request.name) from exc
        # It is our child and not waited for, so the PID is its own whatever becomes of it.
        identity = ProcessIdentity.of(pid)
        assert identity is not None
        if group is not None:
            for file in group.procs_files:
                with contextlib.suppress(ProcessLookupError):
                    Path(file).write_text(str(pid))
        return RunningProcess(identity, os.pidfd_open(pid), group, output)

    def _groups(self) -> list[int]:
        """Return the groups of a machine: that of /dev/kvm where it needs it."""
        if not self._kvm or not _KVM.exists():
            return []
        found = _KVM.stat()
        return [] if found.st_mode & 0o006 == 0o006 else [found.st_gid]

    def _forget(self, name: str) -> None:
        if self._users is not None:
            self._users.release(name)

    def _leftovers(self) -> dict[str, CgroupGroup]:
        return dict(self._tree.leftovers()) if self._tree is not None else {}

    async def find(self) -> Sequence[FoundProcess]:
        """Return processes in the instance's control groups; without groups none can be found."""
        found = []
        for name, group in (await asyncio.to_thread(self._leftovers)).items():
            for pid in sorted(group.pids()):
                found.append(FoundProcess(name, "", ProcessIdentity.of(pid)))
        return found

    async def adopt(self, name: str, identity: ProcessIdentity, keeper: str) -> VmProcess | None:
        pidfd = identity.open() if not keeper else None  # what a container keeps is not ours to run
        if pidfd is None:
            return None
        if self._users is not None:
            self._users.claim(name, user_of(identity.pid))
        group = (await asyncio.to_thread(self._leftovers)).get(name)
        return BareProcess(name, RunningProcess(identity, pidfd, group, None), self._forget, child=False)

    async def reap(self, keep: Collection[str] = ()) -> int:
        return await asyncio.to_thread(self._reap, frozenset(keep))

    def _reap(self, keep: frozenset[str]) -> int:
        killed = 0
        for name, group in self._leftovers().items():
            if name in keep:
                continue
            killed += group.kill()
            try:
                group.remove()
            except OSError as exc:
                raise RuntimeFault(f"the control group of {name} is busy: {exc}") from exc
        return killed

    async def close(self) -> None:
        """Do nothing: no resource is held."""


def spawn(argv: list[str], env: Mapping[str, str], fds: Mapping[int, int]) -> int:
    """Start a process with exactly these descriptors besides an empty standard input; return its PID.

    The address space is not copied, whatever its size (vfork).
    """
    # Sources are moved out of the way first, so that no target overwrites one that is still needed.
    moved = {number: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD) for number, fd in fds.items()}
    try:
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        ]
        actions += [(os.POSIX_SPAWN_CLOSE, fd) for fd in inheritable() if fd > 2 and fd not in fds]
        actions += [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in moved.items()]
        return os.posix_spawn(
            argv[0],
            argv,
            dict(env),
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGINT],  # SIGXFSZ stays ignored: a full disk is an I/O error
        )
    finally:
        for fd in moved.values():
            os.close(fd)


def inheritable() -> list[int]:
    """Return descriptors that a child would inherit. Only the starter of this process may have left any."""
    found = []
    for entry in os.scandir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, such as that of this listing
            if os.get_inheritable(int(entry.name)):
                found.append(int(entry.name))
    return found


def _discard(started: RunningProcess) -> None:
    """Kill and reap a process that was not handed to anybody. Blocking, bounded."""
    started.identity.kill()
    with contextlib.suppress(ChildProcessError):
        os.waitpid(started.identity.pid, 0)
    os.close(started.pidfd)
    if started.output is not None:
        os.close(started.output)
    if started.group is not None:
        with contextlib.suppress(OSError):
            started.group.remove()
