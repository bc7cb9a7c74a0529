"""Store of golden images: root file systems to clone, and the parts that bakes keep for the next one."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from osgym_host.images.content_store import ContentStore, Manifest, StoredContent, reap_folders
from osgym_host.images.definition_model import App

FLAVORS = ("small", "full", "osworld")
"""Flavors of this project, for hints."""


def default_data_dir() -> Path:
    """Return OSGYM_DATA_DIR, or /var/lib/osgym for root, or ~/.cache/osgym."""
    configured = os.environ.get("OSGYM_DATA_DIR")
    if configured:
        return Path(configured)
    return Path("/var/lib/osgym") if os.geteuid() == 0 else Path.home() / ".cache" / "osgym"


MANIFEST_FORMAT = 1


class RemedyRecord(BaseModel):
    """Result of a remedy: whether it is part of the image, and its message."""

    model_config = ConfigDict(frozen=True)

    name: str
    applied: bool
    message: str = ""


class ImageManifest(Manifest):
    """Metadata of an image; `manifest.json` in its folder.

    Attributes:
        desktop_digest: Content digest of packages and desktop, without the guest part.
        uid_base, gid_base: Host ids that stand for 0 inside.
        packages: Package name to version, of every installed package.
        lock_digest: SHA-256 of the package list in the form of a lock file.
        added_packages: Name to version of the packages of an addition's `debs/`; no lock holds them.
        size_bytes: Size of all regular files.
        session_isolated: Programs of the desktop, root by sudo included, run in namespaces below those of the
            guest agent; False for images baked before there were such.
    """

    format: int = MANIFEST_FORMAT
    flavor: str
    suite: str
    screen: tuple[int, int]
    user: str
    home: str
    uid_base: int
    gid_base: int
    id_count: int
    desktop_digest: str = ""
    packages: dict[str, str]
    lock_digest: str
    added_packages: dict[str, str] = Field(default_factory=dict)
    apps: list[App]
    remedies: list[RemedyRecord]
    guest_version: str
    size_bytes: int
    bake_s: float
    session_isolated: bool = False


class Image(StoredContent[ImageManifest]):
    __slots__ = ()

    @property
    def name(self) -> str:
        return self.flavor

    @property
    def flavor(self) -> str:
        """Flavor: `full`, `small` or an addition's."""
        return self.manifest.flavor

    @property
    def rootfs(self) -> Path:
        """Root file system; files are owned by the shifted ids that the manifest names."""
        return self.folder / "rootfs"


class ImageStore(ContentStore[Image, ImageManifest]):
    """Golden images below `<data>/images`, by flavor."""

    KIND = "images"
    NOUN = "image"

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self.bases = data_dir / "cache" / "bases"
        self.desktops = data_dir / "cache" / "desktops"
        self.packages = data_dir / "cache" / "apt"
        self.wheels = data_dir / "cache" / "wheels"

    def prepare(self) -> None:
        ContentStore.prepare(self)
        for folder in (self.bases, self.desktops, self.packages, self.wheels):
            folder.mkdir(parents=True, exist_ok=True)

    def open_entry(self, folder: Path, text: str) -> Image:
        return Image(folder, ImageManifest.model_validate_json(text))

    def how_to_make(self, name: str) -> str:
        return build_command(name)

    def reap(self) -> list[str]:
        return reap_folders(self.folder, self.bases, self.desktops)


def build_command(flavor: str) -> str:
    """Return the command that bakes a flavor; for an unknown name, one that lists the flavors."""
    return f"osgym image build --flavor {flavor if flavor in FLAVORS else '|'.join(reversed(FLAVORS))}"
