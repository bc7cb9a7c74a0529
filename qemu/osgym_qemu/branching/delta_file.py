"""File of guest RAM pages, for checkpoints on disk and for other hosts.

Layout, little endian: magic, version, page size, size of the RAM, number of runs, number of chunks, CRC-32
of the runs (`_HEADER`); then an offset and a length for each run of pages; then the pages back to back, cut
into chunks of 4 MiB (the last one is shorter), each with its compressed length before it. Level 1 of zlib:
a desktop's pages shrink to a quarter, and each core compresses some 100 MB/s.

A file may come from another host and is not trusted: every number is checked before it is used, also
against the length of the file, before there is memory for the pages; no chunk may grow beyond its place.
"""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from osgym_host.errors import OsgymHostError
from osgym_qemu.branching.ram_pages import PAGE, Extents, PageBuffer, RamDelta

_HEADER = struct.Struct("<8sIIQQQI")
_MAGIC = b"OSGYMRAM"
_VERSION = 1
_LENGTH = struct.Struct("<I")
_CHUNK_BYTES = 4 << 20
_COMPRESSED_MAX = _CHUNK_BYTES + _CHUNK_BYTES // 1000 + 64  # zlib's own bound is 0.03 % and 13 bytes
_MOST_SHRUNK = 1100
"""Largest compression: deflate makes no more than 1,032 bytes of one, so a shorter file lacks pages."""
_LEVEL = 1
_AT_ONCE = 4


class DeltaFileError(OsgymHostError):
    """Error of a file that is damaged, foreign or does not fit."""


def write_file(path: Path, delta: RamDelta, ram_bytes: int, workers: Executor) -> None:
    """Write pages to a new file. Blocking; the workers compress.

    Raises:
        OSError: The file exists, or the disk is full.
    """
    size = delta.size_bytes
    starts = range(0, size, _CHUNK_BYTES)
    with path.open("xb") as file, delta.packed() as pages:
        places = array("Q", bytes(16 * len(delta.extents)))
        places[0::2], places[1::2] = delta.extents.offsets, delta.extents.lengths
        runs = places.tobytes()
        head = (_MAGIC, _VERSION, PAGE, ram_bytes, len(delta.extents), len(starts), zlib.crc32(runs))
        file.write(_HEADER.pack(*head) + runs)
        for chunk in _in_order(starts, pages, workers):
            file.write(_LENGTH.pack(len(chunk)))
            file.write(chunk)


