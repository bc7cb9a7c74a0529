"""Where a guest agent listens, and unix sockets at paths longer than a socket address holds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_UNIX_PATH_MAX = 107


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """The guest agent listens on this unix socket of the host."""

    path: Path


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """The guest agent listens on TCP; only the host may reach it."""

    host: str
    port: int


GuestAddress = UnixAddress | TcpAddress


@contextlib.contextmanager
def short_unix_path(path: str) -> Iterator[str]:
    """Give a name for `path` that fits into a socket address, whatever the path's length."""
    if len(os.fsencode(path)) <= _UNIX_PATH_MAX:
        yield path
        return
    folder, name = os.path.split(path)
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)
