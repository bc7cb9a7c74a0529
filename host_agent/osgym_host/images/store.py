"""The store of golden images: one folder per content digest, a tag per flavor."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from osgym_host.images import tree
from osgym_host.images.errors import ImageError, ImageNotFound
from osgym_host.images.idmap import IdMap, current_idmap
from osgym_host.images.manifest import ImageManifest
from osgym_host.images.namespaces import Inside, operate

MIN_PREFIX = 6
"""Shortest digest prefix that may name an image."""

BAKING = ".baking-"
REMOVING = ".removing-"
_LOCK_NAME = "lock"


def default_data_dir() -> Path:
    """OSGYM_DATA_DIR, or /var/lib/osgym for root, or ~/.cache/osgym."""
    configured = os.environ.get("OSGYM_DATA_DIR")
    if configured:
        return Path(configured)
    return Path("/var/lib/osgym") if os.geteuid() == 0 else Path.home() / ".cache" / "osgym"


@dataclass(frozen=True, slots=True)
class Image:
    """A complete image in the store.

    Attributes:
        rootfs: Its root file system; files are owned by the shifted ids that the manifest names.
    """

    digest: str
    flavor: str
    rootfs: Path
    manifest: ImageManifest


class ImageStore:
    """Images below `<data>/images`; every method may be called by several processes at once."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.folder = data_dir / "images"
        self.tags = self.folder / "tags"
        self.bases = data_dir / "cache" / "bases"
        self.desktops = data_dir / "cache" / "desktops"
        self.packages = data_dir / "cache" / "apt"
        self.wheels = data_dir / "cache" / "wheels"

    def prepare(self) -> None:
        """Make the store's folders."""
        for folder in (self.folder, self.tags, self.bases, self.desktops, self.packages, self.wheels):
            folder.mkdir(parents=True, exist_ok=True)

    def all(self) -> list[Image]:
        """All complete images, the newest first."""
        images = []
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if not path.name.startswith(".") and (path / "manifest.json").is_file():
                    images.append(self._load(path))
        return sorted(images, key=lambda image: image.manifest.created_at, reverse=True)

    def tagged(self) -> dict[str, str]:
        """Flavor to the digest its tag names."""
        if not self.tags.is_dir():
            return {}
        return {path.name: path.read_text().strip() for path in sorted(self.tags.iterdir())}

    def resolve(self, name: str) -> Image:
        """The image of a flavor, a digest or a prefix of one.

        Raises:
            ImageNotFound: Nothing matches, or a prefix matches more than one.
        """
        tag = self.tags / name
        if "/" not in name and not name.startswith(".") and tag.is_file():
            path = self.folder / tag.read_text().strip()
            if (path / "manifest.json").is_file():
                return self._load(path)
            raise ImageNotFound(f"the image of flavor {name} is gone", f"osgym image build --flavor {name}")
        found = [image for image in self.all() if image.digest.startswith(name)]
        if len(found) == 1 and len(name) >= MIN_PREFIX:
            return found[0]
        if found:
            raise ImageNotFound(f"{name!r} is not one image", f"give at least {MIN_PREFIX} digits")
        raise ImageNotFound(f"no image is called {name!r}", "osgym image build --flavor full|small")

    def tag(self, flavor: str, digest: str) -> None:
        """Let the flavor's tag name this digest from now on, atomically."""
        write_tag(self.tags / flavor, digest)

    def remove(self, image: Image) -> None:
        """Remove an image and the tags that name it; it disappears in one rename."""
        for flavor, digest in self.tagged().items():
            if digest == image.digest:
                (self.tags / flavor).unlink(missing_ok=True)
        grave = self.folder / f"{REMOVING}{image.digest[:16]}-{os.getpid()}"
        image.rootfs.parent.rename(grave)
        remove_tree(grave)

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """A folder to bake in; it is gone afterwards unless it was renamed into place."""
        self.prepare()
        with workspace_in(self.folder) as folder:
            yield folder

    def publish(self, prepared: Path, manifest: ImageManifest) -> Image:
        """Make `prepared` (which holds `rootfs`) the image of the manifest's digest, all or nothing.

        An image that is already there under this digest is kept, since it is the same; only what
        it was baked from is written down anew.
        """
        replace_file(prepared / "manifest.json", manifest.model_dump_json(indent=1) + "\n")
        target = self.folder / manifest.digest
        try:
            prepared.rename(target)
        except OSError:
            if not (target / "manifest.json").is_file():
                raise
            replace_file(target / "manifest.json", manifest.model_dump_json(indent=1) + "\n")
        fsync_folder(self.folder)
        return self._load(target)

    def reap(self) -> list[str]:
        """Remove what killed bakes and removals left behind; returns the names."""
        return reap_folders(self.folder, self.bases, self.desktops)

    def _load(self, path: Path) -> Image:
        try:
            manifest = ImageManifest.model_validate_json((path / "manifest.json").read_text())
        except (OSError, ValidationError) as exc:
            raise ImageError(f"{path / 'manifest.json'} cannot be read: {exc}", "osgym image rm it") from exc
        return Image(manifest.digest, manifest.flavor, path / "rootfs", manifest)


