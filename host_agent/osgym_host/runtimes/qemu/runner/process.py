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
from dataclasses import dataclass
from pathlib import Path

from osgym_host.runtimes.base import RuntimeFault
from osgym_host.runtimes.cgroups import CgroupGroup, CgroupTree
from osgym_host.runtimes.processes import ProcessIdentity, switch_huge_pages_off
from osgym_host.runtimes.qemu.launcher import (
    Found,
    Launcher,
    LauncherHealth,
    LaunchFailed,
    LaunchRequest,
    ProcessEnd,
    Runner,
    VmProcess,
)
from osgym_host.runtimes.qemu.runner.output import ENVIRONMENT, bounded_output, printed
from osgym_host.runtimes.qemu.runner.users import (
    UserPool,
    closed_above,
    demoted,
    give_folder,
    limited,
    open_way,
    user_of,
)

_HIGH_FD = 64
"""Descriptors on their way are kept above those that a process gets."""
_KVM = Path("/dev/kvm")
_NO_SETPRIV = "Virtual machines run as root: install the package util-linux (setpriv)."
_NO_PRLIMIT = "What a virtual machine writes is not bounded: install the package util-linux (prlimit)."


@dataclass(frozen=True, slots=True)
class Started:
    """A process that runs; `output` is the memory file that it prints to, None when it was adopted."""

    identity: ProcessIdentity
    pidfd: int
    group: CgroupGroup | None
    output: int | None


class BareProcess(VmProcess):
    """A QEMU process that is our child, or was a former host agent's."""

    def __init__(self, name: str, started: Started, *, child: bool, removed: Callable[[str], None]) -> None:
        """Take over a running process with its descriptors; `removed` is told when nothing is left."""
        self._name = name
        self._identity = started.identity
        self._pidfd = started.pidfd
        self._group = started.group
        self._output = started.output
        self._child = child
        self._removed = removed
        self._text = ""
        self._end: ProcessEnd | None = None
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_end)

    @property
    def name(self) -> str:
        """As in the request."""
        return self._name

    @property
    def identity(self) -> ProcessIdentity:
        """The process for sure."""
        return self._identity

    @property
    def group(self) -> CgroupGroup | None:
        """Its control groups."""
        return self._group

    @property
    def end(self) -> ProcessEnd | None:
        """How it ended, None while it lives."""
        return self._end

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        code: int | None = None
        number: int | None = None
        if self._child:
            with contextlib.suppress(ChildProcessError):
                _, status = os.waitpid(self._identity.pid, os.WNOHANG)
                status = os.waitstatus_to_exitcode(status)
                code, number = (status, None) if status >= 0 else (None, -status)
        oom = self._group is not None and self._group.oom_kills() > 0
        self._text = self.output_tail()
        if self._output is not None:
            os.close(self._output)
            self._output = None
        self._end = ProcessEnd(code, number, oom, self._text)
        self._ended.set()

    async def wait(self) -> ProcessEnd:
        """Wait for its end."""
        await self._ended.wait()
        assert self._end is not None
        return self._end

    async def kill(self, *, timeout_s: float = 10.0) -> None:
        """Kill it and wait until it is gone."""
        if self._end is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        try:
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        except TimeoutError as exc:
            raise RuntimeFault(f"process {self.pid} of {self._name} does not end") from exc

    async def remove(self, *, timeout_s: float = 10.0) -> None:
        """Kill it and remove its control groups."""
        await self.kill(timeout_s=timeout_s)
        if self._group is not None:
            try:
                await asyncio.to_thread(self._group.remove, timeout_s)
            except OSError as exc:
                raise RuntimeFault(f"the control group of {self._name} is busy: {exc}") from exc
        self._removed(self._name)

    def output_tail(self, max_bytes: int = 4096) -> str:
        """The last that QEMU itself printed."""
        if self._output is None:
            return self._text[-max_bytes:]
        return printed(self._output, max_bytes)


