"""Pull of golden images: layers that the local store lacks, unpacked beside links to the others."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from osgym_host.images.calibration import Calibration, calibration_path
from osgym_host.images.content_store import close_folder, open_folder, replace_file
from osgym_host.images.file_lock import exclusive
from osgym_host.images.idmap import ID_COUNT, IdMap, current_idmap
from osgym_host.images.namespaces import NamespaceSpec, operate
from osgym_host.images.progress import BakeProgress
from osgym_host.images.registry import oci
from osgym_host.images.registry.errors import RegistryCode, RegistryError
from osgym_host.images.registry.fetch import BlobFolder, read_document, read_index
from osgym_host.images.registry.layers import ImageLayers, image_operation
from osgym_host.images.registry.places import Place
from osgym_host.images.registry.push import Moved
from osgym_host.images.store import MANIFEST_FORMAT, Image, ImageManifest, ImageStore

_WORKERS = 4
_SPARE_BYTES = 1 << 30
"""Disk space that a pull leaves free."""
_BATCH = 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HEX = re.compile(r"[0-9a-f]{64}")
_HOME = re.compile(r"(/[A-Za-z0-9._-]+)+")


@dataclass(frozen=True, slots=True)
class RemoteImage:
    """Documents of an image of a place, verified against the digest of its manifest."""

    digest: str
    layers: list[oci.Descriptor]
    diff_ids: list[str]
    manifest: ImageManifest
    calibration: Calibration | None
    document_bytes: int
    entry: oci.Descriptor
    config: oci.Descriptor


def look_up(place: Place, name: str) -> RemoteImage:
    """Return the image of a place by its tag, or by a digest of its content or of its manifest.

    Raises:
        RegistryError: The place has no such image, or its documents are malformed.
    """
    index = read_index(place)
    entry = index.find(name)
    if entry is None:
        hint = f"it has {', '.join(index.names())}" if index.names() else "it has no images"
        raise RegistryError(RegistryCode.NOT_FOUND, f"{place.label} has no image {name!r}", hint)
    manifest = oci.parse(oci.OciManifest, read_document(place, entry), "the manifest")
    config = oci.parse(oci.OciConfig, read_document(place, manifest.config), "the configuration")
    diff_ids = config.rootfs.diff_ids
    if len(diff_ids) != len(manifest.layers) or any(
        one.media_type != oci.LAYER_TYPE for one in manifest.layers
    ):
        text = f"the layers of {name!r} are not those of an OSGym image ({oci.LAYER_TYPE})"
        raise RegistryError(RegistryCode.UNSUPPORTED_LAYOUT, text)
    kept, calibration = _kept(config)
    size = entry.size + manifest.config.size
    return RemoteImage(
        entry.digest, manifest.layers, diff_ids, kept, calibration, size, entry, manifest.config
    )


def _kept(config: oci.OciConfig) -> tuple[ImageManifest, Calibration | None]:
    """Return the store's manifest and calibration, as far as they can be trusted with paths and ids."""
    try:
        manifest = ImageManifest.model_validate(config.osgym.get("image"))
        given = config.osgym.get("calibration")
        calibration = None if given is None else Calibration.model_validate(given)
    except ValidationError as error:
        text = f"the image's own manifest is malformed: {error.errors(include_url=False)[0]['msg']}"
        raise RegistryError(RegistryCode.UNSUPPORTED_LAYOUT, text) from error
    checks = {
        "format": manifest.format == MANIFEST_FORMAT,
        "digest": _HEX.fullmatch(manifest.digest),
        "flavor": _NAME.fullmatch(manifest.flavor) and ".." not in manifest.flavor,
        "user": _NAME.fullmatch(manifest.user),
        "home": _HOME.fullmatch(manifest.home) and "/.." not in manifest.home,
        "id_count": manifest.id_count == ID_COUNT,
        "calibration": calibration is None or calibration.image_digest == manifest.digest,
    }
    for field, right in checks.items():
        if not right:
            raise RegistryError(
                RegistryCode.UNSUPPORTED_LAYOUT, f"the image's own manifest has a wrong {field}"
            )
    return manifest, calibration


