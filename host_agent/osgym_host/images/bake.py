"""Bake a golden image: package part, desktop layer, checks, and then all at once into the store."""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from osgym_host.images import checks, wheels
from osgym_host.images.definition import Source
from osgym_host.images.errors import BakeError
from osgym_host.images.idmap import IdMap, current_idmap
from osgym_host.images.layer import LayerBake, make_layer
from osgym_host.images.lock import Lock
from osgym_host.images.manifest import ImageManifest, RemedyRecord
from osgym_host.images.namespaces import Inside, operate
from osgym_host.images.packages import PackageBake, bake_packages
from osgym_host.images.progress import Progress
from osgym_host.images.store import Image, ImageStore, close_folder, open_folder, replace_file


@dataclass(frozen=True, slots=True)
class Base:
    """The package part of an image, kept for the next bake.

    Attributes:
        folder: Holds `rootfs` and `base.json`.
        digest: SHA-256 of its tar stream.
    """

    folder: Path
    digest: str
    packages: Lock


@dataclass(frozen=True, slots=True)
class Request:
    """What to bake.

    Attributes:
        lock: Exact package versions, or None for those of today.
        refresh: Bake the package part anew even if there is one of the same definition.
    """

    flavor: str
    lock: Lock | None = None
    refresh: bool = False


