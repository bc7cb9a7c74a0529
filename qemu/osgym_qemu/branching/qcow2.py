"""Check of a branch's disk header before QEMU opens it.

A header can name other files (backing file, data file) and ask for features that we never use. Of a file
from another host both are refused or wiped. What lies behind the header maps the guest's disk to places in
the same file; QEMU checks that itself.
"""

from __future__ import annotations

import struct
from dataclasses import replace

from osgym_host.images.qcow2 import (
    Qcow2Error,
    Qcow2Header,
    check_alone,
    check_extensions,
    check_layout,
    read_header,
)

__all__ = ["Qcow2Error", "Qcow2Header", "parse_header", "without_names"]

_BACKING = struct.Struct(">QI")
_BACKING_AT = 8


def parse_header(first_cluster: bytes, file_bytes: int) -> Qcow2Header:
    """Parse the beginning of a file (its first 64 KiB or all of it).

    Raises:
        Qcow2Error: The file is not a qcow2, or uses features that our disks never use.
    """
    header = read_header(first_cluster)
    if header.version != 3 or header.incompatible:
        raise Qcow2Error("the file is not a plain qcow2 of version 3")
    check_alone(replace(header, backing=False))  # a name is wiped, see below
    check_layout(header, file_bytes)
    check_extensions(first_cluster, header, must_end=True)
    return header


def without_names(first_cluster: bytes, header: Qcow2Header) -> bytes:
    """Return the first cluster of a file with only the header: no names, no extensions."""
    cluster = header.cluster_bytes
    clean = bytearray(min(cluster, len(first_cluster)))
    clean[: header.length] = first_cluster[: header.length]
    _BACKING.pack_into(clean, _BACKING_AT, 0, 0)
    return bytes(clean) + first_cluster[len(clean) :]
