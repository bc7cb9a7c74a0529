"""Disk space of deleted files that a process still holds open. Blocking.

A file without a name lives on in open descriptors, in mappings, in mounts of it, and in descriptors that
were sent over a unix socket and not received. `/proc` shows the first three, with their blocks, and of the
last how many there are. Tables of descriptors that threads have to themselves are looked into, too.
What lies in memory (tmpfs, memfd) is charged as memory and not counted here. Standard library only: the
zygote of the local runtime looks, since for an ordinary user only root of the replicas' range of ids may.
"""

# ruff: noqa: PTH116, PTH123, PTH208 -- paths of /proc as text: there may be tens of thousands

from __future__ import annotations

import ctypes
import os
import platform
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from osgym_host.core.disk_pressure import INODE_BYTES

SCAN_S = 2.0
"""Time limit of a scan; a replica with more descriptors and mappings is measured in part."""
_MAX_TABLE_BYTES = 8 << 20
_DELETED = b" (deleted)"
_IN_FLIGHT = b"scm_fds:"
_BLOCK = 512
_KCMP = {"x86_64": 312, "aarch64": 272}.get(platform.machine())
_KCMP_FILES = 2
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class HeldFiles:
    """Deleted files and descriptors that the processes of a replica hold.

    Attributes:
        deleted_bytes: Size of the blocks of files without a name.
        fds_in_flight: Number of descriptors that were sent and not received.
        written_bytes: Amount that live processes have written to files, less what they truncated; None where
            the kernel does not count it.
    """

    deleted_bytes: int = 0
    fds_in_flight: int = 0
    written_bytes: int | None = None
    _seen: set[tuple[int, int]] = field(default_factory=set)

    def is_new(self, found: os.stat_result) -> bool:
        """Return whether a file is seen for the first time."""
        key = found.st_dev, found.st_ino
        new = key not in self._seen
        self._seen.add(key)
        return new

    def add(self, found: os.stat_result, devices: Collection[int]) -> None:
        """Count a file once, if it has no name and lies on one of `devices`."""
        nameless = found.st_nlink == 0 and stat.S_ISREG(found.st_mode) and found.st_dev in devices
        if nameless and self.is_new(found):
            self.deleted_bytes += max(INODE_BYTES, found.st_blocks * _BLOCK)


def held_files(pids: Collection[int], devices: Collection[int], *, scan_s: float = SCAN_S) -> HeldFiles:
    """Scan processes for deleted files.

    Args:
        devices: `st_dev` of what counts as disk: of the replica's root as it sees it, and of the file system
            where its files lie.
    """
    held = HeldFiles()
    ends_s = time.monotonic() + scan_s
    namespaces: set[int] = set()
    for pid in sorted(pids):
        held.written_bytes = _sum(held.written_bytes, _written_bytes(pid))
        if time.monotonic() > ends_s:
            continue
        for task in tasks_with_own_files(pid):
            _descriptors(f"/proc/{pid}/task/{task}", devices, held, ends_s)
        _mappings(pid, devices, held)
        _mounts(pid, devices, held, namespaces)
    return held


def devices_of(*paths: str) -> set[int]:
    """Return the devices of paths; absent paths are ignored."""
    found = set()
    for path in paths:
        try:
            found.add(os.stat(path).st_dev)
        except OSError:
            continue
    return found


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)


def _descriptors(task: str, devices: Collection[int], held: HeldFiles, ends_s: float) -> None:
    for number in _names(f"{task}/fd"):
        if time.monotonic() > ends_s:
            return
        try:
            found = os.stat(f"{task}/fd/{number}")
        except OSError:
            continue
        if not stat.S_ISSOCK(found.st_mode):
            held.add(found, devices)
        elif held.is_new(found):  # several processes may hold it
            held.fds_in_flight += _in_flight(f"{task}/fdinfo/{number}")


def _in_flight(path: str) -> int:
    for line in _lines(path):
        if line.startswith(_IN_FLIGHT):
            return int(line[len(_IN_FLIGHT) :])
    return 0


def _mappings(pid: int, devices: Collection[int], held: HeldFiles) -> None:
    """Count deleted files that are mapped; their real size is known to root only, else what is mapped."""
    for line in _lines(f"/proc/{pid}/maps"):
        if not line.endswith(_DELETED):
            continue
        area, _access, _offset, device, inode = line.split(None, 5)[:5]
        try:
            held.add(os.stat(f"/proc/{pid}/map_files/{area.decode()}"), devices)
        except PermissionError:
            major, _, minor = device.partition(b":")
            key = os.makedev(int(major, 16), int(minor, 16)), int(inode)
            if key[0] in devices and key not in held._seen:
                begin, _, end = area.partition(b"-")
                held._seen.add(key)
                held.deleted_bytes += int(end, 16) - int(begin, 16)
        except OSError:
            continue


def _mounts(pid: int, devices: Collection[int], held: HeldFiles, seen: set[int]) -> None:
    """Count deleted files that are mounted somewhere, once for each mount namespace."""
    try:
        namespace = os.stat(f"/proc/{pid}/ns/mnt").st_ino
    except OSError:
        return
    if namespace in seen:
        return
    seen.add(namespace)
    for line in _lines(f"/proc/{pid}/mountinfo"):
        fields = line.split(b" ")
        if len(fields) > 5 and fields[3].endswith(b"//deleted"):
            where = fields[4].decode("unicode_escape", "replace")
            try:
                held.add(os.stat(f"/proc/{pid}/root{where}", follow_symlinks=False), devices)
            except (OSError, ValueError):
                continue


def _written_bytes(pid: int) -> int | None:
    counts = {}
    for line in _lines(f"/proc/{pid}/io"):
        name, _, value = line.partition(b":")
        counts[name] = int(value)
    if b"write_bytes" not in counts:
        return None
    return max(0, counts[b"write_bytes"] - counts.get(b"cancelled_write_bytes", 0))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a file of `/proc`, up to a bound; none when the process is gone."""
    try:
        with open(path, "rb") as file:
            yield from file.read(_MAX_TABLE_BYTES).splitlines()
    except OSError:
        return


def tasks_with_own_files(pid: int) -> list[int]:
    """Return the threads of a process that have different descriptor tables, the first thread first.

    Threads share one table unless one of them unshared it (`CLONE_FILES`). Where the kernel does not say
    (`kcmp`), every thread is returned.
    """
    try:
        tasks = sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return []
    own: list[int] = []
    for task in tasks:
        if not any(_same_files(task, other) for other in own):
            own.append(task)
    return own


def _same_files(one: int, other: int) -> bool:
    if _KCMP is None:
        return False
    return int(_libc.syscall(_KCMP, one, other, _KCMP_FILES, 0, 0)) == 0
