"""Kept branch points: dumps that outlive their host agent, below `<data>/checkpoints-local`. Blocking.

A kept one is a folder named by its id, with the dump's `images` and `upper` and a manifest. It is renamed
into place when all of it is on the disk, so that what has no manifest is left of a removal. Several host
agents may use the folder.
"""

from __future__ import annotations

import json
import logging
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from osgym_host.runtimes.base import BranchPoint
from osgym_host.runtimes.local import trees
from osgym_host.runtimes.local.criu.commands import Outside
from osgym_host.runtimes.local.criu.dumping import Dumped
from osgym_host.runtimes.local.criu.layer import walk
from osgym_host.whole_file import write_whole

_log = logging.getLogger(__name__)

_MANIFEST = "manifest.json"
_VERSION = 1
_POINT_ID = re.compile(r"p[0-9a-f]{16}\Z")
_FIELDS = ("base", "digest", "pause_ms", "ram_mib", "disk_mib")


class KeptDumps:
    """Store of kept dumps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self) -> Iterator[tuple[BranchPoint, Dumped]]:
        """Yield all kept ones; remove what is left of removed ones.

        Raises:
            OSError: The folder cannot be read.
        """
        if not self._folder.is_dir():
            return
        for path in sorted(self._folder.iterdir()):
            if _POINT_ID.match(path.name) is None:
                continue
            try:
                yield _read(path)
            except FileNotFoundError:
                trees.remove_tree(None, os.fspath(path))
            except (OSError, ValueError, TypeError, KeyError) as exc:
                _log.warning("the checkpoint %s cannot be used and is skipped: %s", path, exc)

    def keep(self, point: BranchPoint, dumped: Dumped) -> Dumped:
        """Move a dump here, once it is safe on the disk.

        Raises:
            OSError: The disk is full, or fails.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        manifest = {
            "version": _VERSION,
            "point": asdict(point),
            "outside": asdict(dumped.outside),
            **{name: getattr(dumped, name) for name in _FIELDS},
        }
        write_whole(dumped.folder / _MANIFEST, json.dumps(manifest).encode())
        for path, found in walk(dumped.folder):
            if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
                _fsync(path)
        place = self._folder / point.point_id
        dumped.folder.rename(place)
        _fsync(self._folder)
        return replace(dumped, folder=place)


def _read(folder: Path) -> tuple[BranchPoint, Dumped]:
    """Read a kept dump.

    Raises:
        FileNotFoundError: It has no manifest.
        OSError, ValueError, TypeError, KeyError: The manifest cannot be read.
    """
    manifest: dict[str, Any] = json.loads((folder / _MANIFEST).read_bytes())
    if manifest["version"] != _VERSION or manifest["point"]["point_id"] != folder.name:
        raise ValueError("the manifest is of another version or point")
    outside = Outside(**manifest["outside"])
    return BranchPoint(**manifest["point"]), Dumped(
        folder, outside, **{name: manifest[name] for name in _FIELDS}
    )


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
