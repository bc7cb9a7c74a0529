"""Store of golden snapshots: machines that were booted, warmed up and stopped, to be cloned.

A snapshot is a folder that never changes:

    manifest.json   description, and what a host needs to clone it
    base.qcow2      the disk image it was booted from (`base.raw` where that is raw): another name of the
                    same file, so that the disk image may be removed
    disk.qcow2      writes of the machine since, over the base
    ram             its memory, sparse; clones map it privately
    device.state    state of the machine's devices
    secret          the token that its guest agent demands until a clone gets one of its own; empty where
                    it demands none: it has no agent of ours, or one that waits for its identity
    uefi.fd         the firmware it was booted with, where that is UEFI

Memory and secret of older snapshots open every clone until it has an identity of its own, and any memory
tells what the desktop held, so nobody but the owner enters the folder. Machines that run as other users get
what they need as descriptors.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Any

from osgym_host.images.content_store import NAME, ContentStore, Manifest, StoredContent
from osgym_host.images.errors import ImageError
from osgym_qemu.disks.manifest import DiskFormat, GuestKind, Hardware

SNAPSHOT_MANIFEST_VERSION = 1
DISK, RAM, STATE, SECRET = "disk.qcow2", "ram", "device.state", "secret"
UEFI = "uefi.fd"
_OWNERS_ONLY = (RAM, STATE, DISK, SECRET)
DEFAULT_NAME = "desktop"


class SnapshotManifest(Manifest):
    """Metadata of a snapshot.

    Attributes:
        digest: Digest of its RAM, state and disk, and of the machine's shape.
        reference: `<disk image>@<name>`, the tag under which it was made.
        qemu_version: `major.minor.micro` of the QEMU that wrote the state.
        hardware: Machine that an imported disk expects, as in its manifest; None for ours.
        shape: Machine as guest and state see it (`osgym_qemu.machine.argv.Shape`).
        argv: Command that started the machine, for people.
        kernel_digest: SHA-256 of the kernel that runs; None where firmware started the disk's own.
        warmup: Name of the warm-up, empty for none.
        warm_apps: Programs that run in it without a window, as in the setting `warm_apps`.
        ram_mib: Memory of the guest; `ram_data_bytes` is the part that is not zero.
        boot_s: Time from the start of the process until the desktop was drawn and quiet.
        session_isolated: Value in the manifest of the disk that it was booted from.
    """

    version: int = SNAPSHOT_MANIFEST_VERSION
    reference: str
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
    kernel_digest: str | None
    warmup: str = ""
    warm_apps: tuple[str, ...] = ()
    ram_mib: int
    ram_data_bytes: int
    state_bytes: int
    disk_bytes: int
    ram_sha256: str
    state_sha256: str
    disk_sha256: str
    boot_s: float
    build_s: float
    session_isolated: bool = False


class Snapshot(StoredContent[SnapshotManifest]):
    """A complete snapshot: an image as runtimes of virtual machines clone it."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return self.reference

    @property
    def reference(self) -> str:
        """`<disk image>@<name>`."""
        return self.manifest.reference

    @property
    def disk(self) -> Path:
        """Frozen disk, qcow2, as the base of overlays; its own base lies beside it."""
        return self.folder / DISK

    @property
    def base(self) -> Path:
        return self.folder / base_name(self.manifest.disk_format)

    @property
    def ram(self) -> Path:
        return self.folder / RAM

    @property
    def state(self) -> Path:
        return self.folder / STATE

    @property
    def uefi(self) -> Path | None:
        """Firmware that it was booted with, where that is UEFI."""
        path = self.folder / UEFI
        return path if path.is_file() else None

    def secret(self) -> str | None:
        """Return the token that the frozen guest agent demands; None where it demands none.

        Raises:
            ImageError: It cannot be read.
        """
        try:
            return (self.folder / SECRET).read_text().strip() or None
        except OSError as exc:
            raise ImageError(f"the secret of {self.reference} cannot be read: {exc}") from exc


class SnapshotStore(ContentStore[Snapshot, SnapshotManifest]):
    """Snapshots below `<data>/snapshots`, by reference: `full@desktop`, or `full`, which means the same."""

    KIND = "snapshots"
    NOUN = "snapshot"

    def publish(self, prepared: Path, manifest: SnapshotManifest) -> Snapshot:
        """Remove the permissions of others from the snapshot, then publish it."""
        _close_to_others(prepared)
        found = super().publish(prepared, manifest)
        _close_to_others(found.folder)
        return found

    def close_to_others(self) -> list[str]:
        """Remove permissions of others that older versions left; return the digests of changed snapshots.

        Those of another user are left alone, unless we are root.
        """
        if not self.folder.is_dir():
            return []
        folders = [path for path in sorted(self.folder.iterdir()) if not path.name.startswith(".")]
        return [path.name for path in folders if path != self.tags and _close_to_others(path)]

    def tag_name(self, name: str) -> str:
        """Return the reference of a name.

        Raises:
            ValueError: It is not of the form `<disk image>@<name>`.
        """
        return full_reference(name)

    def open_entry(self, folder: Path, text: str) -> Snapshot:
        return Snapshot(folder, SnapshotManifest.model_validate_json(text))

    def how_to_make(self, name: str) -> str:
        return how_to_make(name)


def _close_to_others(folder: Path) -> bool:
    """Let only the owner into a snapshot's folder and its memory; return whether something changed.

    The disk image beneath it keeps its mode: it is another name of a file of the disk images' store.
    """
    changed = False
    for path, mode in ((folder, 0o700), *((folder / name, 0o400) for name in _OWNERS_ONLY)):
        with contextlib.suppress(FileNotFoundError):
            found = path.lstat()
            if stat.S_ISLNK(found.st_mode) or os.geteuid() not in (0, found.st_uid):
                continue
            if stat.S_IMODE(found.st_mode) & 0o077:
                path.chmod(mode)
                changed = True
    return changed


def full_reference(name: str) -> str:
    """`full` and `full@desktop` → `full@desktop`.

    Raises:
        ValueError: The name has neither form.
    """
    disk, _, snapshot = name.partition("@")
    snapshot = snapshot if "@" in name else DEFAULT_NAME
    if not NAME.fullmatch(disk) or not NAME.fullmatch(snapshot):
        raise ValueError(f"not the name of a snapshot (disk@name): {name!r}")
    return f"{disk}@{snapshot}"


def base_name(disk_format: DiskFormat) -> str:
    return f"base.{disk_format}"


def how_to_make(name: str) -> str:
    """Return the command that makes a snapshot of this reference."""
    disk, _, snapshot = name.partition("@")
    extra = f" --name {snapshot}" if snapshot and snapshot != DEFAULT_NAME else ""
    return f"osgym image snapshot {disk}{extra}"
