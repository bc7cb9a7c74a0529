"""Running of commands: bounded output, a deadline that ends the whole session, nothing inherited."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from osgym_guest.osworld.session import DesktopSession
from osgym_guest.osworld.starter import SessionProcess, SessionStarter

MAX_OUTPUT_BYTES = 4 * 1024 * 1024
MAX_RUNNING = 8
# How long output of a command that has ended may still be on its way through children of it.
LINGER_S = 1.0
KILL_SESSION_S = 0.25
"""Time for which the processes of a session are searched; the agent does nothing else meanwhile."""

Command = str | Sequence[str]


class CommandTimeoutError(Exception):
    """A command was ended at its deadline.

    Attributes:
        timeout_s: Time that it had.
    """

    def __init__(self, command: Command, timeout_s: float):
        super().__init__(f"Command {command!r} timed out after {timeout_s:g} seconds")
        self.timeout_s = timeout_s


@dataclass(frozen=True)
class CommandResult:
    """Result of a command.

    Attributes:
        output: Standard output, decoded, line ends as ``\\n``.
        error: Standard error, likewise; empty when it was merged into `output`.
        returncode: Exit status; negative number of the signal that ended it.
        truncated: One of the outputs was longer than `MAX_OUTPUT_BYTES`.
    """

    output: str
    error: str
    returncode: int
    truncated: bool


class PipeSink(asyncio.Protocol):
    """Reader of a pipe that keeps the first bytes up to a limit and drops the rest."""

    def __init__(self, limit: int):
        self._limit = limit
        self._data = bytearray()
        self.truncated = False
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        room = self._limit - len(self._data)
        if room > 0:
            self._data += data[:room]
        self.truncated = self.truncated or len(data) > max(room, 0)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that all writers are gone."""
        self.ended.set()

    def take(self) -> str:
        """Return the received text; later input is dropped."""
        self._limit = 0
        text = self._data.decode("utf-8", "replace")
        self._data = bytearray()
        return text.replace("\r\n", "\n").replace("\r", "\n")


