"""Checks of a qcow2 file's header and tables, before any program opens it.

The file may come from anywhere. Its header, extensions and tables must lie in it and be of sizes that the
format allows; nothing is allocated or read before the number that asks for it was checked. Layout:
docs/interop/qcow2.txt of QEMU.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

from osgym_host.errors import OsgymHostError

MAGIC = b"QFI\xfb"
CLUSTER_BITS = range(9, 22)
MAX_CLUSTER_BYTES = 1 << CLUSTER_BITS[-1]
MAX_VIRTUAL_BYTES = 2 << 40
"""Bound of the size of a disk."""

_V2 = struct.Struct(">4sIQIIQIIQQIIQ")
_V3 = struct.Struct(">4sIQIIQIIQQIIQQQQII")
_DIRTY, _EXTERNAL_DATA, _COMPRESSION_TYPE, _EXTENDED_L2 = 1 << 0, 1 << 2, 1 << 3, 1 << 4
_READABLE_FEATURES = _DIRTY | _COMPRESSION_TYPE | _EXTENDED_L2
_MAX_L1_BYTES, _MAX_REFCOUNT_BYTES = 32 << 20, 8 << 20  # QEMU's own bounds
_MAX_HEADER_BYTES = 512
_MAX_REFCOUNT_ORDER = 6
_EXTENSION = struct.Struct(">II")
_END, _FEATURE_NAMES, _BACKING_FORMAT = 0, 0x6803F857, 0xE2792ACA
_HARMLESS = (_FEATURE_NAMES, _BACKING_FORMAT)
_COPIED, _COMPRESSED = 1 << 63, 1 << 62
_OFFSET = 0x00FFFFFFFFFFFE00


class Qcow2Error(OsgymHostError):
    """The file is not a qcow2 that we would open."""


@dataclass(frozen=True, slots=True)
class Qcow2Header:
    """Fields of a header.

    Attributes:
        backing: It names a backing file.
        length: Bytes of the header; extensions follow.
        incompatible: Features without which the file cannot be read.
        autoclear: Features that only programs that know them keep valid.
    """

    version: int
    virtual_bytes: int
    cluster_bits: int
    backing: bool
    encrypted: bool
    l1_at: int
    l1_entries: int
    refcounts_at: int
    refcounts_clusters: int
    snapshots: int
    incompatible: int
    autoclear: int
    refcount_order: int
    length: int

    @property
    def cluster_bytes(self) -> int:
        """Size of a cluster; valid only after the checks."""
        return 1 << self.cluster_bits

    @property
    def l2_entry_bytes(self) -> int:
        """Size of an entry that stands for one cluster of the disk."""
        return 16 if self.incompatible & _EXTENDED_L2 else 8


def read_header(head: bytes) -> Qcow2Header:
    """Parse the first bytes of a file, without checking the values.

    Raises:
        Qcow2Error: They are no header of version 2 or 3.
    """
    if not head.startswith(MAGIC):
        raise Qcow2Error("the file is not a qcow2")
    if len(head) < _V2.size:
        raise Qcow2Error("the file ends inside its header")
    version = struct.unpack_from(">I", head, 4)[0]
    if version not in (2, 3):
        raise Qcow2Error(f"the file is a qcow2 of version {version}; versions 2 and 3 are supported")
    if version == 3 and len(head) < _V3.size:
        raise Qcow2Error("the file ends inside its header")
    fields = _V2.unpack_from(head)
    _, _, backing_at, backing_bytes, cluster_bits, virtual_bytes, crypt = fields[:7]
    l1_entries, l1_at, refcounts_at, refcounts_clusters, snapshots, _ = fields[7:]
    incompatible, _, autoclear, order, length = (
        _V3.unpack_from(head)[13:] if version == 3 else (0, 0, 0, 4, _V2.size)
    )
    return Qcow2Header(
        version=version,
        virtual_bytes=virtual_bytes,
        cluster_bits=cluster_bits,
        backing=backing_at != 0 or backing_bytes != 0,
        encrypted=crypt != 0,
        l1_at=l1_at,
        l1_entries=l1_entries,
        refcounts_at=refcounts_at,
        refcounts_clusters=refcounts_clusters,
        snapshots=snapshots,
        incompatible=incompatible,
        autoclear=autoclear,
        refcount_order=order,
        length=length,
    )


def check_alone(header: Qcow2Header) -> None:
    """Check that a file refers to no other file and to no second state of its disk.

    Raises:
        Qcow2Error: It does, or uses unreadable features.
    """
    if header.encrypted:
        raise Qcow2Error("the disk is encrypted")
    if header.backing or header.incompatible & _EXTERNAL_DATA:
        raise Qcow2Error("the disk refers to another file")
    if header.incompatible & ~_READABLE_FEATURES:
        raise Qcow2Error(f"the disk is marked as corrupt or has unknown features ({header.incompatible:#x})")
    if header.autoclear or header.snapshots:
        raise Qcow2Error("the disk has internal snapshots or bitmaps")


def check_layout(header: Qcow2Header, file_bytes: int) -> None:
    """Check that the header's tables have sizes that the format allows, and lie in the file.

    Raises:
        Qcow2Error: One does not.
    """
    if not 0 < header.virtual_bytes <= MAX_VIRTUAL_BYTES:
        raise Qcow2Error(f"the disk claims an implausible size of {header.virtual_bytes} bytes")
    if header.cluster_bits not in CLUSTER_BITS:
        raise Qcow2Error(f"its clusters of 2^{header.cluster_bits} bytes are not ones that the format allows")
    longest = min(header.cluster_bytes, _MAX_HEADER_BYTES)
    shortest = _V3.size if header.version == 3 else _V2.size
    if not shortest <= header.length <= longest or header.length % 8:
        raise Qcow2Error(f"its header cannot be {header.length} bytes long")
    if header.refcount_order > _MAX_REFCOUNT_ORDER:
        raise Qcow2Error(f"its reference counts of 2^{header.refcount_order} bits are not ones of the format")
    cluster = header.cluster_bytes
    tables = (
        ("first-level table", header.l1_at, 8 * header.l1_entries, _MAX_L1_BYTES),
        (
            "table of reference counts",
            header.refcounts_at,
            header.refcounts_clusters << header.cluster_bits,
            _MAX_REFCOUNT_BYTES,
        ),
    )
    for name, start, size, most in tables:
        if start % cluster or start < cluster or not 0 < size <= most or start + size > file_bytes:
            raise Qcow2Error(
                f"its {name} ({size} bytes at {start}) lies outside the file's {file_bytes} bytes"
            )
    if header.l1_entries * (cluster // header.l2_entry_bytes) * cluster < header.virtual_bytes:
        raise Qcow2Error("its first-level table is too small for its disk")


def check_extensions(first_cluster: bytes, header: Qcow2Header, *, must_end: bool) -> None:
    """Check that the extensions stay in the first cluster and mean no more than a name.

    Args:
        must_end: The end of the cluster does not count as the end of the extensions.

    Raises:
        Qcow2Error: There is an extension that QEMU would act on, or one that is longer than its place.
    """
    area = first_cluster[: header.cluster_bytes]
    start = header.length
    while start + _EXTENSION.size <= len(area):
        kind, size = _EXTENSION.unpack_from(area, start)
        if kind == _END:
            return
        if kind not in _HARMLESS:
            raise Qcow2Error(f"the disk has an unsupported header extension {kind:#x}")
        start += _EXTENSION.size + -(-size // 8) * 8
        if start > len(area):
            raise Qcow2Error(f"its header extension {kind:#x} of {size} bytes does not fit into the header")
    if must_end:
        raise Qcow2Error("its header extensions do not end")


def check_tables(file: BinaryIO, header: Qcow2Header, file_bytes: int) -> None:
    """Follow a file's tables, and check that they lead into the file. Blocking.

    Raises:
        Qcow2Error: They lead elsewhere, or twice to the same table.
    """
    cluster = header.cluster_bytes
    tables = []
    for entry in _words(file, header.l1_at, 8 * header.l1_entries):
        at = entry & _OFFSET
        if entry & ~(_OFFSET | _COPIED) or at % cluster or (at and at + cluster > file_bytes):
            raise Qcow2Error(f"an entry of its first-level table ({entry:#x}) leads out of the file")
        if at:
            tables.append(at)
    if len(set(tables)) != len(tables):
        raise Qcow2Error("two entries of its first-level table lead to the same place")
    for at in sorted(tables):
        step = header.l2_entry_bytes // 8
        _check_l2(_words(file, at, cluster)[::step], header, file_bytes)


def _check_l2(entries: Sequence[int], header: Qcow2Header, file_bytes: int) -> None:
    inside_compressed = (1 << (62 - (header.cluster_bits - 8))) - 1
    within_cluster = header.cluster_bytes - 1
    for entry in entries:
        if entry & _COMPRESSED:
            at = entry & inside_compressed
        else:
            at = entry & _OFFSET
            if at & within_cluster:
                raise Qcow2Error(f"an entry of a second-level table ({entry:#x}) is not that of a cluster")
        if at >= file_bytes:
            raise Qcow2Error(f"an entry of a second-level table ({entry:#x}) leads out of the file")


def _words(file: BinaryIO, start: int, size: int) -> array[int]:
    file.seek(start)
    data = file.read(size)
    if len(data) != size:
        raise Qcow2Error("the file ends inside a table")
    words = array("Q", data)
    if struct.pack("=H", 1) != struct.pack(">H", 1):
        words.byteswap()
    return words


def check_file(file: BinaryIO) -> Qcow2Header:
    """Check all of a file before its import. Blocking.

    Raises:
        Qcow2Error: It is not a whole, plain qcow2.
        OSError: It cannot be read.
    """
    file_bytes = file.seek(0, 2)
    file.seek(0)
    first_cluster = file.read(MAX_CLUSTER_BYTES)
    header = read_header(first_cluster)
    check_alone(header)
    check_layout(header, file_bytes)
    check_extensions(first_cluster, header, must_end=False)
    check_tables(file, header, file_bytes)
    return header
