"""How disks are shared on this host: decided from what its file system can do."""

from __future__ import annotations

import errno
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from osgym_host.images.disks.manifest import DiskFormat
from osgym_host.images.disks.overlay import copy_sharing

CANNOT_SHARE = frozenset(
    {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS, errno.EACCES, errno.EPERM}
)
"""Errors of a kernel or file system that cannot share blocks between these files."""


class CowWay(StrEnum):
    """What a machine that boots from a disk image writes to."""

    REFLINK = "reflink"
    OVERLAY = "overlay"


@dataclass(frozen=True, slots=True)
class CowChoice:
    """A way and what follows from it.

    Attributes:
        format: What disk images are best kept as.
        reason: One sentence for people.
    """

    way: CowWay
    format: DiskFormat
    reason: str


def choose(*, reflink: bool) -> CowChoice:
    """Decide for a host whose data directory can share blocks between files, or cannot.

    Clones of a golden snapshot write to overlays in both cases: what is decided is what lies at the
    bottom, and what a machine gets that boots from the image.
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
