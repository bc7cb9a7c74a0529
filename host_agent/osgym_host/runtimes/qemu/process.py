"""One QEMU process: started behind a gate, watched and killed by its pidfd.

It is started by `posix_spawn`, so it costs the same however large the host agent is, does not depend
on the thread that started it, and outlives the host agent. A shell of three words waits as the gate:
until the process is written down, is in its control group and has its limits, it is not a QEMU yet;
if the host agent dies before, the gate ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from osgym_host.errors import OsgymHostError
from osgym_host.runtimes.processes import ProcessIdentity

STDERR_BYTES = 65536
"""How much a process may say on stdout and stderr together; what comes later is refused."""

_GATE = 'read -r _ && exec "$@" </dev/null'
_HIGH_FD = 64
"""Descriptors are moved above this before they are put in their places below it."""
_OOM_SCORE = 500
"""When the host runs out of memory, a virtual machine goes before the host agent does."""
_NOFILE = 4096
_PR_SET_THP_DISABLE = 41
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "LC_ALL": "C",
    "MALLOC_ARENA_MAX": "1",
}
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class SpawnFailed(OsgymHostError):
    """The process could not be started; nothing of it is left."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended; both are None when it was not our child, so that nobody told us."""

    code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        """Return one line for people."""
        if self.signal is not None:
            return f"killed by {signal.Signals(self.signal).name}"
        return "ended" if self.code is None else f"ended with exit code {self.code}"


class Process:
    """A live process, ours or adopted. Must be closed; closing does not kill."""

    def __init__(self, identity: ProcessIdentity, pidfd: int, stderr_fd: int, *, child: bool) -> None:
        """Use `spawn` or `Process.adopt`. Takes the descriptors over (`stderr_fd` may be -1)."""
        self.identity = identity
        self._pidfd = pidfd
        self._stderr_fd = stderr_fd
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._dead: asyncio.Future[Exit] = self._loop.create_future()
        self._loop.add_reader(pidfd, self._ended)

    @classmethod
    def adopt(cls, identity: ProcessIdentity) -> Process | None:
        """Watch a process that somebody else started; None when it is gone."""
        pidfd = identity.open()
        if pidfd is None:
            return None
        stderr_fd = -1
        with contextlib.suppress(OSError):
            if str(Path(f"/proc/{identity.pid}/fd/2").readlink()).startswith("/memfd:"):
                stderr_fd = os.open(f"/proc/{identity.pid}/fd/2", os.O_RDONLY | os.O_CLOEXEC)
        return cls(identity, pidfd, stderr_fd, child=False)

    @property
    def pid(self) -> int:
        """Its PID on this host."""
        return self.identity.pid

    @property
    def exit(self) -> Exit | None:
        """How it ended, None while it lives."""
        return self._dead.result() if self._dead.done() else None

    async def wait(self) -> Exit:
        """Wait for its end, without a deadline. Any number of tasks may wait."""
        return await asyncio.shield(self._dead)

    def kill(self) -> None:
        """Kill it. No effect when it is dead.

        Raises:
            PermissionError: It is another user's.
        """
        if self._pidfd >= 0 and not self._dead.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def said(self, max_bytes: int = 4096) -> str:
        """Return the last bytes of what it said on stderr, undecodable ones replaced.

        QEMU writes it, but may quote the guest: show it, never interpret it.
        """
        if self._stderr_fd < 0:
            return ""
        text = os.pread(self._stderr_fd, STDERR_BYTES, 0).rstrip(b"\0")
        return text[-max_bytes:].decode("utf-8", "replace")

    def close(self) -> None:
        """Let go of its descriptors. Idempotent; a live child is reaped by the system after us."""
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if self._stderr_fd >= 0:
            os.close(self._stderr_fd)
            self._stderr_fd = -1

    def _ended(self) -> None:
        self._loop.remove_reader(self._pidfd)
        found = Exit()
        if self._child:
            # Somebody else in this process may have waited for all children; then nobody knows.
            with contextlib.suppress(ChildProcessError):
                result = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
                if result is not None and result.si_code == os.CLD_EXITED:
                    found = Exit(code=result.si_status)
                elif result is not None:
                    found = Exit(signal=result.si_status)
        if not self._dead.done():
            self._dead.set_result(found)


def spawn(
    argv: Sequence[str],
    *,
    fds: Mapping[int, int],
    groups: Sequence[str] = (),
    started: Callable[[ProcessIdentity], None] | None = None,
) -> Process:
    """Start a process in a session of its own, with nothing open but what is named here.

    Args:
        fds: Number in the process (3…63) to our descriptor, which stays ours.
        groups: `cgroup.procs` files of the control groups it belongs in.
        started: Called with its identity before the gate opens; raising refuses the start.

    Raises:
        SpawnFailed: It could not be started or placed; nothing of it is left.
    """
    _without_huge_pages()
    stderr_fd = os.memfd_create("osgym-stderr", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(stderr_fd, STDERR_BYTES)
    fcntl.fcntl(stderr_fd, fcntl.F_ADD_SEALS, _SEALS)
    gate_in, gate_out = os.pipe2(os.O_CLOEXEC)
    process: Process | None = None
    try:
        pid = _posix_spawn(argv, {**fds, 0: gate_in, 1: stderr_fd, 2: stderr_fd})
        identity = ProcessIdentity.of(pid)
        assert identity is not None  # our child is there until it is waited for
        process = Process(identity, os.pidfd_open(pid), stderr_fd, child=True)
        _place(pid, groups)
        if started is not None:
            started(identity)
        os.write(gate_out, b"\n")
        return process
    except BaseException as exc:
        if process is None:
            os.close(stderr_fd)
        else:
            process.kill()
            os.waitid(os.P_PIDFD, process._pidfd, os.WEXITED)
            process.close()
        if isinstance(exc, OSError):
            raise SpawnFailed(f"{argv[0]} cannot be started: {exc}") from exc
        raise
    finally:
        os.close(gate_in)
        os.close(gate_out)


def _posix_spawn(argv: Sequence[str], places: Mapping[int, int]) -> int:
    moved = {place: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD) for place, fd in places.items()}
    try:
        return os.posix_spawn(
            "/bin/sh",
            ["sh", "-c", _GATE, "sh", *argv],
            _ENVIRONMENT,
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, place) for place, fd in moved.items()],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP, signal.SIGTERM),
        )
    finally:
        for fd in moved.values():
            os.close(fd)


def _place(pid: int, groups: Sequence[str]) -> None:
    """Put a waiting gate where its QEMU belongs; everything is inherited over `execve`."""
    for procs in groups:
        Path(procs).write_text(str(pid))
    resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (_NOFILE, _NOFILE))
    with contextlib.suppress(PermissionError):  # below a stricter value that somebody else chose
        Path(f"/proc/{pid}/oom_score_adj").write_text(str(_OOM_SCORE))


def _without_huge_pages() -> None:
    """Switch transparent huge pages off for this process and what it starts from now on.

    QEMU asks for them for its code cache, which would make 2 MB of each small piece that is used
    (measured: 20 MB more for an idle clone). The host agent itself has no use for them.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)


__all__ = ["STDERR_BYTES", "Exit", "Process", "SpawnFailed", "spawn"]
