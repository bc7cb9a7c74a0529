"""Programs and libraries of images, locked into memory while the memory of replicas is reclaimed.

The kernel charges a page of a file to the control group that first reads it, so that reclaiming one replica
can evict a library that thousands of processes map. Finding all their mappings took 3.6 s of CPU time for
26 MiB beside 1,200 desktops, and the next process that needs the library reads it again. Locked pages are not
looked at. The programs of an idle desktop of the image full have 94 MiB of files.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import mmap
import os
import threading
from collections.abc import Iterable
from pathlib import Path

log = logging.getLogger(__name__)

_REPLICAS = 8
"""Number of replicas that must have mapped a file before it is locked. One guest alone cannot take memory of
the host by mapping files, and for a few replicas an eviction costs little."""
_MAX_NAMES = 20_000
_MAX_PROCESSES = 64
_MAX_MAPS_BYTES = 256 * 1024
"""Bounds on what a guest can make this process read and keep: names of files, processes of a replica, and the
list of mappings of a process (the 11 processes of an idle desktop have 3 to 47 KiB each)."""
MAX_LOCKED_MIB = 768
"""Bound on all locked files of a host agent: office suite and browser of the image full have some 500 MiB."""
_MIB = 1 << 20
_MAP_LOCKED = 0x2000
_MAP_FAILED = ctypes.c_void_p(-1).value


class LockedFiles:
    """Files of golden images that this process keeps in memory until `close`. Blocking; for any thread."""

    def __init__(self, max_mib: int = MAX_LOCKED_MIB) -> None:
        self._max_bytes = self._left_bytes = max_mib * _MIB
        self._mapped_by: dict[tuple[Path, str], set[str]] = {}
        self._locked: list[tuple[int, int]] = []
        self._lock = threading.Lock()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = (
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
        )  # fmt: skip
        self._libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)

    def lock_mapped(self, replica_id: str, pids: Iterable[int], rootfs: Path) -> None:
        """Lock the files of an image that `_REPLICAS` replicas have mapped, as far as the bound allows.

        Only regular files of the image are opened, and only read: a file that a guest made has another inode
        number than the image's of that name, or none.

        Args:
            replica_id: Replica whose processes are looked at.
            pids: Its processes.
            rootfs: Its image.
        """
        files = {found for pid in itertools.islice(pids, _MAX_PROCESSES) for found in _mapped_files(pid)}
        with self._lock:
            for inode, name in files:
                users = self._mapped_by.get((rootfs, name))
                if users is None and len(self._mapped_by) < _MAX_NAMES:
                    users = self._mapped_by[rootfs, name] = set()
                if users is None or len(users) >= _REPLICAS:
                    continue
                users.add(replica_id)
                if len(users) == _REPLICAS:
                    self._lock_file(rootfs, inode, name)

    def close(self) -> None:
        """Unlock all files. Idempotent."""
        with self._lock:
            while self._locked:
                address, size = self._locked.pop()
                self._libc.munmap(address, size)
            self._mapped_by.clear()
            self._left_bytes = self._max_bytes

    def _lock_file(self, rootfs: Path, inode: int, name: str) -> None:
        path = rootfs.resolve() / name.lstrip("/")
        if path.resolve() != path:  # a symbolic link may lead out of the image
            return
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            found = os.fstat(fd)
            if found.st_ino != inode or not 0 < found.st_size <= self._left_bytes:
                return
            flags = mmap.MAP_SHARED | _MAP_LOCKED
            address = self._libc.mmap(None, found.st_size, mmap.PROT_READ, flags, fd, 0)
            if address == _MAP_FAILED:
                log.debug("%s is not locked into memory: %s", name, os.strerror(ctypes.get_errno()))
                return
            self._left_bytes -= found.st_size
            self._locked.append((address, found.st_size))
        finally:
            os.close(fd)


def _mapped_files(pid: int) -> Iterable[tuple[int, str]]:
    """Yield inode number and name of each file that a process maps; nothing once it is gone."""
    try:
        with Path(f"/proc/{pid}/maps").open("rb") as maps:
            text = maps.read(_MAX_MAPS_BYTES).decode(errors="surrogateescape")
    except OSError:
        return
    for line in text.rpartition("\n")[0].splitlines():  # the last line may be cut
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith("/"):
            yield int(fields[4]), fields[5]
