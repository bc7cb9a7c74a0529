"""What must be known of a qcow2 file before QEMU may open it: the header, and nothing it could lead to.

A header can name other files (backing file, data file) and ask for features that we never use. Of a file
from another host both are refused or wiped. What lies behind the header maps the guest's disk to places in
the same file; QEMU checks that itself. Layout: docs/interop/qcow2.txt of QEMU.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from osgym_host.errors import OsgymHostError

_HEADER = struct.Struct(">4sIQIIQIIQQIIQQQQII")
_MAGIC = b"QFI\xfb"
_VERSION = 3
_CLUSTER_BITS = range(9, 22)
_EXTENSION = struct.Struct(">II")
_END, _FEATURE_NAMES, _BACKING_FORMAT = 0, 0x6803F857, 0xE2792ACA
_BACKING = struct.Struct(">QI")
_BACKING_AT = 8
_FEATURES_AT = 72


class Qcow2Error(OsgymHostError):
    """The file is not a qcow2 that we would open."""


@dataclass(frozen=True, slots=True)
class Qcow2Header:
    """What a header says.

    Attributes:
        virtual_bytes: Size of the disk that the file stands for.
        backing: It names a backing file.
        length: Bytes of the header; extensions follow.
    """

    virtual_bytes: int
    cluster_bits: int
    backing: bool
    length: int


def parse_header(first_cluster: bytes, file_bytes: int) -> Qcow2Header:
    """Check the beginning of a file (its first 64 KiB or all of it).

    Raises:
        Qcow2Error: The file is not a qcow2, or uses what our disks never use.
    """
    if len(first_cluster) < _HEADER.size:
        raise Qcow2Error("the file is too short for a qcow2")
    fields = _HEADER.unpack_from(first_cluster)
    magic, version, backing_at, _backing_size, cluster_bits, virtual_bytes, crypt, l1_entries, l1_at = fields[
        :9
    ]
    (
        table_at,
        table_clusters,
        snapshots,
        _snapshots_at,
        incompatible,
        _compatible,
        autoclear,
        order,
        length,
    ) = fields[9:]
    if magic != _MAGIC or version != _VERSION:
        raise Qcow2Error("the file is not a qcow2 of version 3")
    if incompatible or autoclear or crypt or snapshots:
        raise Qcow2Error("the qcow2 file has a data file, snapshots, encryption or unknown features")
    if cluster_bits not in _CLUSTER_BITS or order > 6 or not _HEADER.size <= length <= 512 or length % 8:
        raise Qcow2Error("the header of the qcow2 file is malformed")
    cluster = 1 << cluster_bits
    for start, size in ((l1_at, 8 * l1_entries), (table_at, table_clusters << cluster_bits)):
        if start % cluster or start < cluster or start + size > file_bytes:
            raise Qcow2Error("a table of the qcow2 file lies outside it")
    if l1_entries * (cluster // 8) * cluster < virtual_bytes:
        raise Qcow2Error("the qcow2 file cannot map all of its disk")
    _check_extensions(first_cluster[:cluster], length)
    return Qcow2Header(virtual_bytes, cluster_bits, backing_at != 0, length)


def without_names(first_cluster: bytes, header: Qcow2Header) -> bytes:
    """Return the first cluster of a file with nothing in it but the header: no names, no extensions."""
    cluster = 1 << header.cluster_bits
    clean = bytearray(min(cluster, len(first_cluster)))
    clean[: header.length] = first_cluster[: header.length]
    _BACKING.pack_into(clean, _BACKING_AT, 0, 0)
    return bytes(clean) + first_cluster[len(clean) :]


def _check_extensions(first_cluster: bytes, start: int) -> None:
    """Refuse header extensions that mean more than a name."""
    while start + _EXTENSION.size <= len(first_cluster):
        kind, size = _EXTENSION.unpack_from(first_cluster, start)
        if kind == _END:
            return
        if kind not in (_FEATURE_NAMES, _BACKING_FORMAT):
            raise Qcow2Error(f"the qcow2 file has an extension of the kind {kind:#x}")
        start += _EXTENSION.size + -(-size // 8) * 8
    raise Qcow2Error("the extensions of the qcow2 file do not end")
