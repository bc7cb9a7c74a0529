"""Push of golden images: layers that a place lacks, then the documents that name them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from osgym_host.images.calibration import read_calibration
from osgym_host.images.content_store import open_folder
from osgym_host.images.file_lock import exclusive
from osgym_host.images.progress import BakeProgress
from osgym_host.images.registry import oci
from osgym_host.images.registry.fetch import read_document, read_index
from osgym_host.images.registry.layers import ImageLayers, idmap_of, image_operation
from osgym_host.images.registry.places import Place
from osgym_host.images.store import Image, ImageStore

LAYER_KEY = "io.osgym.layer"
_WORKERS = min(4, os.cpu_count() or 1)
_BATCH_BYTES = 64 << 20
"""Uncompressed size of the layers that are packed together, before they are uploaded and removed."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Outcome of a push or pull.

    Attributes:
        layers: Number of layers of the image.
        moved_layers: Number of them that were sent or fetched.
        moved_bytes: Their compressed size, with the documents.
    """

    image: Image
    manifest_digest: str
    layers: int
    moved_layers: int
    moved_bytes: int


def push(store: ImageStore, image: Image, place: Place, tag: str, progress: BakeProgress) -> Moved:
    """Store an image in a place under a tag. An interrupted push goes on where it stopped.

    Raises:
        RegistryError: The place cannot be written, or holds something else than an image layout.
    """
    with progress.shown(), _locked(store, place):
        progress.stage("hash", image.name)
        layers = ImageLayers(store, image)
        index = read_index(place)
        known = _known_layers(place, index)
        missing = [
            key for key, diff_id in layers.diff_ids.items() if not _is_there(place, known.get(diff_id))
        ]
        progress.expect_count("upload", len(missing))
        sent = _send(store, layers, missing, place, progress)
        descriptors = [sent.get(key) or known[diff_id] for key, diff_id in layers.diff_ids.items()]
        progress.stage("publish")
        documents = _publish(store, layers, descriptors, place, tag)
        moved = sum(descriptor.size for descriptor in sent.values())
        return Moved(image, documents[0], len(descriptors), len(sent), moved + documents[1])


def _is_there(place: Place, descriptor: oci.Descriptor | None) -> bool:
    return descriptor is not None and place.size(descriptor.name) == descriptor.size


def _known_layers(place: Place, index: oci.OciIndex) -> dict[str, oci.Descriptor]:
    """Return the layers of all images of the place, by `diff_id`; those of other programs are left out."""
    found: dict[str, oci.Descriptor] = {}
    for entry in index.manifests:
        if oci.IMAGE_DIGEST not in entry.annotations or place.size(entry.name) is None:
            continue
        manifest = oci.parse(oci.OciManifest, read_document(place, entry), "the manifest")
        config = oci.parse(oci.OciConfig, read_document(place, manifest.config), "the configuration")
        for diff_id, layer in zip(config.rootfs.diff_ids, manifest.layers, strict=False):
            found[diff_id.removeprefix("sha256:")] = layer
    return found


def _send(
    store: ImageStore, layers: ImageLayers, missing: list[str], place: Place, progress: BakeProgress
) -> dict[str, oci.Descriptor]:
    with store.workspace() as workspace, ThreadPoolExecutor(_WORKERS) as pool:
        open_folder(workspace, idmap_of(layers.image))
        path = layers.rootfs_from(workspace)

        def send(keys: list[str]) -> dict[str, oci.Descriptor]:
            with tempfile.TemporaryDirectory(prefix="layers-", dir=workspace) as name:
                folder = Path(name)
                open_folder(folder, idmap_of(layers.image))
                idmap = idmap_of(layers.image)
                rows = image_operation(
                    workspace, idmap, "pack_layers", path=path, keys=keys, into=folder.name
                )
                found = {}
                for row in rows:
                    descriptor = oci.Descriptor(
                        mediaType=oci.LAYER_TYPE,
                        digest=f"sha256:{row['digest']}",
                        size=row["size"],
                        annotations={LAYER_KEY: row["key"]},
                    )
                    if place.size(descriptor.name) != descriptor.size:
                        place.write(descriptor.name, folder / row["digest"])
                    found[row["key"]] = descriptor
                    progress.count("upload", row["key"])
                return found

        sent: dict[str, oci.Descriptor] = {}
        for found in pool.map(send, _batches(layers, missing)):
            sent.update(found)
        return sent


def _batches(layers: ImageLayers, keys: list[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for key in keys:
        batch.append(key)
        if sum(layers.sizes[one] for one in batch) >= _BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def _publish(
    store: ImageStore, layers: ImageLayers, descriptors: list[oci.Descriptor], place: Place, tag: str
) -> tuple[str, int]:
    """Write configuration, manifest, and at last the index; return the manifest's digest and all bytes."""
    image = layers.image
    calibration = read_calibration(image.folder, image.digest)
    diff_ids = [f"sha256:{diff_id}" for diff_id in layers.diff_ids.values()]
    kept = {
        "image": image.manifest.model_dump(mode="json"),
        "calibration": calibration and calibration.model_dump(mode="json"),
    }
    config = oci.encode(oci.OciConfig.model_validate({"rootfs": {"diff_ids": diff_ids}, "io.osgym": kept}))
    described = oci.describe(config, oci.CONFIG_TYPE)
    manifest = oci.encode(oci.OciManifest(config=described, layers=descriptors))
    notes = {oci.REF_NAME: tag, oci.IMAGE_DIGEST: image.digest}
    entry = oci.describe(manifest, oci.MANIFEST_TYPE, notes)
    others = [one for one in read_index(place).manifests if one.annotations.get(oci.REF_NAME) != tag]
    index = oci.encode(oci.OciIndex(manifests=[*others, entry]))
    written = {
        described.name: config,
        entry.name: manifest,
        oci.MARKER: oci.MARKER_TEXT.encode(),
        oci.INDEX: index,
    }
    with store.workspace() as workspace:
        for name, data in written.items():
            if name in (described.name, entry.name) and place.size(name) == len(data):
                continue
            path = workspace / "document"
            path.write_bytes(data)
            place.write(name, path)
    return entry.digest, sum(map(len, written.values()))


@contextlib.contextmanager
def _locked(store: ImageStore, place: Place) -> Iterator[None]:
    """Let one push of this machine at a time replace the index of a place."""
    store.prepare()
    locks = store.folder / ".locks"
    locks.mkdir(mode=0o700, exist_ok=True)
    with exclusive(locks / ".push", f"a push (now to {place.label})"):
        yield
