"""A read-only disk of layers: a raw or qcow2 image at the bottom, qcow2 overlays above it.

Layout of qcow2: docs/interop/qcow2.txt of QEMU. Every offset comes from a file that may be hostile: it is
only ever used to read that file, and reading past its end is an error.
"""

from __future__ import annotations

import enum
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from osgym_host.images.qcow2 import Qcow2Error, check_layout, read_header

_HEAD_BYTES = 512
_OFFSET = 0x00FFFFFFFFFFFE00
_COMPRESSED, _ZERO = 1 << 62, 1
_SECTOR = 512
_DIRTY = 1
"""The one incompatible feature that changes nothing for a reader: refcounts may be stale."""


class DiskUnreadable(Exception):
    """The disk or file system is damaged, or has a feature that this reader lacks."""


class NotThere(DiskUnreadable):
    """The path leads nowhere, or not to a file."""


class LayerFormat(enum.StrEnum):
    RAW = "raw"
    QCOW2 = "qcow2"


class _RawLayer:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.virtual_bytes = os.fstat(fd).st_size

    def read(self, offset: int, length: int) -> tuple[int, bytes | None]:
        """Return the length of the run of bytes at an offset, at most `length`, and the bytes."""
        count = min(length, max(0, self.virtual_bytes - offset))
        if not count:
            return length, bytes(length)
        return count, _read(self._fd, offset, count)


@dataclass(frozen=True, slots=True)
class _Cluster:
    offset: int = 0
    compressed_bytes: int = 0
    zero: bool = False


class _Qcow2Layer:
    """A qcow2 layer. A file that OSGym's machines do not write raises `DiskUnreadable`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        try:
            self._header = header = read_header(os.pread(fd, _HEAD_BYTES, 0))
            check_layout(header, os.fstat(fd).st_size)
        except Qcow2Error as error:
            raise DiskUnreadable(f"a layer of the disk: {error}") from error
        if header.encrypted or header.incompatible & ~_DIRTY:
            raise DiskUnreadable(f"a layer of the disk has features {header.incompatible:#x}")
        self.virtual_bytes = header.virtual_bytes
        self._bits = header.cluster_bits
        table = _read(fd, header.l1_at, 8 * header.l1_entries)
        self._l1 = struct.unpack(f">{header.l1_entries}Q", table)
        self._l2: dict[int, tuple[int, ...]] = {}
        self._unpacked: tuple[int, bytes] = (-1, b"")

    def read(self, offset: int, length: int) -> tuple[int, bytes | None]:
        """Return the run of bytes at an offset, with its length; None if the layer below has them."""
        size = 1 << self._bits
        inside = offset & (size - 1)
        count = min(length, size - inside)
        cluster = self._find(offset)
        if cluster is None:
            return count, None
        if cluster.zero:
            return count, bytes(count)
        if cluster.compressed_bytes:
            return count, self._unpack(cluster)[inside : inside + count]
        return count, _read(self._fd, cluster.offset + inside, count)

    def _find(self, offset: int) -> _Cluster | None:
        number = offset >> self._bits
        entries = 1 << (self._bits - 3)
        if number // entries >= len(self._l1):
            return None
        table_at = self._l1[number // entries] & _OFFSET
        if not table_at:
            return None
        if table_at not in self._l2:
            table = _read(self._fd, table_at, 8 * entries)
            self._l2[table_at] = struct.unpack(f">{entries}Q", table)
        entry = self._l2[table_at][number % entries]
        if entry & _COMPRESSED:
            at_bits = 62 - (self._bits - 8)
            at = entry & ((1 << at_bits) - 1)
            sectors = ((entry & (_COMPRESSED - 1)) >> at_bits) + 1
            return _Cluster(at, sectors * _SECTOR - at % _SECTOR)
        if entry & _ZERO:
            return _Cluster(zero=True)
        return _Cluster(entry & _OFFSET) if entry & _OFFSET else None

    def _unpack(self, cluster: _Cluster) -> bytes:
        at, data = self._unpacked
        if at != cluster.offset:
            size = 1 << self._bits
            try:
                packed = os.pread(self._fd, cluster.compressed_bytes, cluster.offset)
                data = zlib.decompressobj(wbits=-12).decompress(packed, size)
            except (zlib.error, OSError) as error:
                raise DiskUnreadable(f"a compressed cluster: {error}") from error
            if len(data) != size:
                raise DiskUnreadable("a compressed cluster is too short")
            self._unpacked = (cluster.offset, data)
        return data


class LayeredDisk:
    """The disk as the guest saw it when its layers were frozen.

    Args:
        fds: Its layers from the bottom up, open for reading; they stay the caller's.

    Raises:
        DiskUnreadable: A layer is not what it should be.
    """

    def __init__(self, fds: Sequence[int], formats: Sequence[LayerFormat]) -> None:
        layers = zip(fds, formats, strict=True)
        self._layers = [_RawLayer(fd) if kind is LayerFormat.RAW else _Qcow2Layer(fd) for fd, kind in layers]
        self._layers.reverse()

    @property
    def size_bytes(self) -> int:
        """Size of the disk in the guest, in bytes."""
        return self._layers[0].virtual_bytes

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the disk.

        Raises:
            DiskUnreadable: They are not all on it.
        """
        if offset < 0 or offset + length > self.size_bytes:
            raise DiskUnreadable(f"{length} bytes at {offset} are not on the disk")
        parts = []
        while length:
            data = self._some(offset, length)
            parts.append(data)
            offset += len(data)
            length -= len(data)
        return b"".join(parts)

    def _some(self, offset: int, length: int) -> bytes:
        """Return the first bytes from an offset on, of the uppermost layer that has them."""
        for layer in self._layers:
            length, data = layer.read(offset, length)
            if data is not None:
                return data
        return bytes(length)


def _read(fd: int, offset: int, length: int) -> bytes:
    try:
        data = os.pread(fd, length, offset)
    except (OSError, OverflowError) as error:
        raise DiskUnreadable(f"{length} bytes at {offset} of a layer: {error}") from error
    if len(data) != length:
        raise DiskUnreadable(f"{length} bytes at {offset} are not in a layer")
    return data
