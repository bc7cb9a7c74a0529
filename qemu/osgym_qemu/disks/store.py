"""Store of disk images, by the name of their bake or import."""

from __future__ import annotations

from pathlib import Path

from osgym_host.images.content_store import ContentStore, StoredContent
from osgym_host.images.store import build_command
from osgym_qemu.disks.manifest import DiskManifest

KERNEL, INITRD = "vmlinuz", "initrd.img"


class DiskImage(StoredContent[DiskManifest]):
    __slots__ = ()

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def disk(self) -> Path:
        """Disk file, `disk.qcow2` or `disk.raw`."""
        return self.folder / f"disk.{self.manifest.format}"

    @property
    def kernel(self) -> Path | None:
        """Kernel to start it with directly, if there is one beside it."""
        return self._sibling(KERNEL)

    @property
    def initrd(self) -> Path | None:
        """Initial RAM disk of `kernel`."""
        return self._sibling(INITRD)

    def _sibling(self, name: str) -> Path | None:
        path = self.folder / name
        return path if path.is_file() else None


class DiskStore(ContentStore[DiskImage, DiskManifest]):
    """Disk images below `<data>/disks`."""

    KIND = "disks"
    NOUN = "disk image"

    def open_entry(self, folder: Path, text: str) -> DiskImage:
        return DiskImage(folder, DiskManifest.model_validate_json(text))

    def how_to_make(self, name: str) -> str:
        return f"{build_command(name)} --format qcow2"
