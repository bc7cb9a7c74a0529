"""Disk of a replica as it was at one moment, for readers outside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DiskLayer:
    """One file of a disk.

    Attributes:
        format: `raw` or `qcow2`. The header of a qcow2 names no backing file: the order of layers does.
    """

    path: Path
    format: str


@dataclass(frozen=True, slots=True)
class FrozenDisk:
    """Layers of a disk, from the bottom up, to which nobody writes; they exist as long as the replica."""

    layers: tuple[DiskLayer, ...]
