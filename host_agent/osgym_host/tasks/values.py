"""Arguments of metrics: text, JSON, or files whose bytes the host never parses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from osgym_host.runtimes.frozen_disk import FrozenDisk


@dataclass(frozen=True, slots=True)
class NamedFile:
    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class DiskFile:
    """A file on a replica's disk, which the confined process reads without the guest agent."""

    disk: FrozenDisk
    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Value:
    """One argument of a metric.

    Attributes:
        data: Text or a JSON value; ignored if there are files.
        files: Files that are opened read-only and handed to the confined process as descriptors.
        beside: Other files, for metrics that look for one by name.
        many: True if the metric gets a list of files, even of one.
        reader: Name of a reader that the confined process applies to the file first.
        reader_options: Arguments of the reader by name, plain JSON values.
        missing: True if there is no value; ``note`` says why.
    """

    data: object = None
    files: tuple[NamedFile | DiskFile, ...] = ()
    many: bool = False
    reader: str = ""
    reader_options: Mapping[str, object] = field(default_factory=dict)
    beside: tuple[NamedFile | DiskFile, ...] = ()
    missing: bool = False
    note: str = ""