def pull(
    store: ImageStore,
    place: Place,
    name: str,
    mirrors: Sequence[Place],
    progress: BakeProgress,
    keep: Path | None,
) -> Moved:
    """Add an image of a place to the store and tag it. An interrupted pull goes on where it stopped.

    Args:
        mirrors: Places that may hold layers of it, asked before `place`.
        keep: Folder in which to keep all layers as a layout for others to pull from; None: they are removed.

    Raises:
        RegistryError: The place has no such image, or the image is refused. The store is unchanged.
    """
    with progress.shown():
        remote = look_up(place, name)
        flavor = remote.manifest.flavor
        with store.making(flavor, progress.wait), _kept_by_us(keep):
            present = next((image for image in store.all() if image.digest == remote.manifest.digest), None)
            if present is not None and keep is None:
                store.tag(flavor, present.digest)
                return Moved(present, remote.digest, len(remote.layers), 0, remote.document_bytes)
            job = _Pull(store, place, mirrors, remote, progress, keep)
            moved = job.fetch()
            image = present or job.unpack()
            store.tag(flavor, image.digest)
            job.finish()
            total = sum(moved) + remote.document_bytes
            return Moved(image, remote.digest, len(remote.layers), sum(1 for one in moved if one), total)


class _Pull:
    def __init__(
        self,
        store: ImageStore,
        place: Place,
        mirrors: Sequence[Place],
        remote: RemoteImage,
        progress: BakeProgress,
        keep: Path | None,
    ) -> None:
        self._store, self._place, self._mirrors = store, place, mirrors
        self._remote, self._progress, self._keep = remote, progress, keep
        self._blobs = BlobFolder(keep or store.data_dir / "cache" / "pulls" / remote.manifest.flavor)
        self._idmap = current_idmap()
        self._base = self._find_base()
        linked = {diff_id: key for key, diff_id in self._base.diff_ids.items()} if self._base else {}
        pairs = list(zip(remote.layers, remote.diff_ids, strict=True))
        first, *others = pairs  # the folders, in which all others are unpacked
        self._linked = [linked[hexa] for _, one in others if (hexa := one.removeprefix("sha256:")) in linked]
        self._new = [first, *(pair for pair in others if pair[1].removeprefix("sha256:") not in linked)]

    def _find_base(self) -> ImageLayers | None:
        """Return the layers of the local image that is most likely alike."""
        flavor = self._remote.manifest.flavor
        images = [one for one in self._store.all() if one.manifest.uid_base == self._idmap.uid_base]
        images.sort(key=lambda one: (one.flavor == flavor, self._store.is_tagged(one)), reverse=True)
        if not images:
            return None
        self._progress.stage("hash", images[0].name)
        return ImageLayers(self._store, images[0])

    def fetch(self) -> list[int]:
        """Fetch the blobs that are needed; return the bytes moved for each."""
        needed = self._remote.layers if self._keep else [layer for layer, _ in self._new]
        self._blobs.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self._blobs.folder).free - _SPARE_BYTES
        if sum(layer.size for layer in needed) > free:
            size = sum(layer.size for layer in needed)
            text = f"the layers have {size >> 20} MiB, but {free >> 20} MiB are free"
            raise RegistryError(RegistryCode.TOO_LARGE, text)
        self._progress.expect_count("pull", len(needed))

        def fetch(layer: oci.Descriptor) -> int:
            moved = self._blobs.fetch(layer, self._mirrors, self._place)
            self._progress.count("pull", layer.hex[:12])
            return moved

        with ThreadPoolExecutor(_WORKERS) as pool:
            futures = [pool.submit(fetch, layer) for layer in needed]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def unpack(self) -> Image:
        """Make the tree, verify every layer, and publish the image."""
        with self._store.workspace() as workspace:
            made = workspace / "made"
            made.mkdir()
            open_folder(made, self._idmap)
            operate(NamespaceSpec(made, self._idmap), "make", paths=["rootfs"])
            self._progress.expect_count("layers", len(self._new))
            left = self._unpack(made, self._new[:1], self._room(), only_folders=True)
            if self._base is not None and self._linked:
                base = self._base.rootfs_from(made)
                arguments = {"base": base, "target": "rootfs", "keys": self._linked}
                image_operation(made, self._idmap, "link_layers", **arguments)
            for begin in range(1, len(self._new), _BATCH):
                left = self._unpack(made, self._new[begin : begin + _BATCH], left)
            # Entries made since have changed the times of the folders.
            self._unpack(made, self._new[:1], oci.MAX_IMAGE_BYTES, only_folders=True)
            self._progress.stage("publish")
            operate(NamespaceSpec(made, self._idmap), "sync", path="rootfs")
            close_folder(made)
            if self._remote.calibration is not None:
                replace_file(calibration_path(made), self._remote.calibration.model_dump_json())
            return self._store.publish(made, self._manifest(self._idmap))

    def _room(self) -> int:
        free = shutil.disk_usage(self._store.folder).free - _SPARE_BYTES
        return max(0, min(free, oci.MAX_IMAGE_BYTES))

    def _unpack(
        self,
        made: Path,
        pairs: list[tuple[oci.Descriptor, str]],
        max_bytes: int,
        *,
        only_folders: bool = False,
    ) -> int:
        """Unpack layers and return what is left of `max_bytes`."""
        archives = []
        for layer, _ in pairs:
            # The mapped root may not look into our folders; a link in its own one it may read.
            link = made / f"layer-{layer.hex}"
            with contextlib.suppress(FileExistsError):
                _link_or_copy(self._blobs.path(layer), link)
            archives.append(link.name)
        arguments = {"target": "rootfs", "archives": archives, "max_bytes": max_bytes}
        rows = image_operation(made, self._idmap, "unpack_layers", **arguments, only_folders=only_folders)
        for (layer, diff_id), row, name in zip(pairs, rows, archives, strict=True):
            if f"sha256:{row['diff_id']}" != diff_id:
                text = f"the layer {layer.digest} does not unpack to {diff_id}, which the configuration names"
                raise RegistryError(RegistryCode.DIGEST_MISMATCH, text)
            (made / name).unlink()
            self._progress.count("layers", layer.hex[:12])
        return int(max_bytes - sum(row["bytes"] for row in rows))

    def _manifest(self, idmap: IdMap) -> ImageManifest:
        ids = {"uid_base": idmap.uid_base, "gid_base": idmap.gid_base}
        return self._remote.manifest.model_copy(update=ids)

    def finish(self) -> None:
        """Remove the fetched layers, or name them in the index of the folder that keeps them."""
        if self._keep is None:
            shutil.rmtree(self._blobs.folder)  # with what an earlier pull left
            return
        for document in (self._remote.entry, self._remote.config):
            self._blobs.fetch(document, (), self._place)
        tag = self._remote.entry.annotations.get(oci.REF_NAME)
        path = self._keep / oci.INDEX
        index = oci.parse(oci.OciIndex, path.read_bytes(), str(path)) if path.is_file() else oci.OciIndex()
        others = [one for one in index.manifests if one.annotations.get(oci.REF_NAME) != tag]
        replace_file(self._keep / oci.MARKER, oci.MARKER_TEXT)
        replace_file(path, oci.encode(oci.OciIndex(manifests=[*others, self._remote.entry])).decode())


@contextlib.contextmanager
def _kept_by_us(keep: Path | None) -> Iterator[None]:
    """Let one pull of this machine at a time fill a folder of layers."""
    if keep is None:
        yield
        return
    keep.mkdir(parents=True, exist_ok=True)
    with exclusive(keep / ".lock", f"the layers in {keep}"):
        yield


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except FileExistsError:
        raise
    except OSError:  # another file system
        shutil.copyfile(source, target)
