"""Free space of the host's disk, and the replica that ends when it is nearly full. Pure."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

INODE_BYTES = 4096
"""Smallest size counted for a file, since a file system has a bounded number of files."""
_MIB = 1 << 20
FORGET_S = 60.0
LEAST_MIB = 64.0
"""Size below which a replica is not ended, since that would not help."""


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """Free space of a file system, which is full without blocks or without inodes.

    Attributes:
        blocks_mib: Free space by its blocks.
        inodes_mib: Free space by its inodes, of `INODE_BYTES` each; infinite where files have no bound.
    """

    blocks_mib: float
    inodes_mib: float = math.inf

    @classmethod
    def of(cls, found: os.statvfs_result) -> DiskRoom:
        """Return the free space that an unprivileged process has."""
        inodes = found.f_favail * INODE_BYTES / _MIB if found.f_files else math.inf
        return cls(found.f_bavail * found.f_frsize / _MIB, inodes)

    @property
    def free_mib(self) -> float:
        """Free space by what runs out first."""
        return min(self.blocks_mib, self.inodes_mib)

    def used_since_mib(self, earlier: DiskRoom) -> float:
        """Return what was written since then, in blocks or in inodes, whichever of both fell more."""
        inodes = 0.0 if math.isinf(self.inodes_mib) else earlier.inodes_mib - self.inodes_mib
        return max(earlier.blocks_mib - self.blocks_mib, inodes)

    def most(self, other: DiskRoom) -> DiskRoom:
        """Return the greater of each."""
        return DiskRoom(max(self.blocks_mib, other.blocks_mib), max(self.inodes_mib, other.inodes_mib))


@dataclass(frozen=True, slots=True)
class Writer:
    """Disk use of one replica at the last measurement.

    Attributes:
        written_mib: Bytes that its processes wrote, deleted or not.
        hides: True if it holds descriptors in flight, whose files no measurement shows.
    """

    replica_id: str
    overlay_mib: float
    written_mib: float = 0.0
    hides: bool = False

    def weight_mib(self, unaccounted_mib: float) -> float:
        """Return the upper bound of the disk space attributed to this replica."""
        return max(self.overlay_mib, self.written_mib) + (unaccounted_mib if self.hides else 0.0)


class DiskAccount:
    """Finds a drop of free space that no measured replica explains, while one may hide files.

    Free space and what the replicas have make a sum that only others change: the sum falls when
    somebody writes whom nobody measures. What others of the host write is forgotten as long as no replica
    could hide anything; for longer than a measurement takes to find that one does.
    """

    def __init__(self) -> None:
        self._recent: deque[tuple[float, float]] = deque()
        self._highest_mib = 0.0
        self._hidden_at = -math.inf
        self.unaccounted_mib = 0.0

    def update(self, now_s: float, free_mib: float, overlays_mib: Iterable[float], *, hides: bool) -> None:
        """Add a measurement.

        Args:
            hides: A replica held descriptors in flight when it was measured last.
        """
        total_mib = free_mib + sum(overlays_mib)
        self._recent.append((now_s, total_mib))
        while self._recent[0][0] < now_s - FORGET_S:
            self._recent.popleft()
        if hides:
            self._hidden_at = now_s
        self._highest_mib = max(self._highest_mib, total_mib)
        if self._hidden_at < now_s - FORGET_S:
            self._highest_mib = max(recent for _, recent in self._recent)
        self.unaccounted_mib = self._highest_mib - total_mib


def biggest_writer(writers: Iterable[Writer], unaccounted_mib: float) -> Writer | None:
    """Return the replica that ends first; None if no replica wrote enough."""
    heaviest = max(writers, key=lambda writer: writer.weight_mib(unaccounted_mib), default=None)
    if heaviest is None or heaviest.weight_mib(unaccounted_mib) < LEAST_MIB:
        return None
    return heaviest