class ProcessLauncher(Launcher):
    """Starts bare processes.

    Args:
        instance_folder: `run/<instance>`; machines' folders are below it.
        tree: The instance's control groups, None for no caps.
        unprivileged: Run each machine as a user of its own; only root can.
        kvm: Machines use /dev/kvm.
    """

    def __init__(
        self,
        instance_folder: Path,
        *,
        tree: CgroupTree | None = None,
        unprivileged: bool = True,
        kvm: bool = False,
    ) -> None:
        """Nothing is touched before `prepare`."""
        self._folder = instance_folder
        self._tree = tree
        self._kvm = kvm
        self._users = UserPool(str(instance_folder)) if unprivileged and os.geteuid() == 0 else None
        self._setpriv = ""
        self._prlimit = ""
        self._notes: tuple[str, ...] = ()

    @property
    def runner(self) -> Runner:
        """Bare processes."""
        return Runner.PROCESS

    @property
    def forwards(self) -> bool:
        """QEMU's forwarded port is on the host's loopback interface."""
        return False

    @property
    def caps_enforced(self) -> frozenset[str]:
        """What the control groups enforce."""
        return self._tree.enforces if self._tree is not None else frozenset()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is missing here."""
        return self._notes

    async def prepare(self) -> None:
        """Look for what is needed to give up root; have processes started without huge pages."""
        switch_huge_pages_off()
        self._prlimit = shutil.which("prlimit") or ""
        if not self._prlimit:
            self._notes = (_NO_PRLIMIT,)
        if self._users is None or self._setpriv:
            return
        setpriv = shutil.which("setpriv")
        closed = closed_above(self._folder.parent) if self._folder.parent.exists() else None
        if setpriv is None:
            self._users = None
            self._notes = (
                *self._notes,
                "Virtual machines run as root: install the package util-linux (setpriv).",
            )
        elif closed is not None:
            self._users = None
            note = f"Virtual machines run as root: other users cannot pass {closed} (chmod o+x)."
            self._notes = (*self._notes, note)
        else:
            self._setpriv = setpriv

    async def launch(self, request: LaunchRequest) -> VmProcess:
        """Start a process."""
        user = self._users.take(request.name) if self._users is not None else None
        starting = asyncio.ensure_future(asyncio.to_thread(self._start, request, user))
        try:
            started = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(LaunchFailed):
                await asyncio.to_thread(_abandon, await starting)
            self._forget(request.name)
            raise
        except LaunchFailed:
            self._forget(request.name)
            raise
        return BareProcess(request.name, started, child=True, removed=self._forget)

    def _start(self, request: LaunchRequest, user: int | None) -> Started:
        """Blocking part of `launch`."""
        argv = list(request.argv)
        program = shutil.which(argv[0])
        if program is None:
            raise LaunchFailed(f"{argv[0]} is not installed", replica_id=request.name)
        argv[0] = program
        group: CgroupGroup | None = None
        try:
            if user is not None:
                open_way(request.folder, self._folder)
                give_folder(request.folder, user, request.private)
                argv = demoted(argv, user, self._groups(), setpriv=self._setpriv)
            argv = limited(argv, request.max_file_mib, prlimit=self._prlimit)
            if self._tree is not None:
                group = self._tree.make(request.name, request.caps)
            output = bounded_output()
            try:
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
        return Started(identity, os.pidfd_open(pid), group, output)

    def _groups(self) -> list[int]:
        """Groups a machine needs: that of /dev/kvm where it uses it and not everybody may."""
        if not self._kvm or not _KVM.exists():
            return []
        found = _KVM.stat()
        return [] if found.st_mode & 0o006 == 0o006 else [found.st_gid]

    def _forget(self, name: str) -> None:
        if self._users is not None:
            self._users.release(name)

    def _leftovers(self) -> dict[str, CgroupGroup]:
        return dict(self._tree.leftovers()) if self._tree is not None else {}

    async def find(self) -> Sequence[Found]:
        """Return what still runs in the instance's control groups; without them nothing can be told."""
        found = []
        for name, group in (await asyncio.to_thread(self._leftovers)).items():
            for pid in sorted(group.pids()):
                found.append(Found(name, "", ProcessIdentity.of(pid)))
        return found

    async def adopt(self, name: str, identity: ProcessIdentity, keeper: str) -> VmProcess | None:
        """Take over a process of a former host agent."""
        pidfd = identity.open() if not keeper else None  # what a container keeps is not ours to run
        if pidfd is None:
            return None
        if self._users is not None:
            self._users.claim(name, user_of(identity.pid))
        group = (await asyncio.to_thread(self._leftovers)).get(name)
        return BareProcess(name, Started(identity, pidfd, group, None), child=False, removed=self._forget)

    async def reap(self, keep: Collection[str] = ()) -> int:
        """Kill what is left in the instance's control groups; the rest is for the caller's records."""
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

    async def health(self) -> LauncherHealth:
        """A bare process needs nothing but the host."""
        return LauncherHealth(True)

    async def close(self) -> None:
        """Nothing is held."""


def spawn(argv: list[str], env: Mapping[str, str], fds: Mapping[int, int]) -> int:
    """Start a process with exactly these descriptors besides an empty standard input; return its PID.

    Without a copy of our address space, whatever its size (vfork).

    Raises:
        OSError: It could not be started.
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
    """Descriptors that a child would get: none of our making, but who started us may have left some."""
    found = []
    for entry in os.scandir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, such as that of this listing
            if os.get_inheritable(int(entry.name)):
                found.append(int(entry.name))
    return found


def _abandon(started: Started) -> None:
    """Kill and wait for a process that nobody will know of. Blocking, bounded."""
    started.identity.kill()
    with contextlib.suppress(ChildProcessError):
        os.waitpid(started.identity.pid, 0)
    os.close(started.pidfd)
    if started.output is not None:
        os.close(started.output)
    if started.group is not None:
        with contextlib.suppress(OSError):
            started.group.remove()
