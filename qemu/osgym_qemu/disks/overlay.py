"""Disks for machines to write to: an overlay over a base, or a copy that shares its blocks.

The file system's abilities decide which. An overlay is written as bytes, without a program: `qemu-img create`
takes 9 ms, this some 0.1 ms. The format is QEMU's docs/interop/qcow2.txt.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from osgym_host.images.errors import ImageError
from osgym_qemu.disks.manifest import DiskFormat

CLUSTER_BITS = 16
"""Size of a cluster: QEMU's default of 64 KiB."""

QCOW2_MAGIC = b"QFI\xfb"
"""First bytes of a qcow2."""

_HEADER = struct.Struct(">4sIQIIQIIQQIIQQQQII")
_BACKING_FORMAT = 0xE2792ACA
_MAX_BACKING_BYTES = 1023
_REFCOUNT_ORDER = 4  # 16 bits each
_FICLONE = 0x40049409
"""linux/fs.h"""


def empty_qcow2(size_bytes: int, backing: str = "", backing_format: str = "") -> tuple[int, dict[int, bytes]]:
    """Return an empty qcow2 of that virtual size, as its length and its non-zero parts by offset.

    Args:
        backing: Path of the backing file as it is to be stored; empty for none.

    Raises:
        ValueError: The size is not in sectors, or the name too long.
    """
    name = os.fsencode(backing)
    if size_bytes <= 0 or size_bytes % 512 or len(name) > _MAX_BACKING_BYTES:
        raise ValueError(f"no overlay of {size_bytes} bytes can be made over {backing!r}")
    cluster = 1 << CLUSTER_BITS
    # A first-level entry stands for a table of one cluster, 8 bytes for each cluster of the disk.
    entries = -(-size_bytes // (cluster * cluster // 8))
    table_clusters = -(-entries * 8 // cluster)
    clusters = 3 + table_clusters  # header, refcount table, refcount block, first-level table
    kind = backing_format.encode() if name else b""
    extensions = (
        struct.pack(">II", _BACKING_FORMAT, len(kind)) + kind + b"\0" * (-len(kind) % 8) if kind else b""
    )
    extensions += struct.pack(">II", 0, 0)
    name_at = _HEADER.size + len(extensions) if name else 0
    header = _HEADER.pack(
        QCOW2_MAGIC, 3, name_at, len(name), CLUSTER_BITS, size_bytes,
        0, entries, 3 * cluster, cluster, 1,  # no encryption; first-level table; refcount table
        0, 0, 0, 0, 0,  # no snapshots, no features
        _REFCOUNT_ORDER, _HEADER.size,
    )  # fmt: skip
    parts = {
        0: header + extensions + name,
        cluster: struct.pack(">Q", 2 * cluster),
        2 * cluster: struct.pack(f">{clusters}H", *[1] * clusters),
    }
    return clusters * cluster, parts


def virtual_size(disk: Path, kind: DiskFormat) -> int:
    """Return the size of a disk as a machine sees it, in bytes.

    Raises:
        ImageError: The file is not a qcow2 though it should be, or cannot be read.
    """
    try:
        with disk.open("rb") as file:
            head = file.read(_HEADER.size)
            length = os.fstat(file.fileno()).st_size
    except OSError as exc:
        raise ImageError(f"{disk} cannot be read: {exc.strerror}") from exc
    if kind is DiskFormat.RAW:
        return length
    if len(head) < _HEADER.size or head[:4] != QCOW2_MAGIC:
        raise ImageError(f"{disk} is not a qcow2")
    return int(struct.unpack_from(">Q", head, 24)[0])


def make_overlay(
    target: Path, size_bytes: int, backing: str = "", kind: DiskFormat = DiskFormat.QCOW2
) -> None:
    """Write a new empty qcow2 for a disk of this size; the file below must not change as long as it lives.

    Args:
        backing: Path of the file below, relative to the target's folder; empty: QEMU is told when it starts.
        kind: Format of the file below.

    Raises:
        OSError: The target is there already, or cannot be written.
    """
    length, parts = empty_qcow2(-(-size_bytes // 512) * 512, backing, str(kind))
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, length)
        for offset, data in parts.items():
            os.pwrite(fd, data, offset)
    finally:
        os.close(fd)


def copy_sharing(target: Path, source: Path) -> None:
    """Make a new file that shares its blocks with `source` until one of them is written (FICLONE).

    Raises:
        OSError: The file system cannot, or the target is there already.
    """
    with source.open("rb") as original:
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.ioctl(fd, _FICLONE, original.fileno())
        except OSError:
            target.unlink()
            raise
        finally:
            os.close(fd)


CANNOT_SHARE = frozenset(
    {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS, errno.EACCES, errno.EPERM}
)
"""Errors of a kernel or file system that cannot share blocks between these files."""


class CowWay(StrEnum):
    """Disk to which a machine writes that boots from a disk image."""

    REFLINK = "reflink"
    OVERLAY = "overlay"


@dataclass(frozen=True, slots=True)
class CowChoice:
    """A kind of disk, with its consequences.

    Attributes:
        format: Best format of disk images.
    """

    way: CowWay
    format: DiskFormat
    reason: str


def choose(*, reflink: bool) -> CowChoice:
    """Choose for a host whose data directory can share blocks between files, or cannot.

    Clones of a golden snapshot write to overlays in both cases. The choice is the format of the base, and the
    disk of a machine that boots from the image.
    """
    if reflink:
        reason = "the file system shares blocks between copies, so a raw disk is copied at no cost"
        return CowChoice(CowWay.REFLINK, DiskFormat.RAW, reason)
    reason = "the file system cannot share blocks between copies, so each machine has a qcow2 overlay"
    return CowChoice(CowWay.OVERLAY, DiskFormat.QCOW2, reason)


def can_reflink(folder: Path) -> bool:
    """Find out by trying whether files in this folder can share blocks.

    Raises:
        OSError: The folder cannot be written for another reason.
    """
    with tempfile.TemporaryDirectory(prefix=".reflink-", dir=folder) as scratch:
        source = Path(scratch) / "source"
        source.write_bytes(b"x" * 65536)
        try:
            copy_sharing(Path(scratch) / "copy", source)
        except OSError as exc:
            if exc.errno in CANNOT_SHARE:
                return False
            raise
    return True
