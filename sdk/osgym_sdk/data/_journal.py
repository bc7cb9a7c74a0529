"""A file to which records are appended, each with its length and its CRC: what a crash cuts is left out.

The writer holds a lock on its file for as long as it lives, so that others know the files of the dead.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from osgym_sdk._exceptions import DatasetError

MAX_RECORD_BYTES = 256 * 1024 * 1024
_HEAD = struct.Struct(">II")
_MAGIC = b"OSGYMJ1\n"
_MAKING_S = 600.0
"""For so long an empty file may belong to a writer that has made it and not locked it yet: microseconds, but
on a machine that swaps."""


class AppendFile:
    """An append is whole or not at all: what a full disk cut is taken back."""

    def __init__(self, path: Path) -> None:
        """Make the file. Raises OSError if it cannot be made, or is there."""
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.size = 0

    def append(self, *parts: bytes | memoryview) -> int:
        """Append the parts as one; return where they begin. Raises OSError if nothing was appended."""
        began = self.size
        try:
            for part in parts:
                view = memoryview(part)
                while view:
                    written = os.write(self._fd, view)
                    self.size += written
                    view = view[written:]
        except OSError:
            os.ftruncate(self._fd, began)
            self.size = began
            raise
        return began

    def lock(self) -> None:
        """Keep it locked until it is closed, or this process ends.

        Raises:
            OSError: it was removed before.
        """
        fcntl.flock(self._fd, fcntl.LOCK_EX)  # whoever looks whether its writer lives holds it for a moment
        if os.fstat(self._fd).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))

    def sync(self) -> None:
        """Wait until the disk has it."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Journal(AppendFile):
    """The journal of a writer that lives. It is empty until it is locked: nobody takes it in between."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            self.lock()
            self.append(_MAGIC)
        except OSError:
            self.close()
            path.unlink(missing_ok=True)
            raise

    def add(self, record: bytes) -> None:
        """Append a record. Raises OSError if nothing was appended."""
        self.append(_HEAD.pack(len(record), zlib.crc32(record)), record)


def read_journal(path: Path) -> Iterator[bytes]:
    """Yield the records of a journal up to the first that is cut short.

    Raises:
        OSError: it cannot be read, or is gone.
        DatasetError: it is no journal.
    """
    with path.open("rb") as file:
        magic = file.read(len(_MAGIC))
        if magic != _MAGIC:
            if _MAGIC.startswith(magic):
                return  # its writer died as it made the file
            raise DatasetError(f"{path} is not the journal of a data set")
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            length, crc = _HEAD.unpack(head)
            if length > MAX_RECORD_BYTES:
                return
            record = file.read(length)
            if len(record) < length or zlib.crc32(record) != crc:
                return
            yield record


class DeadJournal:
    """A journal whose writer is gone, locked against others who would recover it."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    @classmethod
    def take(cls, path: Path) -> DeadJournal | None:
        """Return the journal if nobody holds it, else None; also while its writer may still be making it.

        Raises:
            OSError: it cannot be opened.
        """
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = os.fstat(fd)
            making = found.st_size == 0 and time.time() - found.st_mtime < _MAKING_S
            if not making and path.stat().st_ino == found.st_ino:
                return cls(path, fd)
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(fd)
        return None

    def close(self) -> None:
        """Let go of it."""
        os.close(self._fd)
