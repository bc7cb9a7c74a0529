"""Bake of a golden image in three parts, each kept for the next bake: packages, desktop, guest.

mmdebstrap makes the package part. The desktop is a layer over it: files, settings, first starts of the
applications. The guest part is a layer over that: the guest agent and the remedies. It changes most often,
and baking it alone takes seconds.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from osgym_host.images.content_store import close_folder, discard, open_folder, replace_file
from osgym_host.images.definition import ImageSource, hash_of
from osgym_host.images.definition_model import Definition
from osgym_host.images.errors import BakeError, ImageError
from osgym_host.images.idmap import IdMap, current_idmap
from osgym_host.images.layer import Contents, LayerBake, make_layer
from osgym_host.images.lock import PackageLock
from osgym_host.images.namespaces import NamespaceSpec, Overlay, call, operate
from osgym_host.images.packages import PackageBake, bake_packages
from osgym_host.images.progress import BakeProgress
from osgym_host.images.store import Image, ImageManifest, ImageStore, RemedyRecord
from osgym_host.images.wheels import GuestAgent, find_guest_agent, install_wheels, requirement_wheels

PYTHON_FOLDER = "usr/local/lib/python3.11/dist-packages/"
"""Folder in which Debian 12's Python finds packages that are not from Debian."""

_PROBE = """
set -u
failed=0
for name in $BINARIES; do
    command -v "$name" >/dev/null || { echo "missing: $name"; failed=1; }
done
for module in pyautogui_without_display Xlib PIL osgym_guest; do
    if [ "$module" = pyautogui_without_display ]; then
        python3 -c 'import importlib.util as u; import sys; sys.exit(u.find_spec("pyautogui") is None)'
    else
        python3 -I -c "import $module"
    fi || { echo "python cannot import $module"; failed=1; }
done
exit $failed
"""
"""Script that checks a baked image before it is published."""
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


@dataclass(frozen=True, slots=True)
class BakeRequest:
    """Options of a bake.

    Attributes:
        lock: Exact package versions, or None for those of today.
        refresh: Bake all parts anew even if there are some of the same definition.
    """

    flavor: str
    lock: PackageLock | None = None
    refresh: bool = False


@dataclass(frozen=True, slots=True)
class _Parts:
    below: CachedTree
    guest: GuestAgent
    key: str
    idmap: IdMap
    begin_s: float