def read_file(path: Path, ram_bytes: int, workers: Executor) -> RamDelta:
    """Read pages. Blocking.

    Args:
        ram_bytes: Size of the RAM to which they must belong.

    Raises:
        DeltaFileError: The file is damaged or of a machine of another size.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        extents = _read_head(file, ram_bytes)
        size = extents.size_bytes
        pages = PageBuffer(size)
        with pages.view() as target:
            pending: deque[Future[None]] = deque()
            try:
                for start in range(0, size, _CHUNK_BYTES):
                    packed = _read_chunk(file)
                    place = target[start : min(start + _CHUNK_BYTES, size)]
                    pending.append(workers.submit(_unpack, packed, place))
                    if len(pending) >= _AT_ONCE:
                        pending.popleft().result()
            finally:
                # Wait for all in any case: they write into the buffer.
                errors = [future.exception() for future in pending]
        for error in errors:
            if error is not None:
                raise error
    return RamDelta(extents, pages)


def check_file(path: Path, ram_bytes: int) -> None:
    """Check that `read_file` will accept a file, in the memory of one chunk. Blocking.

    Raises:
        DeltaFileError: The file is damaged or of a machine of another size.
        OSError: It cannot be read.
    """
    with path.open("rb") as file, memoryview(bytearray(_CHUNK_BYTES)) as scratch:
        left = _read_head(file, ram_bytes).size_bytes
        while left > 0:
            _unpack(_read_chunk(file), scratch[: min(left, _CHUNK_BYTES)])
            left -= _CHUNK_BYTES


def _in_order(starts: range, pages: memoryview, workers: Executor) -> Iterator[bytes]:
    """Yield the compressed chunks in order, a few being compressed at a time."""
    rest = iter(starts)
    pending = deque(workers.submit(_pack, pages, start) for start in islice(rest, _AT_ONCE))
    while pending:
        yield pending.popleft().result()
        pending.extend(workers.submit(_pack, pages, start) for start in islice(rest, 1))


def _pack(pages: memoryview, start: int) -> bytes:
    with pages[start : start + _CHUNK_BYTES] as chunk:
        return zlib.compress(chunk, _LEVEL)


def _unpack(packed: bytes, place: memoryview) -> None:
    with place:
        unpacker = zlib.decompressobj()
        try:
            data = unpacker.decompress(packed, len(place) + 1)
        except zlib.error as exc:
            raise DeltaFileError(f"a chunk is damaged: {exc}") from exc
        if len(data) != len(place) or not unpacker.eof or unpacker.unused_data:
            raise DeltaFileError("a chunk has the wrong size")
        place[:] = data


def _read_head(file: BinaryIO, ram_bytes: int) -> Extents:
    """Return the places of the pages, after checking that the rest is exactly the chunks for them."""
    file_bytes = os.fstat(file.fileno()).st_size
    magic, version, page, size, count, chunks, checksum = _HEADER.unpack(_exactly(file, _HEADER.size))
    if magic != _MAGIC or version != _VERSION:
        raise DeltaFileError("the file has no RAM pages, or a newer version")
    if page != PAGE or size != ram_bytes:
        raise DeltaFileError(f"pages of {page} bytes of {size} bytes of RAM do not fit {PAGE} of {ram_bytes}")
    if count > ram_bytes // PAGE:
        raise DeltaFileError(f"{count} runs are more than the number of pages")
    if _HEADER.size + 16 * count > file_bytes:
        raise DeltaFileError("the file ends too early")
    data = _exactly(file, 16 * count)
    if zlib.crc32(data) != checksum:
        raise DeltaFileError("the list of pages is damaged")
    runs = array("Q", data)
    offsets, lengths = runs[0::2], runs[1::2]
    reached = 0
    for offset, length in zip(offsets, lengths, strict=True):
        if offset < reached or offset % PAGE or length % PAGE or not 0 < length <= ram_bytes - offset:
            raise DeltaFileError("runs of pages overlap, are out of order or lie outside the RAM")
        reached = offset + length
    extents = Extents(offsets, lengths)
    _check_chunks(file, extents.size_bytes, chunks, file_bytes)
    return extents


def _check_chunks(file: BinaryIO, size: int, chunks: int, file_bytes: int) -> None:
    """Follow the chunks by their lengths, then return to the first one."""
    if chunks != -(-size // _CHUNK_BYTES):
        raise DeltaFileError(f"{chunks} chunks cannot hold {size} bytes")
    first = at = file.tell()
    for start in range(0, size, _CHUNK_BYTES):
        file.seek(at)
        (length,) = _LENGTH.unpack(_exactly(file, _LENGTH.size))
        if length > _COMPRESSED_MAX:
            raise DeltaFileError(f"a chunk of {length} bytes is too large")
        if length * _MOST_SHRUNK < min(_CHUNK_BYTES, size - start):
            raise DeltaFileError(f"a chunk of {length} bytes is too small for the size of its pages")
        at += _LENGTH.size + length
        if at > file_bytes:
            raise DeltaFileError("the file ends too early")
    if at != file_bytes:
        raise DeltaFileError("the file is longer than its header says")
    file.seek(first)


def _read_chunk(file: BinaryIO) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(file, _LENGTH.size))
    if length > _COMPRESSED_MAX:
        raise DeltaFileError(f"a chunk of {length} bytes is too large")
    return _exactly(file, length)


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise DeltaFileError("the file ends too early")
    return data
