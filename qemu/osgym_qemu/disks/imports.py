"""Import of disks that others made: OSWorld's images, or a user's own."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from osgym_host.images import qcow2
from osgym_host.images.content_store import NAME
from osgym_host.images.definition import hash_of
from osgym_host.images.errors import ImageError
from osgym_qemu.disks import foreign
from osgym_qemu.disks.boot import boot_ways, read_head
from osgym_qemu.disks.manifest import DiskFormat, DiskManifest, Firmware, GuestKind, Hardware
from osgym_qemu.disks.overlay import CANNOT_SHARE, QCOW2_MAGIC, copy_sharing, virtual_size
from osgym_qemu.disks.store import DiskImage, DiskStore

_CHUNK = 4 << 20
_HOLE = b"\0" * _CHUNK
_HEADER_BYTES = 104
_ISO_AT, _ISO_MAGIC = 0x8001, b"CD001"
_OTHERS = {
    b"PK\x03\x04": ("a ZIP archive", "unpack it first"),
    b"\x1f\x8b": ("compressed (gzip)", "gunzip it first"),
    b"\xfd7zXZ": ("compressed (xz)", "unxz it first"),
    b"# Disk DescriptorFile": ("the description of a VMDK", "name a VMDK that is one file"),
}


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """Options of an import.

    Attributes:
        source: Disk, which is left unchanged.
        firmware: Firmware; None to detect it.
        screen: Size of its desktop in pixels.
        hardware: Machine that it expects; None for ours.
    """

    source: Path
    name: str
    guest: GuestKind
    firmware: Firmware | None
    screen: tuple[int, int]
    hardware: Hardware | None = None


def examine(source: Path) -> DiskFormat | str:
    """Detect the format of a disk, which is hostile input.

    A qcow2 that names other files is refused, since they would be this machine's. So is one whose tables lead
    out of the file.

    Returns:
        A format that is kept as it is, or the name of one that must be converted.

    Raises:
        ImageError: It cannot be read, is something else, or refers to other files.
    """
    try:
        with source.open("rb") as file:
            head = file.read(_HEADER_BYTES)
            file.seek(_ISO_AT)
            iso = file.read(len(_ISO_MAGIC)) == _ISO_MAGIC
    except OSError as exc:
        raise ImageError(f"{source} cannot be read: {exc.strerror}") from exc
    if (name := foreign.foreign_format(head)) is not None:
        return name
    if not head.startswith(QCOW2_MAGIC):
        for magic, (kind, hint) in _OTHERS.items():
            if head.startswith(magic):
                raise ImageError(f"{source} is {kind}, not a disk", hint)
        if iso:
            raise ImageError(f"{source} is a CD image, not a disk", "install it on a disk first")
        if len(head) < _HEADER_BYTES or source.stat().st_size % 512:
            raise ImageError(f"{source} is not a disk: its size is not in sectors")
        return DiskFormat.RAW
    _examine_qcow2(source)
    return DiskFormat.QCOW2


def _examine_qcow2(source: Path) -> None:
    """Check header and tables of a qcow2, before any program opens it."""
    try:
        with source.open("rb") as file:
            qcow2.check_file(file)
    except qcow2.Qcow2Error as exc:
        hint = f"convert it on its original machine: qemu-img convert -O qcow2 {source.name} whole.qcow2"
        raise ImageError(f"{source} cannot be imported: {exc}", hint) from exc
    except OSError as exc:
        raise ImageError(f"{source} cannot be read: {exc.strerror}") from exc


def import_disk(
    request: ImportRequest, store: DiskStore, moved: Callable[[int, int], None] = lambda done, total: None
) -> DiskImage:
    """Copy a disk into the store; afterwards the name's tag stands for it.

    Args:
        moved: Called with the number of bytes read and in all.

    Raises:
        ImageError: The name or the disk is not acceptable; nothing was changed.
    """
    begin_s = time.monotonic()
    if not NAME.fullmatch(request.name):
        raise ImageError(
            f"{request.name!r} is not a name", "letters, digits, dot, dash, underscore; up to 64"
        )
    found_kind = examine(request.source)
    with store.workspace() as workspace:
        made = workspace / "made"
        made.mkdir()
        if isinstance(found_kind, DiskFormat):
            kind, disk = found_kind, made / f"disk.{found_kind}"
            content = _copy(request.source, disk, moved)
        else:
            kind, disk = DiskFormat.QCOW2, made / f"disk.{DiskFormat.QCOW2}"
            copied = workspace / "copied"
            content = _copy(request.source, copied, lambda done, total: None)
            foreign.convert(copied, found_kind, disk, moved)
            disk.chmod(0o644)
        if examine(disk) is not kind:  # what was looked at before could have been replaced since
            raise ImageError(f"{request.source} changed during the import", "import it again")
        if found_kind is DiskFormat.QCOW2:
            foreign.check_qcow2(disk)
        firmware = request.firmware or guess_firmware(disk, kind)
        parts = [content, request.guest, firmware, f"{request.screen[0]}x{request.screen[1]}"]
        parts += [request.hardware.model_dump_json()] if request.hardware is not None else []
        manifest = DiskManifest(
            digest=hash_of(*parts),
            name=request.name,
            format=kind,
            virtual_size_bytes=virtual_size(disk, kind),
            image_digest=None,
            guest=request.guest,
            firmware=firmware,
            screen=request.screen,
            hardware=request.hardware,
            source=f"imported {request.source.name}",
            size_bytes=disk.stat().st_blocks * 512,
            bake_s=round(time.monotonic() - begin_s, 1),
        )
        found = store.publish(made, manifest)
        store.tag(request.name, found.digest)
        return found


def guess_firmware(disk: Path, kind: DiskFormat) -> Firmware:
    """Detect the firmware from a disk's first sectors.

    Raises:
        ImageError: They show none.
    """
    try:
        head = read_head(disk, kind)
    except OSError as exc:
        raise ImageError(f"{disk} cannot be read: {exc.strerror}") from exc
    ways = boot_ways(head or b"")
    if ways.firmware is None:
        what = f"a {ways.table} partition table without a boot loader" if ways.table else "no partition table"
        raise ImageError(f"firmware: the disk has {what} that could be found", "give --firmware bios or uefi")
    return ways.firmware


def _copy(source: Path, target: Path, moved: Callable[[int, int], None]) -> str:
    """Copy, sharing blocks where possible and else leaving out holes; return the SHA-256 of the content."""
    shared = True
    try:
        copy_sharing(target, source)
    except OSError as exc:
        if exc.errno not in CANNOT_SHARE:
            raise ImageError(f"{source} cannot be copied: {exc.strerror}") from exc
        shared = False
    total = hashlib.sha256()
    done, size = 0, source.stat().st_size
    try:
        with (
            (target if shared else source).open("rb") as file,
            target.open("r+b" if shared else "xb") as copy,
        ):
            while chunk := file.read(_CHUNK):
                total.update(chunk)
                if not shared:
                    if chunk == _HOLE:
                        copy.seek(len(chunk), 1)
                    else:
                        copy.write(chunk)
                done += len(chunk)
                moved(done, size)
            if not shared:
                copy.truncate(done)
    except OSError as exc:
        raise ImageError(f"{source} cannot be copied: {exc.strerror}") from exc
    target.chmod(0o644)
    return total.hexdigest()
