"""Starting programs in the desktop's own namespaces, where they cannot see or stop the guest agent.

`osgym-session` (`native/session.c`) is their parent; PIDs are those of the agent's namespace.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

_REQUEST = struct.Struct("=3Ii")
_ANSWER = struct.Struct("=2i")
_PEER = struct.Struct("3i")
_START, _REAP = 1, 2
_NO_FOLDER = -1
TIMEOUT_S = 10.0
"""Longer than `osgym-session` waits for a program to begin."""


class SessionStarter:
    """The agent's connection to `osgym-session`, made at first use.

    Args:
        path: its socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._sock: socket.socket | None = None

    @property
    def pid(self) -> int:
        """PID of `osgym-session`, the parent of what is started.

        Raises:
            OSError: it cannot be reached.
        """
        found: int = _PEER.unpack(
            self._connected().getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        )[0]
        return found

    def start(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, stdio: tuple[int, int, int]
    ) -> SessionProcess:
        """Start a program as the leader of a session of its own.

        Args:
            stdio: descriptors of its standard input, output and error.

        Raises:
            OSError: it cannot be started.
            ValueError: a text has a NUL in it.
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
            error, pid = self._ask(request, (file, *stdio))
        finally:
            os.close(file)
        if error:
            raise OSError(error, os.strerror(error), os.fspath(cwd) if pid == _NO_FOLDER else argv[0])
        return SessionProcess(self, pid)

    def reap(self, pid: int) -> int:
        """Return the wait status of a process that has ended, and forget it.

        Raises:
            OSError: it runs still, or is not known.
        """
        error, status = self._ask(_REQUEST.pack(_REAP, 0, 0, pid), ())
        if error:
            raise OSError(error, os.strerror(error))
        return status

    def _connected(self) -> socket.socket:
        if self._sock is None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
            try:
                sock.settimeout(TIMEOUT_S)
                sock.connect(self._path)
            except BaseException:
                sock.close()
                raise
            self._sock = sock
        return self._sock

    def _ask(self, request: bytes, fds: Sequence[int]) -> tuple[int, int]:
        sock = self._connected()
        try:
            socket.send_fds(sock, [request], fds)
            answer = sock.recv(_ANSWER.size)
            if len(answer) != _ANSWER.size:
                raise ConnectionResetError(errno.ECONNRESET, "the desktop's session starts nothing any more")
        except OSError:
            self.close()  # a late answer would be taken for that of the next request
            raise
        error, value = _ANSWER.unpack(answer)
        return error, value

    def close(self) -> None:
        """Close the connection; it is made again when it is needed."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None


class SessionProcess:
    """A process that `osgym-session` started; what `subprocess.Popen` is for a child."""

    def __init__(self, starter: SessionStarter, pid: int) -> None:
        self._starter = starter
        self.pid = pid
        self.returncode: int | None = None

    def wait(self) -> int:
        """Return the exit status of the process, which has ended; a negative number is a signal's.

        It is that of a killed process when `osgym-session` cannot say it.
        """
        if self.returncode is None:
            try:
                self.returncode = os.waitstatus_to_exitcode(self._starter.reap(self.pid))
            except OSError:
                self.returncode = -9
        return self.returncode
