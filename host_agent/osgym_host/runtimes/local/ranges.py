"""Ranges of host ids, one for each replica, so that what the kernel counts per user is counted per replica.

Only root can hand them out: the files of an image belong to one range, and showing them with the ids
of another takes an id-mapped mount.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from osgym_host.images.idmap import ID_COUNT, ROOT_UID_BASE

FIRST_BASE = ROOT_UID_BASE + 2 * ID_COUNT
"""First id after the range of the images' files and that of virtual machines (`qemu.runner.users`)."""
RANGES = (1_879_048_192 - FIRST_BASE) // ID_COUNT
"""Number of ranges that fit below the end of those that systemd keeps for containers."""
LOCK_FILE = Path("/run/osgym/id-ranges.lock")
"""File with one byte for each range of this machine; the host agents of all data directories lock theirs."""


@dataclass(frozen=True, slots=True)
class ReplicaIds:
    """Range of ids that one replica has alone."""

    number: int

    @property
    def base(self) -> int:
        """Host id of the replica's root, user and group alike."""
        return FIRST_BASE + self.number * ID_COUNT


class IdRanges:
    """Ranges that no other host agent of this machine uses."""

    def __init__(self, lock_fd: int, start: int = 0) -> None:
        self._lock_fd = lock_fd
        self._next = start % RANGES
        self._taken: set[int] = set()

    @classmethod
    def open(cls, lock_file: Path, fallback: Path) -> IdRanges:
        """Open the machine's lock file, or `fallback` where it cannot be had.

        Raises:
            OSError: Neither can be opened.
        """
        try:
            lock_file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            fd = _open_own(lock_file)
        except OSError:
            fd = _open_own(fallback)
        # Not all from the first one on, so that agents that do not share the file seldom meet.
        return cls(fd, int.from_bytes(os.urandom(4), "big"))

    def take(self) -> ReplicaIds | None:
        """Return the range that has been free for longest; None when all are taken."""
        for step in range(RANGES):
            number = (self._next + step) % RANGES
            if number not in self._taken and self._lock(number, fcntl.F_WRLCK):
                self._taken.add(number)
                self._next = number + 1
                return ReplicaIds(number)
        return None

    def release(self, ids: ReplicaIds) -> None:
        """Return a range. Idempotent."""
        if ids.number in self._taken:
            self._taken.discard(ids.number)
            self._lock(ids.number, fcntl.F_UNLCK)

    def close(self) -> None:
        """Return all ranges. Idempotent."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
        self._lock_fd = -1
        self._taken.clear()

    @property
    def lock_fd(self) -> int:
        """Descriptor that holds the locks as long as any copy of it is open."""
        return self._lock_fd

    def _lock(self, number: int, kind: int) -> bool:
        request = struct.pack("hhqqi4x", kind, os.SEEK_SET, number, 1, 0)
        try:
            fcntl.fcntl(self._lock_fd, fcntl.F_OFD_SETLK, request)
        except BlockingIOError:
            return False
        return True


def _open_own(path: Path) -> int:
    """Open a lock file that nobody but this user may open."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.close(fd)
        raise PermissionError(f"{path} can be read or written by other users")
    return fd
