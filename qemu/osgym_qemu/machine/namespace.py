"""Network namespace around one machine, so that no other process of the host can connect to its guest.

QEMU's user-mode networking listens on a port of the loopback interface. In a namespace of its own that is
a loopback interface which no other process has; we connect by a socket that was made inside. Sockets stay
in the namespace they were made in, so a thread of ours is inside only for the moment of making one.

Entering needs root; an ordinary user has it done (`kept_namespace`). The namespace is gone with its QEMU, our
descriptor and our sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from osgym_qemu.machine.kept_namespace import KeptNamespace
from osgym_qemu.machine.namespace_keeper import CLONE_NEWNET, bring_up_loopback, check, libc

_OWN = Path("/proc/thread-self/ns/net")


class NetworkNamespace:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def make(cls) -> NetworkNamespace:
        """Make a namespace with only a loopback interface. Blocking, 0.5 ms.

        Raises:
            OSError: The kernel refuses: not root, or the host's namespaces are used up.
        """
        with _coming_back():
            check(libc.unshare(CLONE_NEWNET), "a network namespace cannot be made")
            bring_up_loopback()
            return cls.at(_OWN)

    @classmethod
    def at(cls, path: Path) -> NetworkNamespace:
        """Open the namespace at a path: `/proc/<pid>/ns/net`, or one of `ip netns`.

        Raises:
            OSError: The path names no namespace.
        """
        return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def around(self, argv: list[str]) -> list[str]:
        """Return `argv` unchanged: its starter is inside already (`entered`)."""
        return argv

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Context in which this thread, and processes that it starts, are inside. It must not await.

        Raises:
            OSError: The namespace cannot be entered, or was closed.
        """
        with _coming_back():
            check(libc.setns(self._fd, CLONE_NEWNET), "the network namespace cannot be entered")
            yield

    def make_socket(self) -> socket.socket:
        """Make a TCP socket inside, not blocking and not connected. 8 µs.

        Raises:
            OSError: As `entered`.
        """
        with self.entered():
            return socket.socket(
                socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            )

    def close(self) -> None:
        """Close the descriptor; sockets made inside go on. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@dataclass(frozen=True, slots=True)
class NamespaceOf:
    """Network namespace of a process, entered anew for each socket; no descriptor is held."""

    pid: int

    def make_socket(self) -> socket.socket:
        """Make a TCP socket inside, not blocking and not connected.

        Raises:
            OSError: The process is gone, or the namespace cannot be entered.
        """
        namespace = NetworkNamespace.at(Path(f"/proc/{self.pid}/ns/net"))
        try:
            return namespace.make_socket()
        finally:
            namespace.close()


AnyNamespace = NetworkNamespace | KeptNamespace


def namespace_of(pid: int) -> AnyNamespace | None:
    """Open the namespace of a machine of a former host agent; None when it is gone or of others. Blocking."""
    with contextlib.suppress(OSError):
        if os.geteuid() == 0:
            return NetworkNamespace.at(Path(f"/proc/{pid}/ns/net"))
        return KeptNamespace.of_process(pid)
    return None


async def try_to_make() -> AnyNamespace | None:
    """Make a namespace in a thread; None where that is impossible. Cancelled, it leaves none."""
    make = NetworkNamespace.make if os.geteuid() == 0 else KeptNamespace.make
    making = asyncio.create_task(asyncio.to_thread(_try(make)))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        made = await making
        if made is not None:
            made.close()
        raise


def _try(make: Callable[[], AnyNamespace]) -> Callable[[], AnyNamespace | None]:
    def tried() -> AnyNamespace | None:
        with contextlib.suppress(OSError):
            return make()
        return None

    return tried


@contextlib.contextmanager
def _coming_back() -> Iterator[None]:
    """Context after which this thread is back in its present network namespace."""
    own = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        try:
            check(libc.setns(own, CLONE_NEWNET), "a thread cannot leave a network namespace")
        finally:
            os.close(own)