class Baker:
    def __init__(self, source: ImageSource, store: ImageStore, progress: BakeProgress) -> None:
        self._source = source
        self._store = store
        self._progress = progress
        self._bases = TreeCache(store.bases)
        self._desktops = TreeCache(store.desktops)

    def bake(self, request: BakeRequest) -> Image:
        """Bake, unless nothing has changed; afterwards the flavor's tag names the image.

        On any failure the store is unchanged, except for leftovers that the next bake removes.

        Raises:
            ImageError: A stage failed; the error has the end of its log.
        """
        begin_s = time.monotonic()
        self._source.definition.flavor(request.flavor)
        idmap = current_idmap()
        with self._progress.shown(), self._store.making(request.flavor, self._progress.wait):
            guest = find_guest_agent()
            base = self._base(request, idmap)
            desktop = self._desktop(request, base, idmap)
            key = self._image_key(request, desktop, guest)
            found = self._baked(key, idmap)
            if found is not None:
                self._progress.note("nothing changed: the image already exists")
            else:
                found = self._finish(request.flavor, _Parts(desktop, guest, key, idmap, begin_s))
            self._store.tag(request.flavor, found.digest)
            self._bases.prune(request.flavor, keep=base)
            self._desktops.prune(request.flavor, keep=desktop)
            return found

    def definition(self, request: BakeRequest) -> str:
        """Return the digest of everything that an image is made from and that is known before a bake.

        Two bakes of one definition may differ without a lock, by Debian's packages of another day.

        Raises:
            DefinitionError: There is no such flavor, or no guest agent.
        """
        self._source.definition.flavor(request.flavor)
        own = (self._base_key(request), self._source.desktop_key(), self._source.guest_key())
        return hash_of(request.flavor, *own, find_guest_agent().key())

    def plan(self, request: BakeRequest) -> dict[str, object]:
        """Return the actions of `bake` without executing them."""
        definition = self._source.definition
        idmap = current_idmap()
        base = None if request.refresh else self._bases.find(self._base_key(request), idmap)
        desktop = base and self._desktops.find(self._desktop_key(request, base), idmap)
        guest = find_guest_agent()
        found = desktop and self._baked(self._image_key(request, desktop, guest), idmap)
        return {
            "flavor": request.flavor,
            "suite": definition.suite,
            "packages": definition.packages(request.flavor),
            "scripts": [
                script.name for part in ("desktop", "guest") for script in self._source.scripts(part)
            ],
            "remedies": [remedy.name for remedy in self._source.remedies],
            "store": str(self._store.folder),
            "package_part": "kept" if base else "to be baked",
            "desktop_part": "kept" if desktop else "to be baked",
            "image": found.digest if found else None,
        }

    def _base_key(self, request: BakeRequest) -> str:
        return self._source.base_key(request.flavor, request.lock.digest if request.lock else None)

    def _desktop_key(self, request: BakeRequest, base: CachedTree) -> str:
        return hash_of(request.flavor, base.digest, self._source.desktop_key())[:16]

    def _image_key(self, request: BakeRequest, desktop: CachedTree, guest: GuestAgent) -> str:
        return hash_of(request.flavor, desktop.digest, self._source.guest_key(), guest.key())

    def _base(self, request: BakeRequest, idmap: IdMap) -> CachedTree:
        key = self._base_key(request)
        kept = None if request.refresh else self._bases.find(key, idmap)
        if kept is not None:
            self._progress.note("package part: kept from an earlier bake")
            return kept
        with self._store.workspace() as workspace:
            made = workspace / "base"
            made.mkdir()
            open_folder(made, idmap)
            operate(NamespaceSpec(made, idmap), "make", paths=["rootfs"])
            cache = self._store.packages
            wanted = PackageBake(self._source.definition, request.flavor, cache, workspace, request.lock)
            digest = bake_packages(wanted, made / "rootfs", idmap, self._progress)
            packages = PackageLock.of_dpkg_status((made / "rootfs/var/lib/dpkg/status").read_text())
            if request.lock is not None and (said := request.lock.differences(packages)):
                hint = "bake without --lock, and write a new lock with osgym image lock"
                raise BakeError("lock", "; ".join(said[:10]), hint=hint)
            return self._bases.put(made, key, request.flavor, digest, packages, idmap)

    def _desktop(self, request: BakeRequest, base: CachedTree, idmap: IdMap) -> CachedTree:
        key = self._desktop_key(request, base)
        kept = None if request.refresh else self._desktops.find(key, idmap)
        if kept is not None:
            self._progress.note("desktop part: kept from an earlier bake")
            return kept
        with self._store.workspace() as workspace, tempfile.TemporaryDirectory(prefix="osgym-py-") as scratch:
            self._progress.stage("layer", "files and Python distributions")
            wanted = self._source.definition.python.requirements
            python = Path(scratch) / "python"
            install_wheels(requirement_wheels(wanted, self._store.wheels), python)
            trees = [*self._source.trees, (python, PYTHON_FOLDER)]
            contents = Contents(trees, self._source.scripts("desktop"))
            made, digest, _ = self._lay(request.flavor, workspace, base, contents, idmap)
            return self._desktops.put(made, key, request.flavor, digest, base.packages, idmap)

    def _finish(self, flavor: str, parts: _Parts) -> Image:
        """Make the guest part over the desktop; check and publish the image."""
        with self._store.workspace() as workspace, tempfile.TemporaryDirectory(prefix="osgym-py-") as scratch:
            self._progress.stage("layer", "guest agent")
            python = Path(scratch) / "python"
            parts.guest.install(python, self._store.wheels)
            scripts, remedies = self._source.scripts("guest"), self._source.remedies
            contents = Contents([(python, PYTHON_FOLDER)], scripts, remedies)
            made, digest, records = self._lay(flavor, workspace, parts.below, contents, parts.idmap)
            self._progress.stage("check")
            _check(made, self._source.definition, flavor, parts.idmap)
            manifest = self._manifest(flavor, parts, made, digest, records)
            self._progress.stage("publish")
            operate(NamespaceSpec(workspace, parts.idmap), "sync", path=f"{made.name}/rootfs")
            close_folder(made)
            return self._store.publish(made, manifest)

    def _lay(
        self, flavor: str, workspace: Path, below: CachedTree, contents: Contents, idmap: IdMap
    ) -> tuple[Path, str, list[RemedyRecord]]:
        """Make a layer and merge it with the tree below.

        Returns:
            The folder that holds `rootfs`, the digest of both together, and the results of the remedies.
        """
        open_folder(workspace, idmap)
        below_path = os.path.relpath(below.folder / "rootfs", workspace)
        bake = LayerBake(self._source.definition, flavor, workspace, below_path, idmap)
        records = make_layer(bake, contents, self._progress)
        inside = NamespaceSpec(workspace, idmap)
        layer = operate(inside, "digest", path="upper")
        made = workspace / "made"
        made.mkdir()
        open_folder(made, idmap)
        operate(inside, "flatten", base=below_path, layer="upper", target="made/rootfs")
        return made, hash_of(below.digest, layer["digest"]), records

    def _baked(self, key: str, idmap: IdMap) -> Image | None:
        image = self._store.made_from(key)
        return image if image is not None and image.manifest.uid_base == idmap.uid_base else None

    def _manifest(
        self, flavor: str, parts: _Parts, made: Path, digest: str, remedies: list[RemedyRecord]
    ) -> ImageManifest:
        wanted = self._source.definition
        size = operate(NamespaceSpec(made, parts.idmap), "measure", path="rootfs")["bytes"]
        packages = parts.below.packages
        status = (made / "rootfs/var/lib/dpkg/status").read_text()
        installed = PackageLock.of_dpkg_status(status).versions
        return ImageManifest(
            digest=digest,
            flavor=flavor,
            suite=wanted.suite,
            screen=wanted.screen,
            user=wanted.user.name,
            home=wanted.user.home,
            uid_base=parts.idmap.uid_base,
            gid_base=parts.idmap.gid_base,
            id_count=parts.idmap.count,
            desktop_digest=parts.below.digest,
            definition_key=parts.key,
            packages=packages.versions,
            lock_digest=packages.digest,
            added_packages=dict(installed.items() - packages.versions.items()),
            apps=wanted.apps_of(flavor),
            remedies=remedies,
            guest_version=parts.guest.version,
            size_bytes=size,
            bake_s=round(time.monotonic() - parts.begin_s, 1),
            session_isolated=True,
        )


def _check(folder: Path, definition: Definition, flavor: str, idmap: IdMap) -> None:
    """Check the image in `folder/rootfs` by running programs over a throw-away overlay.

    Raises:
        BakeError: Something is missing; the message names it.
    """
    names = " ".join(definition.binaries_of(flavor))
    scratch = folder.parent / "probe"
    scratch.mkdir()
    open_folder(scratch, idmap)
    here = f"{scratch.name}/"
    paths = [here + name for name in ("upper", "work", "merged")]
    operate(NamespaceSpec(folder.parent, idmap), "make", paths=paths)
    inside = NamespaceSpec(
        folder.parent,
        idmap,
        overlay=Overlay(f"{folder.name}/rootfs", *paths),
        root=here + "merged",
        env={"BINARIES": names, "HOME": definition.user.home},
    )
    try:
        call(inside, ["/bin/sh", "-c", _PROBE], timeout_s=120)
    except ImageError as exc:
        raise BakeError("check", str(exc)) from exc
