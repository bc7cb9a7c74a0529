"""A replica's disk as it stood at one moment, for who reads it from outside."""

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
    """Layers that nobody writes to any more, from the bottom up; they live as long as the replica."""

    layers: tuple[DiskLayer, ...]