class ChildProcess:
    """A started process, the leader of a session and process group of its own."""

    def __init__(self, popen: subprocess.Popen[bytes] | SessionProcess):
        self._popen = popen
        self.pid = popen.pid
        self._exited = asyncio.get_running_loop().create_future()
        self._pidfd = os.pidfd_open(popen.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_exit)
        self._reaping: asyncio.Future[None] | None = None

    def _on_exit(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        if isinstance(self._popen, SessionProcess):
            self._reaping = asyncio.ensure_future(self._reap(self._popen))
        else:
            self._set_exited(self._popen.wait())  # it has ended: this reaps it and cannot block

    async def _reap(self, process: SessionProcess) -> None:
        self._set_exited(await process.wait())

    def _set_exited(self, code: int) -> None:
        if not self._exited.done():
            self._exited.set_result(code)

    @property
    def returncode(self) -> int | None:
        return self._popen.returncode

    async def wait(self) -> int:
        """Wait for the exit status. The caller bounds the time."""
        return int(await asyncio.shield(self._exited))

    def kill_session(self) -> None:
        """Kill the process and all of its session: its group, and the groups of jobs that a shell made.

        A process that made a session of its own (``setsid``) continues, and so does one that forks faster
        than it is found during `KILL_SESSION_S`.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        ended: set[int] = set()
        until_s = time.monotonic() + KILL_SESSION_S
        # One that was listed but not yet ended may have forked: looked for until there is no other.
        while (left := set(_session_members(self.pid)) - ended) and (not ended or time.monotonic() < until_s):
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            ended |= left


def _session_members(session: int) -> Iterator[int]:
    """Yield the processes of a session that have not ended."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                state, _, _, found = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(found) == session and state not in "ZX":
                    yield int(folder.name)


def argv_of(command: Command, *, shell: bool) -> list[str]:
    """Return the argument vector of a command; with `shell`, item 0 is the script."""
    words = [command] if isinstance(command, str) else list(command)
    return ["/bin/sh", "-c", *words] if shell else words


async def start(
    command: Command,
    session: DesktopSession,
    *,
    shell: bool = False,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    stderr: int | None = subprocess.DEVNULL,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    isolated: bool = False,
    beside_agent: bool = False,
) -> ChildProcess:
    """Start a command apart from the agent: own session, no inherited descriptor.

    Args:
        env: Variables that override the session's environment, or for an isolated command the remaining one.
        isolated: The command belongs to a check, and finds the image's programs only.
        beside_agent: The command is a part of the harness, which nothing in the desktop may see or stop.

    When this is cancelled, the command is not started, or ended.

    Raises:
        OSError: It cannot be started (no such program, not executable, …).
        SessionUnavailable: The starter of programs in the desktop's namespaces does not work.
        ValueError: An argument has a NUL in it.
    """
    argv, folder = argv_of(command, shell=shell), cwd or session.home
    variables = {**(session.isolated_env() if isolated else session.env), **(env or {})}
    if session.starter is not None and not beside_agent:
        stdio = (stdin, stdout, stderr)
        return ChildProcess(await _start_below(session.starter, argv, variables, folder, stdio))
    return ChildProcess(_start_beside(argv, variables, folder, (stdin, stdout, stderr)))


def _start_beside(
    argv: list[str], env: Mapping[str, str], cwd: Path, stdio: tuple[int, int, int | None]
) -> subprocess.Popen[bytes]:
    """Start a command as a child of the agent; descriptors as `subprocess.Popen` takes them."""
    stdin, stdout, stderr = stdio
    return subprocess.Popen(
        argv,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env=env,
        start_new_session=True,
        close_fds=True,
    )


async def _start_below(
    starter: SessionStarter,
    argv: list[str],
    env: Mapping[str, str],
    cwd: Path,
    stdio: tuple[int, int, int | None],
) -> SessionProcess:
    """Start a command in the desktop's own namespaces; descriptors as `subprocess.Popen` takes them."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        stdin, stdout, stderr = (
            null if fd == subprocess.DEVNULL else own if fd is None else fd
            for fd, own in zip(stdio, (0, 1, 2), strict=True)
        )
        return await starter.start(argv, env, cwd, (stdin, stdout, stderr))
    finally:
        os.close(null)


async def open_sink(limit: int, *, isolated: bool = False) -> tuple[int, PipeSink]:
    """Return a pipe and the `PipeSink` that reads it; the caller closes the write end.

    An isolated one is a socket: other processes of the user can open a pipe through ``/proc/PID/fd`` and
    write into it, but not a socket.
    """
    loop = asyncio.get_running_loop()
    if isolated:
        ours, theirs = socket.socketpair()
        ours.shutdown(socket.SHUT_WR)
        _, sink = await loop.connect_read_pipe(lambda: PipeSink(limit), ours)
        return theirs.detach(), sink
    read_end, write_end = os.pipe()
    _, sink = await loop.connect_read_pipe(lambda: PipeSink(limit), os.fdopen(read_end, "rb", buffering=0))
    return write_end, sink


class CommandRunner:
    """Runs commands to their end, a bounded number at a time.

    Args:
        session: Session in which they run.
        max_running: Number of commands that run at once; further ones wait, within their deadline.
    """

    def __init__(self, session: DesktopSession, *, max_running: int = MAX_RUNNING):
        self._session = session
        self._turns = asyncio.Semaphore(max_running)

    async def run(
        self,
        command: Command,
        *,
        shell: bool = False,
        timeout_s: float = 120.0,
        merge: bool = False,
        cwd: Path | None = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        isolated: bool = False,
    ) -> CommandResult:
        """Run a command and collect its output. An isolated one runs as `start` and `open_sink` document.

        A process that the command leaves in the background continues; its later output is lost. When this is
        cancelled, the command ends with all that runs in its session.

        Raises:
            CommandTimeoutError: It took longer than `timeout_s`; all of its session is dead.
            OSError: It cannot be started.
            SessionUnavailable: The starter of programs in the desktop's namespaces does not work.
        """
        try:
            work = self._run(command, shell, merge, cwd, max_output_bytes, isolated)
            return await asyncio.wait_for(work, timeout_s)
        except asyncio.TimeoutError as exc:
            raise CommandTimeoutError(command, timeout_s) from exc

    async def _run(
        self, command: Command, shell: bool, merge: bool, cwd: Path | None, limit: int, isolated: bool
    ) -> CommandResult:
        async with self._turns:
            ends: list[int] = []
            try:
                out_end, out = await open_sink(limit, isolated=isolated)
                ends.append(out_end)
                err_end, err = (out_end, out) if merge else await open_sink(limit, isolated=isolated)
                if not merge:
                    ends.append(err_end)
                child = await start(
                    command,
                    self._session,
                    shell=shell,
                    stdout=out_end,
                    stderr=err_end,
                    cwd=cwd,
                    isolated=isolated,
                )
            finally:
                for end in ends:
                    os.close(end)
            try:
                returncode = await child.wait()
            except asyncio.CancelledError:
                child.kill_session()
                out.take()
                err.take()
                raise
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.gather(out.ended.wait(), err.ended.wait()), LINGER_S)
            truncated = out.truncated or err.truncated
            return CommandResult(out.take(), "" if merge else err.take(), returncode, truncated)