class Baker:
    """Bakes images of one definition into one store."""

    def __init__(self, source: Source, store: ImageStore, progress: Progress) -> None:
        self._source = source
        self._store = store
        self._progress = progress

    def bake(self, request: Request) -> Image:
        """Bake, or find that nothing changed; afterwards the flavor's tag names the image.

        On any failure the store is as it was, except for leftovers that the next bake removes.

        Raises:
            ImageError: What failed, with the end of its log.
        """
        begin = time.monotonic()
        self._source.definition.flavor(request.flavor)
        idmap = current_idmap()
        self._store.prepare()
        self._store.reap()
        with self._progress.shown(), _exclusive(self._store.bases / f"{request.flavor}.lock"):
            base = self._base(request, idmap)
            guest = wheels.find_guest_folder(self._source.folder)
            key = self._definition_key(request.flavor, base, guest)
            found = self._baked(request.flavor, key, idmap)
            if found is None:
                found = self._finish(request.flavor, base, guest, key, idmap, begin)
            self._store.tag(request.flavor, found.digest)
            return found

    def plan(self, request: Request) -> dict[str, object]:
        """What `bake` would do, without doing it."""
        definition = self._source.definition
        kept = (self._base_folder(request) / "base.json").is_file() and not request.refresh
        return {
            "flavor": request.flavor,
            "suite": definition.suite,
            "packages": definition.packages(request.flavor),
            "scripts": [script.name for script in self._source.scripts],
            "remedies": [remedy.name for remedy in self._source.remedies],
            "store": str(self._store.folder),
            "package_part": "kept" if kept else "to be baked",
        }

    def _base_folder(self, request: Request) -> Path:
        locked = request.lock.digest if request.lock else None
        return self._store.bases / self._source.base_key(request.flavor, locked)

    def _base(self, request: Request, idmap: IdMap) -> Base:
        """The package part: the kept one, or a new one."""
        folder = self._base_folder(request)
        record = folder / "base.json"
        if record.is_file() and not request.refresh:
            kept = json.loads(record.read_text())
            if kept["uid_base"] == idmap.uid_base:
                self._progress.note("package part: kept from an earlier bake")
                return Base(folder, kept["digest"], Lock(kept["packages"]))
        with self._store.workspace() as workspace:
            made = workspace / "base"
            made.mkdir()
            open_folder(made, idmap)
            operate(Inside(made, idmap), "make", paths=["rootfs"])
            wanted = PackageBake(
                self._source.definition, request.flavor, self._store.packages, workspace, request.lock
            )
            digest = bake_packages(wanted, made / "rootfs", idmap, self._progress)
            packages = Lock.of_dpkg_status((made / "rootfs/var/lib/dpkg/status").read_text())
            if request.lock is not None and (said := request.lock.differences(packages)):
                hint = "bake without --lock, and write a new lock with osgym image lock"
                raise BakeError("lock", "; ".join(said[:10]), hint=hint)
            kept = {"digest": digest, "uid_base": idmap.uid_base, "packages": packages.versions}
            replace_file(made / "base.json", json.dumps(kept, indent=1))
            close_folder(made)
            if folder.exists():
                folder.rename(workspace / "old")
            made.rename(folder)
        return Base(folder, digest, packages)

    def _definition_key(self, flavor: str, base: Base, guest: Path) -> str:
        """Hash of all that the finished image depends on."""
        parts = [flavor, base.digest, self._source.layer_key(), wheels.guest_key(guest)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _baked(self, flavor: str, key: str, idmap: IdMap) -> Image | None:
        for image in self._store.all():
            same = image.flavor == flavor and image.manifest.definition_key == key
            if same and image.manifest.uid_base == idmap.uid_base:
                self._progress.note("nothing changed: the image is there already")
                return image
        return None

    def _finish(self, flavor: str, base: Base, guest: Path, key: str, idmap: IdMap, begin: float) -> Image:
        """Make the layer, flatten, check, publish."""
        with self._store.workspace() as workspace, tempfile.TemporaryDirectory(prefix="osgym-py-") as scratch:
            open_folder(workspace, idmap)
            self._progress.stage("layer", "Python distributions")
            python_tree = Path(scratch) / "python"
            wanted = self._source.definition.python.requirements
            found = wheels.requirement_wheels(wanted, self._store.wheels)
            wheels.install_wheels([*found, wheels.guest_wheel(guest, self._store.wheels)], python_tree)
            base_path = os.path.relpath(base.folder / "rootfs", workspace)
            bake = LayerBake(self._source, flavor, workspace, base_path, idmap, python_tree)
            remedies = make_layer(bake, self._progress)
            layer = operate(Inside(workspace, idmap), "digest", path="upper")
            digest = hashlib.sha256(f"{base.digest}\n{layer['digest']}\n".encode()).hexdigest()
            self._progress.stage("publish")
            (workspace / "image").mkdir()
            open_folder(workspace / "image", idmap)
            inside = Inside(workspace, idmap)
            operate(inside, "flatten", base=base_path, layer="upper", target="image/rootfs")
            size = operate(Inside(workspace, idmap), "measure", path="image/rootfs")["bytes"]
            self._progress.stage("check")
            checks.check_image(workspace / "image", self._source.definition, flavor, idmap)
            manifest = self._manifest(
                flavor,
                base,
                key,
                idmap,
                remedies,
                digest,
                layer["digest"],
                size,
                wheels.guest_version(guest),
                time.monotonic() - begin,
            )
            operate(Inside(workspace, idmap), "sync", path="image/rootfs")
            close_folder(workspace / "image")
            return self._store.publish(workspace / "image", manifest)

    def _manifest(
        self,
        flavor: str,
        base: Base,
        key: str,
        idmap: IdMap,
        remedies: list[RemedyRecord],
        digest: str,
        layer_digest: str,
        size: int,
        guest_version: str,
        bake_s: float,
    ) -> ImageManifest:
        wanted = self._source.definition
        return ImageManifest(
            digest=digest,
            flavor=flavor,
            suite=wanted.suite,
            created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            screen=wanted.screen,
            user=wanted.user.name,
            home=wanted.user.home,
            uid_base=idmap.uid_base,
            gid_base=idmap.gid_base,
            id_count=idmap.count,
            base_digest=base.digest,
            layer_digest=layer_digest,
            definition_key=key,
            packages=base.packages.versions,
            lock_digest=base.packages.digest,
            apps=wanted.apps_of(flavor),
            remedies=remedies,
            guest_version=guest_version,
            size_bytes=size,
            bake_s=round(bake_s, 1),
        )


class _exclusive:  # used like a function
    """Hold a file lock, so that two bakes of one flavor wait for each other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> None:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
