"""Trees that bakes keep: the parts of an image that the next bake can build upon."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from osgym_host.images.idmap import IdMap
from osgym_host.images.lock import Lock
from osgym_host.images.store import REMOVING, ImageStore, close_folder, remove_tree, replace_file

_RECORD = "tree.json"


@dataclass(frozen=True, slots=True)
class CachedTree:
    """A kept tree.

    Attributes:
        folder: Holds `rootfs`.
        digest: Content digest.
        packages: The installed packages.
    """

    folder: Path
    digest: str
    packages: Lock


class TreeCache:
    """One folder of kept trees, by what they were made from."""

    def __init__(self, store: ImageStore, folder: Path) -> None:
        self._store = store
        self._folder = folder

    def find(self, key: str, idmap: IdMap) -> CachedTree | None:
        """The tree of this key whose files have the ids of `idmap`."""
        try:
            kept = json.loads((self._folder / key / _RECORD).read_text())
        except FileNotFoundError:
            return None
        if kept["uid_base"] != idmap.uid_base:
            return None
        return CachedTree(self._folder / key, kept["digest"], Lock(kept["packages"]))

    def put(self, made: Path, key: str, flavor: str, digest: str, packages: Lock, idmap: IdMap) -> CachedTree:
        """Keep the tree in `made` (which holds `rootfs`) in place of another of this key."""
        record = {
            "digest": digest,
            "flavor": flavor,
            "uid_base": idmap.uid_base,
            "packages": packages.versions,
        }
        replace_file(made / _RECORD, json.dumps(record, indent=1))
        close_folder(made)
        folder = self._folder / key
        self._discard(folder)
        made.rename(folder)
        return CachedTree(folder, digest, packages)

    def prune(self, flavor: str, keep: CachedTree) -> None:
        """Remove the flavor's other trees; images share files with them and lose nothing."""
        for path in self._folder.glob(f"*/{_RECORD}"):
            if path.parent != keep.folder and json.loads(path.read_text()).get("flavor") == flavor:
                self._discard(path.parent)

    def _discard(self, folder: Path) -> None:
        if folder.exists():
            grave = self._folder / f"{REMOVING}{folder.name}-{os.getpid()}"
            folder.rename(grave)
            remove_tree(grave)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a file lock, so that two bakes of one flavor wait for each other."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
