"""Network namespaces for a host agent that is an ordinary user, made by a process with rights there.

`namespace_keeper` is that process; one is started when the first namespace is asked for, and ends with us.
QEMU joins both namespaces before it is executed (nsenter), where it has no rights either.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

_PROGRAM = Path(__file__).with_name("namespace_keeper.py")
_ANSWER_S = 5.0


class Keeper:
    """Running `namespace_keeper`. Its methods may be called from any thread; they block for 0.1 ms."""

    _own: Keeper | None = None
    _starting = threading.Lock()

    def __init__(self, user_namespace: str = "") -> None:
        """Start a keeper, in a user namespace of its own or in an existing one.

        Raises:
            OSError: The kernel does not let ordinary users have user namespaces, or it does not start.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(_ANSWER_S)
        program = [sys.executable, "-I", str(_PROGRAM), user_namespace]
        with theirs:
            # In a session of its own, so that Ctrl-C ends us first, who still need it.
            self._process = subprocess.Popen(
                program, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, start_new_session=True
            )
        self._channel = ours
        self._turn = threading.Lock()
        said = b""
        with contextlib.suppress(OSError):
            said = ours.recv(256)
        if said != b"ready":
            self.close()
            raise OSError(
                f"no permission for network namespaces: {said.decode(errors='replace') or 'no answer'}"
            )

    @classmethod
    def own(cls) -> Keeper:
        """Return the keeper of this process, started on the first call.

        Raises:
            OSError: As for a new keeper.
        """
        with cls._starting:
            if cls._own is None or cls._own._process.poll() is not None:
                cls._own = cls()
            return cls._own

    @property
    def user_namespace(self) -> str:
        """Path of the user namespace in which it has rights."""
        return f"/proc/{self._process.pid}/ns/user"

    def ask(self, word: bytes, fds: tuple[int, ...] = ()) -> int:
        """Request a resource; return its descriptor.

        Raises:
            OSError: It could not be made, or the keeper is gone.
        """
        with self._turn:
            socket.send_fds(self._channel, [word], list(fds))
            said, made, _, _ = socket.recv_fds(self._channel, 256, 1, socket.MSG_CMSG_CLOEXEC)
        if not made:
            raise OSError(
                said.decode(errors="replace") or "the process that keeps network namespaces has ended"
            )
        return made[0]

    def close(self) -> None:
        """End it; namespaces in use stay. Idempotent."""
        self._channel.close()
        self._process.wait(_ANSWER_S)


class KeptNamespace:
    """Network namespace on which a keeper has rights."""

    def __init__(self, keeper: Keeper, fd: int, *, owned: bool = False) -> None:
        """Args:
        owned: True if the keeper serves this namespace alone.
        """
        self._keeper = keeper
        self._fd = fd
        self._owned = owned

    @classmethod
    def make(cls) -> KeptNamespace:
        """Make a namespace with only a loopback interface.

        Raises:
            OSError: The host does not allow it.
        """
        if shutil.which("nsenter") is None:
            raise FileNotFoundError("nsenter (package util-linux) is not installed")
        keeper = Keeper.own()
        return cls(keeper, keeper.ask(b"namespace"))

    @classmethod
    def of_process(cls, pid: int) -> KeptNamespace:
        """Open the namespace of a process that a former host agent of the same user started.

        Raises:
            OSError: The process is gone, or not of this user.
        """
        fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return cls(Keeper(f"/proc/{pid}/ns/user"), fd, owned=True)
        except OSError:
            os.close(fd)
            raise

    def around(self, argv: list[str]) -> list[str]:
        """Return the vector that runs `argv` inside, in the same process."""
        if self._fd < 0:
            raise OSError("the network namespace was closed")
        net = f"--net=/proc/{os.getpid()}/fd/{self._fd}"
        enter = shutil.which("nsenter") or "nsenter"
        return [enter, "--preserve-credentials", f"--user={self._keeper.user_namespace}", net, "--", *argv]

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Do nothing: `around` enters the namespace."""
        yield

    def make_socket(self) -> socket.socket:
        """Make a TCP socket inside, not blocking and not connected.

        Raises:
            OSError: The namespace was closed, or the keeper is gone.
        """
        return socket.socket(fileno=self._keeper.ask(b"socket", (self._fd,)))

    def close(self) -> None:
        """Close the descriptor; sockets made inside go on. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            if self._owned:
                self._keeper.close()
