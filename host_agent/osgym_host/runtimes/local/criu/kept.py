"""Kept branch points: dumps that outlive their host agent, in a folder that hosts may share. Blocking.

A kept one is a folder named by its id, with the dump's `images` and `upper` and a manifest. It is renamed
into place when all of it is on the disk, so that what has no manifest is left of a removal. Several host
agents may use the folder.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from osgym_host.runtimes.base import BranchPoint
from osgym_host.runtimes.local import trees
from osgym_host.runtimes.local.criu import layer
from osgym_host.runtimes.local.criu.commands import Outside, copy_argv
from osgym_host.runtimes.local.criu.dumping import Dumped
from osgym_host.runtimes.local.criu.layer import walk
from osgym_host.whole_file import write_whole

_log = logging.getLogger(__name__)

_MANIFEST = "manifest.json"
_VERSION = 1
_POINT_ID = re.compile(r"p[0-9a-f]{16}\Z")
_COPY = ".copy"
_COPY_S = 100.0
_COPY_OLD_S = 3600.0
_FIELDS = ("base", "digest", "pause_ms", "ram_mib", "disk_mib")


class KeptDumps:
    """Store of kept dumps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self) -> Iterator[tuple[BranchPoint, Dumped]]:
        """Yield all kept ones.

        Raises:
            OSError: The folder cannot be read.
        """
        for path in self._entries():
            if _POINT_ID.match(path.name) is None:
                continue
            try:
                yield _read(path)
            except FileNotFoundError:  # it is being removed
                continue
            except (OSError, ValueError, TypeError, KeyError) as exc:
                _log.warning("the checkpoint %s cannot be used and is skipped: %s", path, exc)

    def reap(self) -> None:
        """Remove what killed host agents left of removals, and of copies that nobody can be making any more.

        Raises:
            OSError: Something could not be removed.
        """
        for path in self._entries():
            with contextlib.suppress(FileNotFoundError):  # another host agent does the same
                removed = _POINT_ID.match(path.name) is not None and not (path / _MANIFEST).exists()
                copy = path.name.endswith(_COPY) and time.time() - path.stat().st_mtime > _COPY_OLD_S
                if removed or copy:
                    trees.remove_tree(None, os.fspath(path))

    def _entries(self) -> list[Path]:
        return sorted(self._folder.iterdir()) if self._folder.is_dir() else []

    def keep(self, point: BranchPoint, dumped: Dumped) -> Dumped:
        """Move a dump here, once it is safe on the disk.

        Raises:
            OSError: The disk is full, or fails.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._folder.stat().st_dev != dumped.folder.stat().st_dev:
            copy = self._folder / f"{point.point_id}{_COPY}"
            dumped = replace(_copied(dumped, copy), folder=copy)
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


def _copied(dumped: Dumped, target: Path) -> Dumped:
    """Copy a dump to another file system, where its files have other marks.

    Raises:
        OSError: It could not be copied in time.
    """
    argv = copy_argv(os.fspath(dumped.folder), os.fspath(target))
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_COPY_S, check=False)
    except subprocess.TimeoutExpired as exc:
        raise OSError(errno.ETIMEDOUT, f"the checkpoint was not copied within {_COPY_S:g} s") from exc
    if done.returncode != 0:
        raise OSError(errno.EIO, f"the checkpoint was not copied: {done.stderr[:300]}")
    trees.remove_tree(None, os.fspath(dumped.folder))
    return replace(dumped, digest=layer.digest_of(target / "images", target / "upper"))


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
