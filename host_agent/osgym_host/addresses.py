"""Addresses of guest agents, and unix sockets at paths longer than a socket address holds."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

_UNIX_PATH_MAX = 107


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """Unix socket of the host on which the guest agent listens."""

    path: Path


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """TCP address in the host's own network, which every user of the host can connect to."""

    host: str
    port: int


class SocketMaker(Protocol):
    def make_socket(self) -> socket.socket:
        """Make a TCP socket inside, not blocking and not connected.

        Raises:
            OSError: The namespace is gone or cannot be entered.
        """
        ...


@dataclass(frozen=True, slots=True)
class EnclosedAddress:
    """TCP address that is reachable from inside a network namespace only."""

    host: str
    port: int
    namespace: SocketMaker = field(repr=False)


GuestAddress = UnixAddress | TcpAddress | EnclosedAddress


@contextlib.contextmanager
def short_unix_path(path: str) -> Iterator[str]:
    """Yield a name for `path` that fits into a socket address, whatever the path's length."""
    if len(os.fsencode(path)) <= _UNIX_PATH_MAX:
        yield path
        return
    folder, name = os.path.split(path)
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


def listen_at(path: Path, backlog: int = 1) -> socket.socket:
    """Return a socket that listens at a path, for this user only; one that was left there is replaced.

    Raises:
        OSError: The path cannot be bound.
    """
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with short_unix_path(str(path)) as name:
            sock.bind(name)
        path.chmod(0o600)  # nobody can connect before it listens
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock
