"""Which replica ends when the host's disk is nearly full. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

INODE_BYTES = 4096
"""What a file counts for at least, however little is in it: a file system has a number of them only."""
LEAST_MIB = 64.0
"""Who wrote less than that is not ended: it would not help."""


def free_bytes(blocks_free: int, block_bytes: int, files: int, files_free: int) -> int:
    """Return how much can still be written to a file system: it is full when blocks or inodes are.

    Args:
        files: How many it can have, 0 where that is not bounded.
    """
    room = blocks_free * block_bytes
    return min(room, files_free * INODE_BYTES) if files else room


@dataclass(frozen=True, slots=True)
class Writer:
    """What one replica put on the disk, as measured last.

    Attributes:
        overlay_mib: What it has there.
        written_mib: What its processes wrote, whether it is still there or not.
        hides: It holds descriptors in flight, and files that only those hold are in no measurement.
    """

    replica_id: str
    overlay_mib: float
    written_mib: float = 0.0
    hides: bool = False

    def weight_mib(self, unaccounted_mib: float) -> float:
        """Return what it may be made to answer for."""
        return max(self.overlay_mib, self.written_mib) + (unaccounted_mib if self.hides else 0.0)


class DiskAccount:
    """Tells how much of the disk is gone without any replica being seen to have it.

    Free space and what the replicas have make a sum that only others change: the sum falls when
    somebody writes whom nobody measures, and rises again when that is freed.
    """

    def __init__(self) -> None:
        """Know nothing before the first `update`."""
        self._highest_mib: float | None = None
        self.unaccounted_mib = 0.0

    def update(self, free_mib: float, overlays_mib: Iterable[float]) -> None:
        """Take in a measurement."""
        total_mib = free_mib + sum(overlays_mib)
        if self._highest_mib is None or total_mib > self._highest_mib:
            self._highest_mib = total_mib
        self.unaccounted_mib = self._highest_mib - total_mib


def biggest_writer(writers: Iterable[Writer], unaccounted_mib: float) -> Writer | None:
    """Return who ends first, None when no replica wrote enough for that to help."""
    heaviest = max(writers, key=lambda writer: writer.weight_mib(unaccounted_mib), default=None)
    if heaviest is None or heaviest.weight_mib(unaccounted_mib) < LEAST_MIB:
        return None
    return heaviest
