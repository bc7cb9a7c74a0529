"""Layers of images of the local store: their digests, and the operations on them in a user namespace."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from osgym_host.images.content_store import replace_file
from osgym_host.images.idmap import IdMap
from osgym_host.images.namespaces import NamespaceSpec, operate
from osgym_host.images.registry.errors import RegistryCode, RegistryError
from osgym_host.images.store import Image, ImageStore
from osgym_host.images.tree_layers import DIRECTORIES, FOLDER_LAYERS, OWN_LAYER_BYTES, PACKAGE_LAYERS

OPERATION_S = 3600.0
_FORMAT = f"1 {PACKAGE_LAYERS} {FOLDER_LAYERS} {OWN_LAYER_BYTES}"
"""Version of how trees are divided into layers, as far as kept digests depend on it."""


class ImageLayers:
    """Layers of one image.

    Attributes:
        diff_ids: Hexadecimal digest of each layer's tar archive, by key; folders come first.
        sizes: Uncompressed bytes of each layer, by key.
    """

    def __init__(self, store: ImageStore, image: Image) -> None:
        """Read the digests from the cache, or compute them from the files.

        Raises:
            RegistryError: The image has files that no layer can hold.
        """
        self.image = image
        cached = store.data_dir / "cache" / "layers" / f"{image.digest}.json"
        rows = _cached(cached)
        if rows is None:
            rows = image_operation(image.folder, idmap_of(image), "layer_digests", path="rootfs")
            cached.parent.mkdir(parents=True, exist_ok=True)
            replace_file(cached, json.dumps({"format": _FORMAT, "layers": rows}))
        self.diff_ids: dict[str, str] = {row["key"]: row["diff_id"] for row in rows}
        self.sizes: dict[str, int] = {row["key"]: row["bytes"] for row in rows}
        assert next(iter(self.diff_ids)) == DIRECTORIES

    def rootfs_from(self, folder: Path) -> str:
        """Return the path of the root file system relative to `folder`."""
        return os.path.relpath(self.image.rootfs, folder)


def idmap_of(image: Image) -> IdMap:
    """Return the ids that own the files of an image."""
    manifest = image.manifest
    return IdMap(manifest.uid_base, manifest.gid_base, manifest.id_count)


def image_operation(folder: Path, idmap: IdMap, name: str, **arguments: Any) -> Any:
    """Run an operation of `tree_layers.py` with `folder` as working directory.

    Raises:
        RegistryError: The operation refused a layer or a file.
        ImageError: It failed or took too long.
    """
    found = operate(NamespaceSpec(folder, idmap), name, timeout_s=OPERATION_S, **arguments)
    if "code" in found:
        raise RegistryError(RegistryCode(found["code"]), found["message"])
    return found["result"]


def _cached(path: Path) -> list[dict[str, Any]] | None:
    try:
        kept = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return list(kept["layers"]) if kept.get("format") == _FORMAT else None
