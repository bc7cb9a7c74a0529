"""Lock by which a folder of run state belongs to one host agent at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from osgym_host.runtimes.base import DataDirBusy


class FolderLock:
    """Lock on `<folder>/agent.lock`, held as long as the process lives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock; the folder must exist.

        Raises:
            DataDirBusy: Another live host agent has it.
        """
        fd = os.open(self._folder / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            os.close(fd)
            raise DataDirBusy(f"another host agent uses {self._folder}") from exc
        self._fd = fd

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
