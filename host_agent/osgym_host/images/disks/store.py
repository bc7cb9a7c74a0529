"""The store of disk images: one folder per content digest, tags by name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from osgym_host.images.disks.manifest import DiskManifest
from osgym_host.images.errors import ImageError, ImageNotFound
from osgym_host.images.store import (
    MIN_PREFIX,
    REMOVING,
    fsync_folder,
    reap_folders,
    remove_tree,
    replace_file,
    workspace_in,
    write_tag,
)

KERNEL, INITRD, MANIFEST = "vmlinuz", "initrd.img", "manifest.json"


@dataclass(frozen=True, slots=True)
class DiskImage:
    """A complete disk image in the store.

    Attributes:
        name: Name it was made or imported under.
        folder: Immutable; holds all of it.
        disk: The disk itself, `disk.qcow2` or `disk.raw`.
    """

    digest: str
    name: str
    folder: Path
    disk: Path
    manifest: DiskManifest

    @property
    def kernel(self) -> Path | None:
        """The kernel to start it with directly, if there is one beside it."""
        return self._beside(KERNEL)

    @property
    def initrd(self) -> Path | None:
        """The initial RAM disk of `kernel`."""
        return self._beside(INITRD)

    def _beside(self, name: str) -> Path | None:
        path = self.folder / name
        return path if path.is_file() else None


class DiskStore:
    """Disk images below `<data>/disks`; every method may be called by several processes at once."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.folder = data_dir / "disks"
        self.tags = self.folder / "tags"

    def prepare(self) -> None:
        """Make the store's folders."""
        self.tags.mkdir(parents=True, exist_ok=True)

    def all(self) -> list[DiskImage]:
        """All complete disk images, the newest first."""
        found = []
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if not path.name.startswith(".") and (path / MANIFEST).is_file():
                    found.append(self._load(path))
        return sorted(found, key=lambda disk: disk.manifest.created_at, reverse=True)

    def tagged(self) -> dict[str, str]:
        """Name to the digest its tag names."""
        if not self.tags.is_dir():
            return {}
        paths = sorted(path for path in self.tags.iterdir() if not path.name.startswith("."))
        return {path.name: path.read_text().strip() for path in paths}

    def resolve(self, name: str) -> DiskImage:
        """The disk image of a name, a digest or a prefix of one.

        Raises:
            ImageNotFound: Nothing matches, or a prefix matches more than one.
        """
        tag = self.tags / name
        if "/" not in name and not name.startswith(".") and tag.is_file():
            path = self.folder / tag.read_text().strip()
            if (path / MANIFEST).is_file():
                return self._load(path)
            raise ImageNotFound(f"the disk image {name} is gone", _how_to_make(name))
        found = [disk for disk in self.all() if disk.digest.startswith(name)]
        if len(found) == 1 and len(name) >= MIN_PREFIX:
            return found[0]
        if found:
            raise ImageNotFound(f"{name!r} is not one disk image", f"give at least {MIN_PREFIX} digits")
        raise ImageNotFound(f"no disk image is called {name!r}", _how_to_make("full"))

    def tag(self, name: str, digest: str) -> None:
        """Let this name stand for this digest from now on, atomically."""
        write_tag(self.tags / name, digest)

    def remove(self, disk: DiskImage) -> None:
        """Remove a disk image and the tags that name it; it disappears in one rename.

        Machines that run on it keep their open files.
        """
        for name, digest in self.tagged().items():
            if digest == disk.digest:
                (self.tags / name).unlink(missing_ok=True)
        grave = self.folder / f"{REMOVING}{disk.digest[:16]}-{os.getpid()}"
        disk.folder.rename(grave)
        remove_tree(grave)

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """A folder to make a disk in; it is gone afterwards unless it was renamed into place."""
        self.prepare()
        with workspace_in(self.folder) as folder:
            yield folder

    def publish(self, prepared: Path, manifest: DiskManifest) -> DiskImage:
        """Make `prepared` (which holds the disk) the image of the manifest's digest, all or nothing.

        One that is already there under this digest is kept, since it is the same.
        """
        replace_file(prepared / MANIFEST, manifest.model_dump_json(indent=1) + "\n")
        target = self.folder / manifest.digest
        try:
            prepared.rename(target)
        except OSError:
            if not (target / MANIFEST).is_file():
                raise
            replace_file(target / MANIFEST, manifest.model_dump_json(indent=1) + "\n")
        fsync_folder(self.folder)
        return self._load(target)

    def reap(self) -> list[str]:
        """Remove what killed builds and removals left behind; returns the names."""
        return reap_folders(self.folder)

    def _load(self, path: Path) -> DiskImage:
        try:
            manifest = DiskManifest.model_validate_json((path / MANIFEST).read_text())
        except (OSError, ValidationError) as exc:
            raise ImageError(f"{path / MANIFEST} cannot be read: {exc}", f"remove {path}") from exc
        disk = path / f"disk.{manifest.format}"
        return DiskImage(manifest.digest, manifest.name, path, disk, manifest)


def _how_to_make(name: str) -> str:
    flavor = name if name in ("small", "full") else "full|small"
    return f"osgym image build --flavor {flavor} --format qcow2"
