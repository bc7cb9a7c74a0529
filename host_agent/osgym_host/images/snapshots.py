"""The store of golden snapshots: machines that were booted, warmed up and stopped, to be cloned.

A snapshot is a folder that never changes:

    manifest.json   what it is and what a host needs to take it
    base.qcow2      the disk image it was booted from (`base.raw` where that is raw): another name of the
                    same file, so that the disk image may be removed
    disk.qcow2      what the machine wrote since, over the base
    ram             its memory, sparse; clones map it privately
    device.state    the rest of the machine
    secret          the token that its guest agent demands until a clone gets one of its own; empty where
                    it has no agent of ours
    uefi.fd         the firmware it was booted with, where that is UEFI
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from osgym_host.images.disks.manifest import DiskFormat, GuestKind, Hardware
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

SNAPSHOT_MANIFEST_VERSION = 1
MANIFEST, DISK, RAM, STATE, SECRET = "manifest.json", "disk.qcow2", "ram", "device.state", "secret"
UEFI = "uefi.fd"
DEFAULT_NAME = "desktop"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names of snapshots and of disk images."""


class SnapshotManifest(BaseModel):
    """Everything that is known about a snapshot.

    Attributes:
        digest: Of its RAM, state and disk, and of the machine's shape: 64 hexadecimal digits.
        reference: `<disk image>@<name>`, the tag it was made under.
        disk_digest, image_digest: The disk image it was booted from, and what that was made of.
        qemu_version: `major.minor.micro` of the QEMU that wrote the state.
        hardware: What an imported disk expects, as in its manifest; None for ours.
        shape: The machine as guest and state see it (`runtimes.qemu.argv.Shape`).
        argv: How the machine was started, for people.
        definition_key: Hash of what it was made from; the same key again gives nothing new.
        kernel_digest: SHA-256 of the kernel that runs; None where firmware started the disk's own.
        warmup: Name of the warm-up, empty for none.
        ram_mib: What the guest has; `ram_data_bytes` is what of it is not zero.
        boot_s: From the start of the process until the desktop was drawn and quiet.
        build_s: All of it.
    """

    model_config = ConfigDict(frozen=True)

    version: int = SNAPSHOT_MANIFEST_VERSION
    digest: str
    reference: str
    created_at: str
    disk_digest: str
    disk_format: DiskFormat
    image_digest: str | None
    guest: GuestKind
    guest_version: str = ""
    hardware: Hardware | None = None
    screen: tuple[int, int]
    qemu_version: str
    shape: dict[str, Any]
    argv: list[str]
    definition_key: str = ""
    kernel_digest: str | None
    warmup: str = ""
    ram_mib: int
    ram_data_bytes: int
    state_bytes: int
    disk_bytes: int
    ram_sha256: str
    state_sha256: str
    disk_sha256: str
    boot_s: float
    build_s: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A complete snapshot in the store; an image as runtimes of virtual machines clone it.

    Attributes:
        reference: `<disk image>@<name>`.
        folder: Immutable; holds all of it.
    """

    digest: str
    reference: str
    folder: Path
    manifest: SnapshotManifest

    @property
    def disk(self) -> Path:
        """The frozen disk, qcow2, to lay overlays over; its base lies beside it."""
        return self.folder / DISK

    @property
    def base(self) -> Path:
        """The disk image below it."""
        return self.folder / base_name(self.manifest.disk_format)

    @property
    def ram(self) -> Path:
        """The frozen memory."""
        return self.folder / RAM

    @property
    def state(self) -> Path:
        """The frozen rest of the machine."""
        return self.folder / STATE

    @property
    def uefi(self) -> Path | None:
        """The firmware it was booted with, where that is UEFI."""
        path = self.folder / UEFI
        return path if path.is_file() else None

    def secret(self) -> str | None:
        """The token that the frozen guest agent demands; None where it demands none.

        Raises:
            ImageError: It cannot be read.
        """
        try:
            return (self.folder / SECRET).read_text().strip() or None
        except OSError as exc:
            raise ImageError(f"the secret of {self.reference} cannot be read: {exc}") from exc


class SnapshotStore:
    """Snapshots below `<data>/snapshots`; every method may be called by several processes at once."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.folder = data_dir / "snapshots"
        self.tags = self.folder / "tags"

    def prepare(self) -> None:
        """Make the store's folders."""
        self.tags.mkdir(parents=True, exist_ok=True)

    def all(self) -> list[Snapshot]:
        """All complete snapshots, the newest first."""
        found = []
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if not path.name.startswith(".") and (path / MANIFEST).is_file():
                    found.append(self._load(path))
        return sorted(found, key=lambda snapshot: snapshot.manifest.created_at, reverse=True)

    def tagged(self) -> dict[str, str]:
        """Reference to the digest its tag names."""
        if not self.tags.is_dir():
            return {}
        paths = sorted(path for path in self.tags.iterdir() if not path.name.startswith("."))
        return {path.name: path.read_text().strip() for path in paths}

    def resolve(self, name: str) -> Snapshot:
        """The snapshot of a reference (`full@desktop`; `full` means the same), a digest or its prefix.

        Raises:
            ImageNotFound: Nothing matches, or a prefix matches more than one.
        """
        with contextlib.suppress(ValueError):
            reference = full_reference(name)
            tag = self.tags / reference
            if tag.is_file():
                path = self.folder / tag.read_text().strip()
                if (path / MANIFEST).is_file():
                    return self._load(path)
                raise ImageNotFound(f"the snapshot {reference} is gone", how_to_make(reference))
        found = [snapshot for snapshot in self.all() if snapshot.digest.startswith(name)]
        if len(found) == 1 and len(name) >= MIN_PREFIX:
            return found[0]
        if found:
            raise ImageNotFound(f"{name!r} is not one snapshot", f"give at least {MIN_PREFIX} digits")
        raise ImageNotFound(f"no snapshot is called {name!r}", how_to_make(name))

    def tag(self, reference: str, digest: str) -> None:
        """Let this reference stand for this digest from now on, atomically.

        Raises:
            ValueError: It is not of the form `<disk image>@<name>`.
        """
        write_tag(self.tags / full_reference(reference), digest)

    def remove(self, snapshot: Snapshot) -> None:
        """Remove a snapshot and the tags that name it; it disappears in one rename.

        Clones that run keep their open files.
        """
        for reference, digest in self.tagged().items():
            if digest == snapshot.digest:
                (self.tags / reference).unlink(missing_ok=True)
        grave = self.folder / f"{REMOVING}{snapshot.digest[:16]}-{os.getpid()}"
        snapshot.folder.rename(grave)
        remove_tree(grave)

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """A folder to make a snapshot in; it is gone afterwards unless it was renamed into place."""
        self.prepare()
        with workspace_in(self.folder) as folder:
            yield folder

    def publish(self, prepared: Path, manifest: SnapshotManifest) -> Snapshot:
        """Make `prepared` (which holds all files) the snapshot of the manifest's digest, all or nothing."""
        replace_file(prepared / MANIFEST, manifest.model_dump_json(indent=1) + "\n")
        target = self.folder / manifest.digest
        try:
            prepared.rename(target)
        except OSError:
            if not (target / MANIFEST).is_file():
                raise
        fsync_folder(self.folder)
        return self._load(target)

    def reap(self) -> list[str]:
        """Remove what killed builds and removals left behind; returns the names."""
        return reap_folders(self.folder)

    def _load(self, path: Path) -> Snapshot:
        try:
            manifest = SnapshotManifest.model_validate_json((path / MANIFEST).read_text())
        except (OSError, ValidationError) as exc:
            raise ImageError(f"{path / MANIFEST} cannot be read: {exc}", f"remove {path}") from exc
        return Snapshot(manifest.digest, manifest.reference, path, manifest)


def full_reference(name: str) -> str:
    """`full` and `full@desktop` → `full@desktop`.

    Raises:
        ValueError: It is neither.
    """
    disk, _, snapshot = name.partition("@")
    snapshot = snapshot if "@" in name else DEFAULT_NAME
    if not NAME.fullmatch(disk) or not NAME.fullmatch(snapshot):
        raise ValueError(f"not the name of a snapshot (disk@name): {name!r}")
    return f"{disk}@{snapshot}"


def base_name(disk_format: DiskFormat) -> str:
    """Name of the disk image in a snapshot's folder."""
    return f"base.{disk_format}"


def how_to_make(name: str) -> str:
    """The command that makes a snapshot of this reference."""
    disk, _, snapshot = name.partition("@")
    extra = f" --name {snapshot}" if snapshot and snapshot != DEFAULT_NAME else ""
    return f"osgym image snapshot {disk}{extra}"


__all__ = ["Snapshot", "SnapshotManifest", "SnapshotStore", "full_reference", "how_to_make"]
