"""Pages of guest RAM that differ from the golden RAM file, read from and written into processes.

A clone maps the golden file privately: the kernel gives it a page of its own for each that it writes
to. Those pages, and their places in the file, are all that has to be copied to make another process
the same. They are found through `/proc/<pid>/pagemap`: by the ioctl PAGEMAP_SCAN where the kernel has
it (6.7 and later), else by reading an entry for each page (Linux: admin-guide/mm/pagemap.rst).

Everything here blocks, for milliseconds, most of them without the interpreter's lock: call it in
threads. Nothing is sent to the process, which need not know.
"""

from __future__ import annotations

import ctypes
import enum
import errno
import fcntl
import os
import re
import struct
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from ctypes import c_int, c_ssize_t, c_ulong, c_void_p
from dataclasses import dataclass
from itertools import accumulate
from operator import sub
from pathlib import Path
from typing import Self

from osgym_host.errors import OsgymHostError
from osgym_qemu.branching.ram_pages import PAGE, Extents, Pages, RamDelta, union
from osgym_qemu.golden.ram_file import RamIdentity

_PAGEMAP_SCAN = 0xC0606610  # _IOWR('f', 16, struct pm_scan_arg), linux/fs.h
_SCAN_ARG = struct.Struct("12Q")
_IS_WRITTEN, _IS_FILE, _IS_PRESENT, _IS_SWAPPED = 1 << 1, 1 << 2, 1 << 3, 1 << 4  # PAGE_IS_*, linux/fs.h
_WP_MATCHING, _CHECK_WPASYNC = 1 << 0, 1 << 1  # PM_SCAN_*, the same
_UNWATCHED = (errno.EPERM, errno.EINVAL)
_SCAN_REGIONS = 8192  # per call of the ioctl: 192 KiB of buffer
_ENTRY_BYTES = 8
# The top byte of a pagemap entry: bit 63 present, 62 swapped, 61 a page of a file or shared.
_PRIVATE = bytes(bool(top & 0xC0) and not top & 0x20 for top in range(256))
_PRIVATE_RUN = re.compile(b"\x01+")
_IOV_MAX = 1024
_ATTACH_REMEDY = "run the host agent as root, or allow it with /proc/sys/kernel/yama/ptrace_scope = 0"

_libc = ctypes.CDLL(None, use_errno=True)
for _name in ("process_vm_readv", "process_vm_writev"):
    getattr(_libc, _name).restype = c_ssize_t
    getattr(_libc, _name).argtypes = [c_int, c_void_p, c_ulong, c_void_p, c_ulong, c_ulong]


class RamDeltaError(OsgymHostError):
    """Failure to find, read or write the memory of a process."""


class _WritesNotTracked(Exception):  # an answer, not an error
    """Lack of write tracking for this memory."""


class _PageQuery(enum.Enum):
    """Flags and mask of the ioctl for a query."""

    OWN = (0, _IS_FILE)
    WATCH = (_WP_MATCHING | _CHECK_WPASYNC, _IS_FILE)
    WRITTEN = (0, _IS_FILE | _IS_WRITTEN)
    WRITTEN_AND_WATCH = (_WP_MATCHING | _CHECK_WPASYNC, _IS_FILE | _IS_WRITTEN)


@dataclass(frozen=True, slots=True)
class MappedRange:
    """Mapped part of the RAM file: addresses `start` to `end` show it from `offset` on."""

    start: int
    end: int
    offset: int


@dataclass(frozen=True, slots=True)
class RamMap:
    """Mappings of the RAM in a process.

    Attributes:
        pieces: Mappings of the whole RAM, by ascending offset.
        inherited: Runs mapped from another file than the golden one: pages of its branch point.
    """

    pieces: tuple[MappedRange, ...]
    inherited: Extents


def find_ram(pid: int, ram: RamIdentity) -> RamMap:
    """Return the private writable mappings of the RAM file in a process.

    Raises:
        RamDeltaError: The file is not mapped, only in part, or shared.
    """
    device = f"{os.major(ram.device):02x}:{os.minor(ram.device):02x}"
    golden, others = [], []
    for line in _read_maps(pid):
        fields = line.split(maxsplit=5)
        if len(fields) < 5 or not fields[1].startswith("rw") or fields[1][3] != "p":
            continue
        start, end = (int(part, 16) for part in fields[0].split("-"))
        found = MappedRange(start, end, int(fields[2], 16))
        if fields[3] == device and fields[4] == str(ram.inode):
            golden.append(found)
        elif fields[4] != "0":
            others.append(found)
    golden.sort(key=lambda piece: piece.offset)
    if golden and _reached(golden) != ram.size_bytes:
        golden, inherited = _with_inherited(golden, others, ram.size_bytes)
    else:
        inherited = Extents(array("Q"), array("Q"))
    if (reached := _reached(golden)) != ram.size_bytes:
        raise RamDeltaError(
            f"process {pid} has {reached} of the {ram.size_bytes} bytes of RAM mapped privately"
        )
    return RamMap(tuple(golden), inherited)


