"""The pages of guest RAM that differ from the golden RAM file, read from and written into processes.

A clone maps the golden file privately: the kernel gives it a page of its own for each that it writes
to. Those pages, and their places in the file, are all that has to be copied to make another process
the same. They are found through `/proc/<pid>/pagemap`: by the ioctl PAGEMAP_SCAN where the kernel has
it (6.7 and later), else by reading an entry for each page (Linux: admin-guide/mm/pagemap.rst).

Everything here blocks, for milliseconds, most of them without the interpreter's lock: call it in
threads. Nothing is sent to the process, which need not know.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import re
import struct
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from operator import sub
from pathlib import Path
from typing import Self

from osgym_host.errors import OsgymHostError
from osgym_host.runtimes.qemu.ram_file import RamIdentity

PAGE = mmap.PAGESIZE

_PAGEMAP_SCAN = 0xC0606610  # _IOWR('f', 16, struct pm_scan_arg), linux/fs.h
_SCAN_ARG = struct.Struct("12Q")
_IS_FILE, _IS_PRESENT, _IS_SWAPPED = 1 << 2, 1 << 3, 1 << 4  # PAGE_IS_*, linux/fs.h
_SCAN_REGIONS = 8192  # per call of the ioctl: 192 KiB of buffer
_ENTRY_BYTES = 8
# The top byte of a pagemap entry: bit 63 present, 62 swapped, 61 a page of a file or shared.
_PRIVATE = bytes(bool(top & 0xC0) and not top & 0x20 for top in range(256))
_PRIVATE_RUN = re.compile(b"\x01+")

_IOV_MAX = 1024
_MAP_NORESERVE = 0x4000
_MADV_POPULATE_WRITE = 23  # Linux 5.14; missing from the module mmap of Python 3.11
_ATTACH_REMEDY = "run the host agent as root, or allow it with /proc/sys/kernel/yama/ptrace_scope = 0"

_libc = ctypes.CDLL(None, use_errno=True)
for _name in ("process_vm_readv", "process_vm_writev"):
    getattr(_libc, _name).restype = ctypes.c_ssize_t
    getattr(_libc, _name).argtypes = [
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_ulong,
        ctypes.c_void_p,
        ctypes.c_ulong,
        ctypes.c_ulong,
    ]


class RamDeltaError(OsgymHostError):
    """The memory of a process could not be found, read or written."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the RAM file in a process: addresses `start` to `end` show it from `offset` on."""

    start: int
    end: int
    offset: int


@dataclass(frozen=True, slots=True)
class Extents:
    """Runs of pages by their place in the RAM file, in bytes, ascending and apart."""

    offsets: array[int]
    lengths: array[int]

    @property
    def size_bytes(self) -> int:
        """All of them together."""
        return sum(self.lengths)

    def __len__(self) -> int:
        """Number of runs."""
        return len(self.offsets)


