"""Process of an instance's host agent: a file that it keeps locked while it lives."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from osgym_host.errors import OsgymHostError


class AlreadyRunning(OsgymHostError):
    """Another process is the host agent of this instance."""


def pid_path(data_dir: Path, instance: str) -> Path:
    return data_dir / "state" / instance / "pid"


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the file for this process.

    Raises:
        AlreadyRunning: Another process holds it.
        OSError: It cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A user who can open the file, even just for reading, could lock it and so keep agents from starting.
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "a+") as file:
        os.fchmod(fd, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyRunning(
                f"a host agent (process {holder(path) or '?'}) already runs on {path.parent}; "
                "`osgym host clean` stops it"
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def holder(path: Path) -> int | None:
    """Return the process that holds the file now, None when there is none.

    Raises:
        OSError: The file cannot be read.
    """
    try:
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                text = file.read().strip()
                return int(text) if text.isdigit() else None
    except FileNotFoundError:
        return None
    return None


def running_agents(data_dir: Path) -> list[int]:
    """Return the processes of host agents that use a data directory, of all instances.

    Raises:
        OSError: A file of one cannot be read.
    """
    found = [holder(path) for path in sorted((data_dir / "state").glob("*/pid"))]
    return [pid for pid in found if pid is not None]