def _reached(pieces: Sequence[MappedRange]) -> int:
    """Return the offset up to which pieces show a file without a hole."""
    reached = 0
    for piece in pieces:
        if piece.offset != reached:
            break
        reached += piece.end - piece.start
    return reached


def _with_inherited(
    golden: Sequence[MappedRange], others: Sequence[MappedRange], size_bytes: int
) -> tuple[list[MappedRange], Extents]:
    """Return the RAM as one piece, parts of which are covered by mappings of another file."""
    base = golden[0].start - golden[0].offset
    offsets, lengths = array("Q"), array("Q")
    for piece in others:
        # Pages of a branch point lie in its file where they lie in the RAM.
        if piece.start - piece.offset == base and piece.end <= base + size_bytes:
            offsets.append(piece.offset)
            lengths.append(piece.end - piece.start)
    covered = sum(piece.end - piece.start for piece in golden) + sum(lengths)
    if covered != size_bytes or any(piece.start - piece.offset != base for piece in golden):
        return list(golden), Extents(array("Q"), array("Q"))
    return [MappedRange(base, base + size_bytes, 0)], Extents(offsets, lengths)


class RamScanner:
    """Finder and reader of the private pages of one process. Opened ahead, so that a pause is short."""

    def __init__(self, pid: int, memory: RamIdentity | MappedRange, *, use_ioctl: bool = True) -> None:
        """Open it; `use_ioctl` false reads pagemap as on kernels before 6.7.

        Args:
            memory: The RAM file, or a range of memory that is the process's own anyway: then found
                are the pages that were written at all.

        Raises:
            RamDeltaError: The process is gone, maps no such file, or may not be looked into.
        """
        self.pid = pid
        found = _mapped(pid, memory)
        self.pieces, self.inherited = found.pieces, found.inherited
        self._regions = array("Q", bytes(3 * 8 * _SCAN_REGIONS))
        try:
            self._pagemap = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as exc:
            raise RamDeltaError(f"process {pid} cannot be inspected: {exc}; {_ATTACH_REMEDY}") from exc
        self.by_ioctl = use_ioctl and self._has_ioctl()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the process. Idempotent."""
        if self._pagemap >= 0:
            os.close(self._pagemap)
            self._pagemap = -1

    def scan(self) -> Extents:
        """Return pages that differ from the golden RAM, or may differ.

        Raises:
            RamDeltaError: The process is gone.
        """
        return union(self._scan(_PageQuery.OWN), self.inherited)

    def scan_and_watch(self) -> Extents | None:
        """Scan, and let the kernel track writes to pages from this moment on.

        Returns:
            Differing pages; None without write tracking, for lack of our library or of a newer kernel.

        Raises:
            RamDeltaError: The process is gone.
        """
        if not self.by_ioctl:
            return None
        try:
            return union(self._scan(_PageQuery.WATCH), self.inherited)
        except _WritesNotTracked:
            return None

    def scan_written(self, *, watch_on: bool = False) -> Extents:
        """Return pages written since `scan_and_watch`.

        Args:
            watch_on: True to track writes after this call as well.

        Raises:
            RamDeltaError: The process is gone.
        """
        return self._scan(_PageQuery.WRITTEN_AND_WATCH if watch_on else _PageQuery.WRITTEN)

    def _scan(self, query: _PageQuery) -> Extents:
        offsets, lengths = array("Q"), array("Q")
        try:
            for piece in self.pieces:
                by_ioctl = self.by_ioctl
                runs = self._by_ioctl(piece, query) if by_ioctl else self._by_entries(piece)
                for starts, ends in runs:
                    shift = piece.offset - piece.start
                    offsets.extend(map(shift.__add__, starts))
                    lengths.extend(map(sub, ends, starts))
        except OSError as exc:
            if exc.errno in _UNWATCHED and query is _PageQuery.WATCH:
                raise _WritesNotTracked from exc
            raise RamDeltaError(f"the pages of process {self.pid} cannot be listed: {exc}") from exc
        return Extents(offsets, lengths)

    def read(self, extents: Extents, into: Pages, *, helpers: Executor | None = None) -> None:
        """Copy the pages out. With `helpers` a second thread copies the second half.

        Raises:
            RamDeltaError: The pages do not fit, or the process is gone.
        """
        if extents.size_bytes > into.capacity_bytes:
            raise RamDeltaError(f"{extents.size_bytes} bytes of RAM do not fit into {into.capacity_bytes}")
        _transfer(_libc.process_vm_readv, self.pid, self.pieces, RamDelta(extents, into), helpers)

    def _has_ioctl(self) -> bool:
        first = self.pieces[0].start
        try:
            self._ioctl(first, first + PAGE, _PageQuery.OWN)
        except OSError as exc:
            # ENOTTY: an older kernel; EPERM and ENOSYS: a filter of system calls.
            if exc.errno in (errno.ENOTTY, errno.EINVAL, errno.EPERM, errno.ENOSYS):
                return False
            raise RamDeltaError(f"the pages of process {self.pid} cannot be listed: {exc}") from exc
        return True

    def _ioctl(self, start: int, end: int, query: _PageQuery) -> tuple[int, int]:
        """Fill the regions with the pages in query; returns their number and the end reached."""
        buffer, _length = self._regions.buffer_info()
        flags, mask = query.value
        argument = bytearray(
            _SCAN_ARG.pack(
                *(_SCAN_ARG.size, flags, start, end, 0, buffer, _SCAN_REGIONS, 0),
                *(_IS_FILE, mask, _IS_PRESENT | _IS_SWAPPED, _IS_PRESENT | _IS_SWAPPED),
            )
        )
        found = fcntl.ioctl(self._pagemap, _PAGEMAP_SCAN, argument, True)
        return found, _SCAN_ARG.unpack(argument)[4]

    def _by_ioctl(
        self, piece: MappedRange, query: _PageQuery
    ) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        reached = piece.start
        while reached < piece.end:
            found, end = self._ioctl(reached, piece.end, query)
            yield self._regions[0 : 3 * found : 3], self._regions[1 : 3 * found : 3]
            # Kernels report an end too early when the last stretch fits into the buffer: only a full
            # buffer means that there is more, and it is behind the last region in any case.
            if found < _SCAN_REGIONS:
                break
            reached = max(end, self._regions[3 * found - 2])

    def _by_entries(self, piece: MappedRange) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
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
    pid: int, memory: RamIdentity | MappedRange, delta: RamDelta, *, helpers: Executor | None = None
) -> None:
    """Write the pages into another process that maps the same file privately; its guest must not run yet.

    Args:
        memory: RAM file, or begin of the range of the pages.

    Raises:
        RamDeltaError: The process is gone, maps no such file, or has no memory left.
    """
    _transfer(_libc.process_vm_writev, pid, _mapped(pid, memory).pieces, delta, helpers)


def _mapped(pid: int, memory: RamIdentity | MappedRange) -> RamMap:
    if isinstance(memory, MappedRange):
        return RamMap((memory,), Extents(array("Q"), array("Q")))
    return find_ram(pid, memory)


def _read_maps(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/maps").read_text().splitlines()
    except PermissionError as exc:
        raise RamDeltaError(f"process {pid} cannot be inspected: {exc}; {_ATTACH_REMEDY}") from exc
    except OSError as exc:
        raise RamDeltaError(f"process {pid} has ended: {exc}") from exc


def _addresses(pieces: Sequence[MappedRange], extents: Extents) -> tuple[array[int], array[int], array[int]]:
    """Return the extents as addresses, lengths and offsets, cut where the mapping is."""
    if len(pieces) == 1:
        shift = pieces[0].start - pieces[0].offset
        return array("Q", map(shift.__add__, extents.offsets)), extents.lengths, extents.offsets
    starts, lengths, offsets = array("Q"), array("Q"), array("Q")
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
            offsets.append(offset)
            offset, length = offset + part, length - part
    return starts, lengths, offsets


def _transfer(
    call: ctypes._NamedFuncPointer,
    pid: int,
    pieces: Sequence[MappedRange],
    delta: RamDelta,
    helpers: Executor | None,
) -> None:
    """Copy between memory of this process and the extents in another one."""
    starts, lengths, offsets = _addresses(pieces, delta.extents)
    if delta.pages.packed:
        offsets = array("Q", accumulate(lengths, initial=0))[:-1]
    local = array("Q", map(delta.pages.address.__add__, offsets))
    remote_vector, local_vector = _vector(starts, lengths), _vector(local, lengths)
    middle = _middle(lengths) if helpers is not None else len(lengths)
    second = None
    if helpers is not None and middle < len(lengths):
        second = helpers.submit(_move, call, pid, local_vector, remote_vector, middle, len(lengths))
    try:
        _move(call, pid, local_vector, remote_vector, 0, middle)
    finally:
        if second is not None:
            second.result()


def _vector(starts: array[int], lengths: array[int]) -> array[int]:
    """Return an array of `struct iovec`."""
    vector = array("Q", bytes(16 * len(starts)))
    vector[0::2], vector[1::2] = starts, lengths
    return vector


def _middle(lengths: array[int]) -> int:
    """Return the index at which a list of lengths has about half of its bytes before it."""
    total, reached = sum(lengths), 0
    for index, length in enumerate(lengths):
        if 2 * reached >= total:
            return index
        reached += length
    return len(lengths)


def _move(
    call: ctypes._NamedFuncPointer, pid: int, local: array[int], remote: array[int], first: int, last: int
) -> None:
    local_at, remote_at = local.buffer_info()[0], remote.buffer_info()[0]
    for start in range(first, last, _IOV_MAX):
        count = min(_IOV_MAX, last - start)
        size = sum(remote[2 * start + 1 : 2 * (start + count) : 2])
        moved = call(pid, local_at + 16 * start, count, remote_at + 16 * start, count, 0)
        if moved != size:
            code = ctypes.get_errno()
            reason = os.strerror(code) if moved < 0 else f"only {moved} of {size} bytes were copied"
            remedy = f"; {_ATTACH_REMEDY}" if moved < 0 and code == errno.EPERM else ""
            raise RamDeltaError(f"the memory of process {pid} cannot be copied: {reason}{remedy}")