class PageBuffer:
    """Anonymous memory to hold pages: room is reserved cheaply, and made real by `prefault`."""

    def __init__(self, capacity_bytes: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        self._map = mmap.mmap(-1, max(capacity_bytes, PAGE), flags=flags)
        # Few large faults instead of many small ones; where the kernel has none to give, small ones.
        with contextlib.suppress(OSError):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.capacity_bytes = len(self._map)

    def prefault(self, size_bytes: int) -> None:
        """Make the first bytes real now, so that filling them later costs no page faults."""
        size = min(-(-size_bytes // PAGE) * PAGE, self.capacity_bytes)
        try:
            self._map.madvise(_MADV_POPULATE_WRITE, 0, size)
        except OSError:
            for start in range(0, size, PAGE):
                self._map[start] = 0

    def shrink(self, size_bytes: int) -> None:
        """Give back all memory behind the first bytes."""
        keep = -(-size_bytes // PAGE) * PAGE
        if keep < self.capacity_bytes:
            self._map.madvise(mmap.MADV_DONTNEED, keep, self.capacity_bytes - keep)

    def view(self, size_bytes: int) -> memoryview:
        """The first bytes, without a copy; release it before `close`."""
        return memoryview(self._map)[:size_bytes]

    def close(self) -> None:
        """Give all memory back. The buffer may not be used any more, by no thread."""
        self.shrink(0)


@dataclass(frozen=True, slots=True)
class RamDelta:
    """Pages of guest RAM: `extents` says where they belong, `pages` holds them back to back."""

    extents: Extents
    pages: PageBuffer

    @property
    def size_bytes(self) -> int:
        """Memory that the pages take."""
        return self.extents.size_bytes

    def view(self) -> memoryview:
        """All pages in the order of the extents."""
        return self.pages.view(self.size_bytes)

    def close(self) -> None:
        """Give the memory back."""
        self.pages.close()


def find_ram(pid: int, ram: RamIdentity) -> tuple[Piece, ...]:
    """Where a process maps the RAM file for writing of its own, by ascending offset.

    Raises:
        RamDeltaError: It maps it not at all, in part, or shared with others.
    """
    device = f"{os.major(ram.device):02x}:{os.minor(ram.device):02x}"
    pieces = []
    for line in _read_maps(pid):
        fields = line.split(maxsplit=5)
        if len(fields) < 5 or fields[3] != device or fields[4] != str(ram.inode):
            continue
        if not fields[1].startswith("rw") or fields[1][3] != "p":
            continue
        start, end = (int(part, 16) for part in fields[0].split("-"))
        pieces.append(Piece(start, end, int(fields[2], 16)))
    pieces.sort(key=lambda piece: piece.offset)
    reached = 0
    for piece in pieces:
        if piece.offset != reached:
            break
        reached += piece.end - piece.start
    if reached != ram.size_bytes:
        raise RamDeltaError(
            f"process {pid} has {reached} of the {ram.size_bytes} bytes of RAM mapped privately"
        )
    return tuple(pieces)


class RamScanner:
    """Finds and reads the private pages of one process. Opened ahead, so that a pause is short."""

    def __init__(self, pid: int, memory: RamIdentity | Piece, *, use_ioctl: bool = True) -> None:
        """Open it; `use_ioctl` false reads pagemap as on kernels before 6.7.

        Args:
            memory: The RAM file, or a range of memory that is the process's own anyway: then found
                are the pages that were written at all.

        Raises:
            RamDeltaError: The process is gone, maps no such file, or may not be looked into.
        """
        self.pid = pid
        self.pieces = (memory,) if isinstance(memory, Piece) else find_ram(pid, memory)
        self._regions = array("Q", bytes(3 * 8 * _SCAN_REGIONS))
        try:
            self._pagemap = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as exc:
            raise RamDeltaError(f"process {pid} may not be looked into: {exc}; {_ATTACH_REMEDY}") from exc
        self.by_ioctl = use_ioctl and self._has_ioctl()

    def __enter__(self) -> Self:
        """Use it in a `with`."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Let go of the process. Idempotent."""
        if self._pagemap >= 0:
            os.close(self._pagemap)
            self._pagemap = -1

    def scan(self) -> Extents:
        """Where the process has pages of its own now.

        Raises:
            RamDeltaError: The process is gone.
        """
        offsets, lengths = array("Q"), array("Q")
        try:
            for piece in self.pieces:
                runs = self._scan_by_ioctl(piece) if self.by_ioctl else self._scan_by_entries(piece)
                for starts, ends in runs:
                    shift = piece.offset - piece.start
                    offsets.extend(map(shift.__add__, starts))
                    lengths.extend(map(sub, ends, starts))
        except OSError as exc:
            raise RamDeltaError(f"the pages of process {self.pid} cannot be listed: {exc}") from exc
        return Extents(offsets, lengths)

    def read(self, extents: Extents, into: PageBuffer, *, helpers: Executor | None = None) -> None:
        """Copy the pages out, back to back. `helpers` lets a second thread copy the second half.

        Raises:
            RamDeltaError: They do not fit, or the process is gone.
        """
        if extents.size_bytes > into.capacity_bytes:
            raise RamDeltaError(f"{extents.size_bytes} bytes of RAM do not fit into {into.capacity_bytes}")
        _transfer(_libc.process_vm_readv, self.pid, self.pieces, extents, into.address, helpers)

    def _has_ioctl(self) -> bool:
        first = self.pieces[0].start
        try:
            self._ioctl(first, first + PAGE)
        except OSError as exc:
            # ENOTTY: an older kernel; EPERM and ENOSYS: a filter of system calls.
            if exc.errno in (errno.ENOTTY, errno.EINVAL, errno.EPERM, errno.ENOSYS):
                return False
            raise RamDeltaError(f"the pages of process {self.pid} cannot be listed: {exc}") from exc
        return True

    def _ioctl(self, start: int, end: int) -> tuple[int, int]:
        """Fill the regions with pages that are not the file's; returns their number and the end reached."""
        buffer, _length = self._regions.buffer_info()
        argument = bytearray(
            _SCAN_ARG.pack(
                *(_SCAN_ARG.size, 0, start, end, 0, buffer, _SCAN_REGIONS, 0),
                *(_IS_FILE, _IS_FILE, _IS_PRESENT | _IS_SWAPPED, _IS_PRESENT | _IS_SWAPPED),
            )
        )
        found = fcntl.ioctl(self._pagemap, _PAGEMAP_SCAN, argument, True)
        return found, _SCAN_ARG.unpack(argument)[4]

    def _scan_by_ioctl(self, piece: Piece) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        reached = piece.start
        while reached < piece.end:
            found, end = self._ioctl(reached, piece.end)
            yield self._regions[0 : 3 * found : 3], self._regions[1 : 3 * found : 3]
            # Kernels report an end too early when the last stretch fits into the buffer: only a full
            # buffer means that there is more, and it is behind the last region in any case.
            if found < _SCAN_REGIONS:
                break
            reached = max(end, self._regions[3 * found - 2])

    def _scan_by_entries(self, piece: Piece) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        wanted = (piece.end - piece.start) // PAGE * _ENTRY_BYTES
        at = piece.start // PAGE * _ENTRY_BYTES
        entries = b""
        while len(entries) < wanted:
            more = os.pread(self._pagemap, wanted - len(entries), at + len(entries))
            if not more:
                raise OSError(errno.EIO, "pagemap is shorter than the mapping")
            entries += more
        tops = entries[_ENTRY_BYTES - 1 :: _ENTRY_BYTES].translate(_PRIVATE)
        spans = [match.span() for match in _PRIVATE_RUN.finditer(tops)]
        yield [piece.start + a * PAGE for a, _ in spans], [piece.start + b * PAGE for _, b in spans]


def write_delta(
    pid: int, memory: RamIdentity | Piece, delta: RamDelta, *, helpers: Executor | None = None
) -> None:
    """Put the pages into another process that maps the same file privately; it must not run the guest yet.

    Args:
        memory: The RAM file, or where the range begins that the pages are of.

    Raises:
        RamDeltaError: The process is gone, maps no such file, or has no memory left.
    """
    pieces = (memory,) if isinstance(memory, Piece) else find_ram(pid, memory)
    _transfer(_libc.process_vm_writev, pid, pieces, delta.extents, delta.pages.address, helpers)


def _read_maps(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/maps").read_text().splitlines()
    except PermissionError as exc:
        raise RamDeltaError(f"process {pid} may not be looked into: {exc}; {_ATTACH_REMEDY}") from exc
    except OSError as exc:
        raise RamDeltaError(f"process {pid} is gone: {exc}") from exc


def _addresses(pieces: Sequence[Piece], extents: Extents) -> tuple[array[int], array[int]]:
    """The extents as addresses and lengths in a process, cut where the mapping is."""
    if len(pieces) == 1:
        shift = pieces[0].start - pieces[0].offset
        return array("Q", map(shift.__add__, extents.offsets)), extents.lengths
    starts, lengths = array("Q"), array("Q")
    remaining = iter(pieces)
    piece = next(remaining)
    for extent_offset, extent_length in zip(extents.offsets, extents.lengths, strict=True):
        offset, length = extent_offset, extent_length
        while length:
            while offset >= piece.offset + piece.end - piece.start:
                piece = next(remaining)
            part = min(length, piece.offset + piece.end - piece.start - offset)
            starts.append(piece.start + offset - piece.offset)
            lengths.append(part)
            offset, length = offset + part, length - part
    return starts, lengths


def _transfer(
    call: ctypes._NamedFuncPointer,
    pid: int,
    pieces: Sequence[Piece],
    extents: Extents,
    local: int,
    helpers: Executor | None,
) -> None:
    """Move between one local run of bytes and the extents in another process."""
    starts, lengths = _addresses(pieces, extents)
    vector = array("Q", bytes(16 * len(starts)))
    vector[0::2] = starts
    vector[1::2] = lengths
    middle, half = _middle(lengths) if helpers is not None else (len(lengths), sum(lengths))
    second = None
    if helpers is not None and middle < len(lengths):
        second = helpers.submit(_move, call, pid, vector, middle, len(lengths), local + half)
    try:
        _move(call, pid, vector, 0, middle, local)
    finally:
        if second is not None:
            second.result()


def _middle(lengths: array[int]) -> tuple[int, int]:
    """Index and number of bytes at which a list of lengths has about half of its bytes before it."""
    total, reached = sum(lengths), 0
    for index, length in enumerate(lengths):
        if 2 * reached >= total:
            return index, reached
        reached += length
    return len(lengths), reached


def _move(
    call: ctypes._NamedFuncPointer, pid: int, vector: array[int], first: int, last: int, local: int
) -> None:
    address, _length = vector.buffer_info()
    own = (ctypes.c_uint64 * 2)()
    for start in range(first, last, _IOV_MAX):
        end = min(start + _IOV_MAX, last)
        size = sum(vector[2 * start + 1 : 2 * end : 2])
        own[0], own[1] = local, size
        moved = call(pid, ctypes.addressof(own), 1, address + 16 * start, end - start, 0)
        if moved != size:
            code = ctypes.get_errno()
            reason = os.strerror(code) if moved < 0 else f"only {moved} of {size} bytes"
            remedy = f"; {_ATTACH_REMEDY}" if moved < 0 and code == errno.EPERM else ""
            raise RamDeltaError(f"the memory of process {pid} cannot be copied: {reason}{remedy}")
        local += size
