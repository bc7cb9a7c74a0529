"""Starter of programs in the desktop's own namespaces, where they cannot see or stop the guest agent.

`osgym-session` (`native/session.c`) is their parent. PIDs here are numbers of the agent's own namespace, in
which the programs have numbers as well; their own namespace has others (`session_pids`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from osgym_guest.http import HttpError
from osgym_protocol.codes import GuestErrorCode

_REQUEST = struct.Struct("=3Ii")
_ANSWER = struct.Struct("=2i")
_PEER = struct.Struct("3i")
_START, _REAP, _FORGET, _FREE_CACHES, _TRIM_DISK = 1, 2, 3, 4, 5
_NO_FOLDER, _NOT_MADE = -1, -2
_SHORT_OF = frozenset({errno.EAGAIN, errno.ENOMEM, errno.ENFILE, errno.EMFILE})
"""Errors of `execve` that are caused by the machine, not by the program."""
TIMEOUT_S = 10.0
"""Deadline that exceeds the time for which `osgym-session` waits for a program to begin."""
MAINTENANCE_S = 300.0
"""Deadline of a preparation for freezing, which emulation and a busy disk make slow."""
REAP_S = 1.0
"""Time for which a tracer, such as strace, may withhold a process that has ended."""
_REAP_EVERY_S = 0.02


class SessionUnavailable(HttpError):
    """`osgym-session` does not start programs, whatever program was asked for.

    The answer is 503 `guest_failed`, by which the host finds out whether the user broke the desktop.
    """

    def __init__(self, why: str):
        super().__init__(503, GuestErrorCode.GUEST_FAILED, f"the desktop's session starts no programs: {why}")


class SessionStarter:
    """Connection to `osgym-session`, made at first use.

    Only the process that was met first is trusted: root in the desktop can put a socket of its own at the
    path.

    Args:
        path: Path of the socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._sock: socket.socket | None = None
        self._pid: int | None = None
        self._turn = asyncio.Lock()
        self._discards: set[asyncio.Future[None]] = set()

    @property
    def pid(self) -> int:
        """PID of `osgym-session`, the parent of what is started.

        Raises:
            SessionUnavailable: It cannot be reached.
        """
        if self._pid is None:
            self._connect()
        assert self._pid is not None
        return self._pid

    async def start(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, stdio: tuple[int, int, int]
    ) -> SessionProcess:
        """Start a program as the leader of a session of its own. When cancelled, end a started one.

        Args:
            stdio: Descriptors of its standard input, output and error.

        Raises:
            OSError: It cannot be started.
            SessionUnavailable: `osgym-session` starts nothing.
            ValueError: A text has a NUL in it.
        """
        texts = [os.fspath(cwd), *argv, *(f"{name}={value}" for name, value in env.items())]
        data = b"".join(os.fsencode(text) + b"\0" for text in texts)
        if data.count(b"\0") != len(texts):
            raise ValueError("embedded null byte")
        file = os.memfd_create("start", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(file), "wb") as texts_file:
                texts_file.write(data)
            request = _REQUEST.pack(_START, len(argv), len(texts) - 1 - len(argv), 0)
            answer = await self._ask(request, (file, *stdio))
        finally:
            os.close(file)
        try:
            error, value = await asyncio.shield(answer)
        except asyncio.CancelledError:
            discard = asyncio.ensure_future(self._discard(answer))
            self._discards.add(discard)
            discard.add_done_callback(self._discards.discard)
            raise
        if value == _NOT_MADE or error in _SHORT_OF:
            raise SessionUnavailable(os.strerror(error))
        if error:
            raise OSError(error, os.strerror(error), os.fspath(cwd) if value == _NO_FOLDER else argv[0])
        return SessionProcess(self, value)

    async def reap(self, pid: int) -> int:
        """Return the wait status of a process that has ended, and forget it.

        Raises:
            OSError: It runs still, or is not known.
            SessionUnavailable: `osgym-session` does not answer.
        """
        until_s = asyncio.get_running_loop().time() + REAP_S
        while True:
            error, status = await asyncio.shield(await self._ask(_REQUEST.pack(_REAP, 0, 0, pid), ()))
            if not error:
                return status
            if error != errno.EAGAIN or asyncio.get_running_loop().time() >= until_s:
                await self._forget(pid)
                raise OSError(error, os.strerror(error))
            await asyncio.sleep(_REAP_EVERY_S)

    async def free_caches(self) -> None:
        """Make the kernel of a virtual machine drop its page cache.

        Raises:
            OSError: The kernel refused, or this is no virtual machine.
            SessionUnavailable: `osgym-session` does not answer.
        """
        await self._maintain(_FREE_CACHES)

    async def trim_disk(self) -> int:
        """Discard the unused blocks of a virtual machine's disk, and return their size in MiB.

        Raises:
            OSError: The kernel refused, or this is no virtual machine.
            SessionUnavailable: `osgym-session` does not answer.
        """
        return await self._maintain(_TRIM_DISK)

    async def _maintain(self, op: int) -> int:
        request = _REQUEST.pack(op, 0, 0, 0)
        error, value = await asyncio.shield(await self._ask(request, (), timeout_s=MAINTENANCE_S))
        if error:
            raise OSError(error, os.strerror(error))
        return value

    async def _forget(self, pid: int) -> None:
        await asyncio.shield(await self._ask(_REQUEST.pack(_FORGET, 0, 0, pid), ()))

    async def _discard(self, answer: asyncio.Future[tuple[int, int]]) -> None:
        """End a program that was started for a caller that has left."""
        with contextlib.suppress(SessionUnavailable):
            error, pid = await answer
            if not error:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
                await self._forget(pid)

    def _connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            sock.setblocking(False)
            sock.connect(self._path)
            pid, uid, _ = _PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
            if uid != 0 or self._pid not in (None, pid):
                raise ConnectionRefusedError(errno.ECONNREFUSED, "another process listens at its socket")
        except OSError as exc:
            sock.close()
            raise SessionUnavailable(exc.strerror or str(exc)) from exc
        self._pid, self._sock = pid, sock
        return sock

    async def _ask(
        self, request: bytes, fds: Sequence[int], *, timeout_s: float = TIMEOUT_S
    ) -> asyncio.Future[tuple[int, int]]:
        """Send a request in turn, and return the future of its answer: an error number and a value.

        The next request waits for that answer, whether or not anybody still does.
        """
        await self._turn.acquire()
        try:
            sock = self._sock or self._connect()
            try:
                socket.send_fds(sock, [request], fds)
            except OSError as exc:
                self.close()
                raise SessionUnavailable(exc.strerror or str(exc)) from exc
        except BaseException:
            self._turn.release()
            raise
        answer = asyncio.ensure_future(self._receive(sock, timeout_s))
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # maybe nobody asks
        return answer

    async def _receive(self, sock: socket.socket, timeout_s: float) -> tuple[int, int]:
        try:
            answer = await asyncio.wait_for(
                asyncio.get_running_loop().sock_recv(sock, _ANSWER.size), timeout_s
            )
            if len(answer) != _ANSWER.size:
                raise ConnectionResetError(errno.ECONNRESET, "the session has ended")
        except asyncio.TimeoutError as exc:
            self.close()  # a late answer would be taken for that of the next request
            raise SessionUnavailable(f"no answer within {timeout_s:g} s") from exc
        except OSError as exc:
            self.close()
            raise SessionUnavailable(exc.strerror or str(exc)) from exc
        finally:
            self._turn.release()
        error, value = _ANSWER.unpack(answer)
        return error, value

    def close(self) -> None:
        """Close the connection; it opens again when it is needed."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None


class SessionProcess:
    """Process that `osgym-session` started; the counterpart of `subprocess.Popen` for a child."""

    def __init__(self, starter: SessionStarter, pid: int) -> None:
        self._starter = starter
        self.pid = pid
        self.returncode: int | None = None

    async def wait(self) -> int:
        """Return the exit status of the ended process; a negative number is a signal's.

        The status is -9, as of a killed process, when `osgym-session` does not know it: it was lost, or a
        tracer in the desktop withholds it for longer than `REAP_S`.
        """
        if self.returncode is None:
            try:
                self.returncode = os.waitstatus_to_exitcode(await self._starter.reap(self.pid))
            except (OSError, SessionUnavailable):
                self.returncode = -9
        return self.returncode