@contextlib.contextmanager
def workspace_in(folder: Path) -> Iterator[Path]:
    """A scratch folder below a store's `folder`, gone afterwards unless it was renamed into place.

    Holds a lock on it while it is used, so that `reap_folders` of another process lets it be.
    """
    made = Path(tempfile.mkdtemp(prefix=BAKING, dir=folder))
    made.chmod(0o755)
    with (made / _LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield made
        finally:
            remove_tree(made)


def reap_folders(*folders: Path) -> list[str]:
    """Remove what killed bakes and removals left in stores' folders; returns the names."""
    reaped = []
    for path in [path for folder in folders if folder.is_dir() for path in folder.iterdir()]:
        if path.name.startswith((BAKING, REMOVING)) and not _in_use(path):
            remove_tree(path)
            reaped.append(path.name)
    return reaped


def replace_file(path: Path, text: str) -> None:
    """Write a file so that a reader, or a crash, sees the old one or the new one whole."""
    fd, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    with os.fdopen(fd, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(name).chmod(0o644)
    Path(name).rename(path)
    fsync_folder(path.parent)


def write_tag(path: Path, digest: str) -> None:
    """Let a tag name a digest, atomically. One that does already is left alone, with the time of its file:
    what is packed of a store is the same as long as the store is."""
    try:
        if path.read_text() == f"{digest}\n":
            return
    except FileNotFoundError:
        pass
    replace_file(path, f"{digest}\n")


def fsync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_folder(folder: Path, idmap: IdMap) -> None:
    """Let the mapped root write into a folder of ours: root gives it away, others open it to all."""
    if os.geteuid() == 0:
        os.chown(folder, idmap.uid_base, idmap.gid_base)
    else:
        folder.chmod(0o777)


def close_folder(folder: Path) -> None:
    """Take back what `open_folder` gave."""
    if os.geteuid() == 0:
        os.chown(folder, 0, 0)
    folder.chmod(0o755)


def remove_tree(path: Path) -> None:
    """Remove a folder of ours that may hold trees owned by shifted ids; absent is fine."""
    if not path.exists():
        return
    if os.geteuid() == 0:
        tree.remove(str(path))
        return
    # Another process may be removing the same leftover; whoever comes second finds less.
    with contextlib.suppress(FileNotFoundError):
        # The mapped root may not write into our folders unless everybody may.
        path.chmod(0o777)
        for entry in list(path.iterdir()):
            if entry.is_symlink() or not entry.is_dir():
                entry.unlink(missing_ok=True)
            elif entry.stat().st_uid == os.getuid():
                remove_tree(entry)
            else:
                operate(Inside(path, current_idmap()), "remove", path=entry.name)
        path.rmdir()


def _in_use(folder: Path) -> bool:
    """Whether the process that made this workspace still holds its lock."""
    try:
        with (folder / _LOCK_NAME).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


__all__ = [
    "Image",
    "ImageStore",
    "default_data_dir",
    "fsync_folder",
    "remove_tree",
    "replace_file",
    "write_tag",
]
