"""Copied pages of guest RAM, with their places in the RAM."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
from array import array
from dataclasses import dataclass
from itertools import accumulate

PAGE = mmap.PAGESIZE

_MAP_NORESERVE = 0x4000
_MADV_POPULATE_WRITE = 23  # Linux 5.14; missing from the module mmap of Python 3.11
_F_SEAL_FUTURE_WRITE = 0x10  # Linux 5.1; missing from the module fcntl
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | _F_SEAL_FUTURE_WRITE


@dataclass(frozen=True, slots=True)
class Extents:
    """Runs of pages by their offsets in the RAM file, in bytes, ascending and disjoint."""

    offsets: array[int]
    lengths: array[int]

    @property
    def size_bytes(self) -> int:
        return sum(self.lengths)

    def __len__(self) -> int:
        return len(self.offsets)


def union(first: Extents, second: Extents) -> Extents:
    """Return all pages of both, in as few runs as possible."""
    if not len(second):
        return first
    offsets, lengths = array("Q"), array("Q")
    begin = end = -1
    runs = sorted(zip((*first.offsets, *second.offsets), (*first.lengths, *second.lengths), strict=True))
    for offset, length in runs:
        if offset <= end:
            end = max(end, offset + length)
            continue
        if end > begin:
            offsets.append(begin)
            lengths.append(end - begin)
        begin, end = offset, offset + length
    if end > begin:
        offsets.append(begin)
        lengths.append(end - begin)
    return Extents(offsets, lengths)


class PageBuffer:
    """Anonymous memory with pages back to back, in the order of their extents.

    Memory is only reserved at first; `prefault` allocates it.

    Attributes:
        address: Address of the memory in this process.
    """

    packed = True

    def __init__(self, capacity_bytes: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        self._map = mmap.mmap(-1, max(capacity_bytes, PAGE), flags=flags)
        # Few large faults instead of many small ones; where the kernel has none to give, small ones.
        with contextlib.suppress(OSError):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.capacity_bytes = len(self._map)

    def prefault(self, size_bytes: int) -> None:
        """Allocate the first bytes now, so that filling them later costs no page faults."""
        size = min(-(-size_bytes // PAGE) * PAGE, self.capacity_bytes)
        try:
            self._map.madvise(_MADV_POPULATE_WRITE, 0, size)
        except OSError:
            for start in range(0, size, PAGE):
                self._map[start] = 0

    def view(self) -> memoryview:
        """Return all pages without a copy; release the view before `close`."""
        return memoryview(self._map)

    def shrink(self, size_bytes: int) -> None:
        """Free all memory behind the first bytes."""
        keep = -(-size_bytes // PAGE) * PAGE
        if keep < self.capacity_bytes:
            self._map.madvise(mmap.MADV_DONTNEED, keep, self.capacity_bytes - keep)

    def close(self) -> None:
        """Free all memory. No thread may use it afterwards."""
        self.shrink(0)


class SharedPages:
    """Memory file of the RAM's size with each page at its own offset, for children to map."""

    packed = False

    def __init__(self, ram_bytes: int) -> None:
        self.fd = os.memfd_create("osgym-delta", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, ram_bytes)
        self._map = mmap.mmap(self.fd, ram_bytes, flags=mmap.MAP_SHARED | _MAP_NORESERVE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.capacity_bytes = ram_bytes

    def seal(self) -> None:
        """Forbid changes to the file from now on. Idempotent."""
        with contextlib.suppress(PermissionError):
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)

    def view(self) -> memoryview:
        """Return the whole file; reading a page that was not written allocates it."""
        return memoryview(self._map)

    def shrink(self, size_bytes: int) -> None:
        """Do nothing: the file holds written pages only."""

    def close(self) -> None:
        """Close the file; its memory is freed with the last process that maps it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            with contextlib.suppress(BufferError):
                self._map.close()


Pages = PageBuffer | SharedPages


@dataclass(frozen=True, slots=True)
class RamDelta:
    """Pages of guest RAM: `extents` has their places, `pages` their content."""

    extents: Extents
    pages: Pages

    @property
    def size_bytes(self) -> int:
        return self.extents.size_bytes

    def packed(self) -> memoryview:
        """Return the pages back to back in the order of the extents, copied if necessary."""
        if self.pages.packed:
            return self.pages.view()[: self.size_bytes]
        buffer = PageBuffer(self.size_bytes)
        with self.pages.view() as source, buffer.view() as target:
            for offset, length, place in zip(*self._places(), strict=True):
                target[place : place + length] = source[offset : offset + length]
        return buffer.view()[: self.size_bytes]

    def shared(self, ram_bytes: int) -> SharedPages:
        """Return the pages as a sealed memory file, copied if necessary."""
        if isinstance(self.pages, SharedPages):
            self.pages.seal()
            return self.pages
        made = SharedPages(ram_bytes)
        with self.pages.view() as source, made.view() as target:
            for offset, length, place in zip(*self._places(), strict=True):
                target[offset : offset + length] = source[place : place + length]
        made.seal()
        return made

    def close(self) -> None:
        """Free the memory."""
        self.pages.close()

    def _places(self) -> tuple[array[int], array[int], list[int]]:
        """Return offsets in the RAM, lengths, and offsets when packed."""
        return (
            self.extents.offsets,
            self.extents.lengths,
            list(accumulate(self.extents.lengths, initial=0))[:-1],
        )
