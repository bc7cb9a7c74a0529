"""A reader of single files of an ext4 file system.

Layout: Documentation/filesystems/ext4 of Linux. The journal is not replayed: the guest is asked to write
everything back before its disk is frozen, and what it did not is as if it had not been saved. A hostile file
system costs bounded time and memory: chains are followed a fixed number of times, and sizes are compared
before anything is read.
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from osgym_host.tasks.evaluator.disk.layers import DiskUnreadable, LayeredDisk, NotThere

_SUPERBLOCK_AT, _SUPERBLOCK_BYTES = 1024, 1024
_MAGIC, _EXTENT_MAGIC = 0xEF53, 0xF30A
_FILETYPE, _RECOVER, _EXTENTS, _64BIT, _FLEX_BG = 0x2, 0x4, 0x40, 0x80, 0x200
_CSUM_SEED, _LARGEDIR = 0x2000, 0x4000
_READABLE = _FILETYPE | _RECOVER | _EXTENTS | _64BIT | _FLEX_BG | _CSUM_SEED | _LARGEDIR
_INODE_EXTENTS, _INODE_ENCRYPTED = 0x80000, 0x800
_ROOT = 2
_FAST_LINK_BYTES = 60
_UNWRITTEN = 1 << 15
"""A longer extent is one that was allocated and never written: it reads as zeros."""
_INODE_BYTES = 128
"""Length of what every inode has; what is longer has extended attributes at its end."""
_ATTRIBUTES_MAGIC = 0xEA020000
_ATTRIBUTE = struct.Struct("<BBHII4x")
_MAX_DEPTH, _MAX_EXTENTS = 5, 1 << 16
_MAX_FOLDER_BYTES, _MAX_LINK_BYTES = 16 << 20, 4096
_GPT, _GPT_ENTRY = struct.Struct("<8s64xQII"), struct.Struct("<16s16sQQ")
_LBA, _MAX_PARTITIONS = 512, 128


@dataclass(frozen=True, slots=True)
class Inode:
    """Metadata of a file, a folder or a link."""

    number: int
    mode: int
    size: int
    flags: int
    blocks: bytes
    at: int


def find_volume(disk: LayeredDisk) -> Ext4:
    """Return the largest ext4 of a disk: a partition of a GPT, or the whole disk.

    Raises:
        DiskUnreadable: The disk has no ext4, or a damaged one.
    """
    return Ext4(disk, _partition(disk))


def _partition(disk: LayeredDisk) -> int:
    found = [(size, start) for start, size in _partitions(disk) if _is_ext4(disk, start)]
    if not found:
        raise DiskUnreadable("the disk has no ext4 file system")
    return max(found)[1]


def _partitions(disk: LayeredDisk) -> Iterator[tuple[int, int]]:
    yield 0, disk.size_bytes
    if disk.size_bytes < 4 * _LBA:
        return
    magic, table_at, count, size = _GPT.unpack_from(disk.read(_LBA, _LBA))
    if magic != b"EFI PART" or not _GPT_ENTRY.size <= size <= _LBA or count > _MAX_PARTITIONS:
        return
    table = disk.read(table_at * _LBA, count * size)
    for number in range(count):
        kind, _, first, last = _GPT_ENTRY.unpack_from(table, number * size)
        if any(kind) and 0 < first <= last < disk.size_bytes // _LBA:
            yield first * _LBA, (last - first + 1) * _LBA


def _is_ext4(disk: LayeredDisk, start: int) -> bool:
    at = start + _SUPERBLOCK_AT
    if at + _SUPERBLOCK_BYTES > disk.size_bytes:
        return False
    return bool(struct.unpack_from("<H", disk.read(at, 64), 56)[0] == _MAGIC)


class Ext4:
    """The file system that begins at `start` of a disk."""

    def __init__(self, disk: LayeredDisk, start: int) -> None:
        self._disk, self._start = disk, start
        block = disk.read(start + _SUPERBLOCK_AT, _SUPERBLOCK_BYTES)
        (self._inodes,) = struct.unpack_from("<I", block, 0)
        first_block, log_size = struct.unpack_from("<II", block, 20)
        (self._per_group,) = struct.unpack_from("<I", block, 40)
        (self._inode_bytes,) = struct.unpack_from("<H", block, 88)
        (features,) = struct.unpack_from("<I", block, 96)
        (descriptor_bytes,) = struct.unpack_from("<H", block, 254)
        if features & ~_READABLE:
            raise DiskUnreadable(f"the ext4 file system has unsupported features {features:#x}")
        if log_size > 6 or not self._per_group or not 128 <= self._inode_bytes <= 4096:
            raise DiskUnreadable("the ext4 file system has impossible sizes")
        self._block_bytes = 1024 << log_size
        self._descriptor_bytes = descriptor_bytes if features & _64BIT else 32
        if not 32 <= self._descriptor_bytes <= 1024:
            raise DiskUnreadable("the ext4 file system has impossible sizes")
        self._descriptors_at = (first_block + 1) * self._block_bytes

    def _read(self, offset: int, length: int) -> bytes:
        return self._disk.read(self._start + offset, length)

    def inode(self, number: int) -> Inode:
        if not 0 < number <= self._inodes:
            raise DiskUnreadable(f"there is no inode {number}")
        group, index = divmod(number - 1, self._per_group)
        descriptor = self._read(self._descriptors_at + group * self._descriptor_bytes, self._descriptor_bytes)
        (table,) = struct.unpack_from("<I", descriptor, 8)
        if self._descriptor_bytes >= 64:
            table |= struct.unpack_from("<I", descriptor, 40)[0] << 32
        at = table * self._block_bytes + index * self._inode_bytes
        data = self._read(at, _INODE_BYTES)
        mode, _, low = struct.unpack_from("<HHI", data, 0)
        (flags,) = struct.unpack_from("<I", data, 32)
        (high,) = struct.unpack_from("<I", data, 108)
        return Inode(number, mode, low | high << 32, flags, data[40:100], at)

    @property
    def root(self) -> Inode:
        return self.inode(_ROOT)

    def attribute(self, inode: Inode, kind: int, name: bytes) -> bytes | None:
        """Return an extended attribute that is stored within an inode; None if there is none.

        Args:
            kind: Number of the name's prefix, as `EXT4_XATTR_INDEX_TRUSTED`.
        """
        data = self._read(inode.at, self._inode_bytes)
        if self._inode_bytes <= _INODE_BYTES + 4:
            return None
        first = _INODE_BYTES + int(struct.unpack_from("<H", data, _INODE_BYTES)[0]) + 4
        if first > len(data) or struct.unpack_from("<I", data, first - 4)[0] != _ATTRIBUTES_MAGIC:
            return None
        at = first
        while at + _ATTRIBUTE.size <= len(data) and any(data[at : at + 4]):
            name_bytes, found, offset, _, length = _ATTRIBUTE.unpack_from(data, at)
            if found == kind and data[at + _ATTRIBUTE.size :][:name_bytes] == name:
                return data[first + offset :][:length]
            at += _ATTRIBUTE.size + (name_bytes + 3 & ~3)
        return None

    def link(self, inode: Inode) -> str:
        if inode.size < _FAST_LINK_BYTES and not inode.flags & _INODE_EXTENTS:
            data = inode.blocks[: inode.size]
        else:
            data = self.content(inode, _MAX_LINK_BYTES)
        return data.decode("utf-8", "surrogateescape")

    def entry(self, folder: Inode, name: bytes) -> Inode:
        """Return a folder's entry of that name.

        Raises:
            NotThere: Nothing, or it is no folder.
        """
        if not stat.S_ISDIR(folder.mode):
            raise NotThere("is not there")
        data = self.content(folder, _MAX_FOLDER_BYTES)
        at = 0
        while at + 8 <= len(data):
            number, length, name_bytes = struct.unpack_from("<IHB", data, at)
            if length < 8 or length % 4:
                raise DiskUnreadable("a folder is damaged")
            if number and data[at + 8 : at + 8 + name_bytes] == name:
                return self.inode(number)
            at += length
        raise NotThere("is not there")

    def content(self, inode: Inode, max_bytes: int) -> bytes:
        if inode.size > max_bytes:
            raise DiskUnreadable(f"is larger than {max_bytes} bytes")
        if inode.flags & _INODE_ENCRYPTED or (inode.size and not inode.flags & _INODE_EXTENTS):
            raise DiskUnreadable(f"is stored in an unsupported way ({inode.flags:#x})")
        found = bytearray(inode.size)
        for first, blocks, at in self._extents(inode):
            begin = first * self._block_bytes
            count = min(blocks * self._block_bytes, inode.size - begin)
            if count > 0:
                found[begin : begin + count] = self._read(at * self._block_bytes, count)
        return bytes(found)

    def _extents(self, inode: Inode) -> Iterator[tuple[int, int, int]]:
        """Yield each written extent: first block in the file, number of blocks, first block on the disk."""
        nodes, seen = [(inode.blocks, _MAX_DEPTH)], 0
        while nodes:
            node, depth_left = nodes.pop()
            magic, count, _, depth = struct.unpack_from("<HHHH", node, 0)
            if magic != _EXTENT_MAGIC or depth > depth_left or 12 * (count + 1) > len(node):
                raise DiskUnreadable(f"inode {inode.number} is damaged")
            seen += count
            if seen > _MAX_EXTENTS:
                raise DiskUnreadable("is in too many pieces")
            for at in range(12, 12 * (count + 1), 12):
                if depth:
                    _, low, high = struct.unpack_from("<IIH", node, at)
                    child = self._read((low | high << 32) * self._block_bytes, self._block_bytes)
                    nodes.append((child, depth - 1))
                    continue
                first, length, high, low = struct.unpack_from("<IHHI", node, at)
                if length <= _UNWRITTEN:
                    yield first, length, low | high << 32
