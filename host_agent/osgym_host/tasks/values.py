"""What getters hand to metrics: text, JSON, or files whose bytes the host never parses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from osgym_host.runtimes.frozen_disk import FrozenDisk


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file on the host with the name the task knows it by."""

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class DiskFile:
    """A file on a replica's disk, read in the confined process: no agent of the guest is asked for it."""

    disk: FrozenDisk
    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Value:
    """One argument of a metric.

    Attributes:
        data: text or a JSON value; ignored when there are files.
        files: opened read-only and handed to the confined process as descriptors.
        beside: files that are there besides, for metrics that look for one by name.
        many: the metric gets a list of files, even if it is one.
        transform: name of a reader that the confined process applies to the file first.
        missing: there is nothing; ``note`` says why.
    """

    data: object = None
    files: tuple[NamedFile | DiskFile, ...] = ()
    many: bool = False
    transform: str = ""
    beside: tuple[NamedFile | DiskFile, ...] = ()
    missing: bool = False
    note: str = ""
