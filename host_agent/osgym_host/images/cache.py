"""Cache of trees: parts of an image on which the next bake can build."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from osgym_host.images.content_store import close_folder, discard, replace_file
from osgym_host.images.idmap import IdMap
from osgym_host.images.lock import PackageLock

_RECORD = "tree.json"


@dataclass(frozen=True, slots=True)
class CachedTree:
    """A kept tree.

    Attributes:
        folder: Folder that holds `rootfs`.
    """

    folder: Path
    digest: str
    packages: PackageLock


class TreeCache:
    """Folder of kept trees, by the key of their inputs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, key: str, idmap: IdMap) -> CachedTree | None:
        """Return the tree of this key whose files have the ids of `idmap`."""
        try:
            kept = json.loads((self._folder / key / _RECORD).read_text())
        except FileNotFoundError:
            return None
        if kept["uid_base"] != idmap.uid_base:
            return None
        return CachedTree(self._folder / key, kept["digest"], PackageLock(kept["packages"]))

    def put(
        self, made: Path, key: str, flavor: str, digest: str, packages: PackageLock, idmap: IdMap
    ) -> CachedTree:
        """Keep the tree in `made` (which holds `rootfs`), replacing another of this key."""
        record = {
            "digest": digest,
            "flavor": flavor,
            "uid_base": idmap.uid_base,
            "packages": packages.versions,
        }
        replace_file(made / _RECORD, json.dumps(record, indent=1))
        close_folder(made)
        folder = self._folder / key
        if folder.exists():
            discard(folder)
        made.rename(folder)
        return CachedTree(folder, digest, packages)

    def prune(self, flavor: str, keep: CachedTree) -> None:
        """Remove the flavor's other trees. Images share files with them and lose nothing."""
        for path in self._folder.glob(f"*/{_RECORD}"):
            if path.parent != keep.folder and json.loads(path.read_text()).get("flavor") == flavor:
                discard(path.parent)
