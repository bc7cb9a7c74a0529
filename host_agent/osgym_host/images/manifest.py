"""The manifest: what an image is made of, written beside it when it is complete."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from osgym_host.images.definition import App

MANIFEST_FORMAT = 1


class RemedyRecord(BaseModel):
    """Whether a remedy is part of the image, and what it said."""

    model_config = ConfigDict(frozen=True)

    name: str
    applied: bool
    message: str = ""


class ImageManifest(BaseModel):
    """Everything that is known about an image; `manifest.json` in its folder.

    Attributes:
        digest: Content digest: 64 hexadecimal digits.
        desktop_digest: Content digest of packages and desktop, without the guest part.
        definition_key: Hash of what it was baked from.
        uid_base, gid_base: Host ids that stand for 0 inside.
        packages: Package name to version, of every installed package.
        lock_digest: SHA-256 of the package list in the form of a lock file.
        size_bytes: Size of all regular files.
    """

    model_config = ConfigDict(frozen=True)

    format: int = MANIFEST_FORMAT
    digest: str
    flavor: str
    suite: str
    created_at: str
    screen: tuple[int, int]
    user: str
    home: str
    uid_base: int
    gid_base: int
    id_count: int
    desktop_digest: str = ""
    definition_key: str
    packages: dict[str, str]
    lock_digest: str
    apps: list[App]
    remedies: list[RemedyRecord]
    guest_version: str
    size_bytes: int
    bake_s: float
