"""Boot methods of a disk, read from its first sectors. Hostile input: no length is trusted.

MBR and GPT: UEFI specification 2.10, chapter 5. qcow2: docs/interop/qcow2.txt of QEMU.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from osgym_qemu.disks.manifest import DiskFormat, Firmware
from osgym_qemu.disks.overlay import QCOW2_MAGIC

SECTOR_BYTES = 512
HEAD_BYTES = 34 * SECTOR_BYTES
"""Size of boot record, GPT header and its 128 entries."""

_CODE_BYTES = 440
_SIGNATURE = b"\x55\xaa"
_GPT_SIGNATURE = b"EFI PART"
_ESP = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b")
_BIOS_BOOT = uuid.UUID("21686148-6449-6e6f-744e-656564454649")
_ESP_MBR, _PROTECTIVE_MBR, _ACTIVE = 0xEF, 0xEE, 0x80
_LEGACY_BOOTABLE = 1 << 2
_ENTRY_BYTES, _MAX_ENTRIES = 128, 128

_COMPRESSED = 1 << 62
_ZERO = 1
_OFFSET = 0x00FFFFFFFFFFFE00
_COMPRESSION_TYPE, _EXTENDED_L2 = 1 << 3, 1 << 4
_MIN_CLUSTER_BITS, _MAX_CLUSTER_BITS = 9, 21


@dataclass(frozen=True, slots=True)
class BootWays:
    """Boot methods found on a disk.

    Attributes:
        table: `gpt`, `mbr`, or empty where there is no partition table.
        uefi: It has an EFI system partition.
    """

    table: str
    bios: bool
    uefi: bool

    @property
    def firmware(self) -> Firmware | None:
        """Return the firmware to start it with, a BIOS if possible; None when neither was found."""
        if self.bios:
            return Firmware.BIOS
        return Firmware.UEFI if self.uefi else None


def boot_ways(head: bytes) -> BootWays:
    """Read the first `HEAD_BYTES` of a disk."""
    if len(head) < 2 * SECTOR_BYTES or head[510:512] != _SIGNATURE:
        return BootWays("", bios=False, uefi=False)
    code = any(head[:_CODE_BYTES])
    kinds = [head[446 + 16 * index + 4] for index in range(4)]
    active = any(head[446 + 16 * index] & _ACTIVE for index in range(4))
    if head[SECTOR_BYTES : SECTOR_BYTES + 8] != _GPT_SIGNATURE:
        return BootWays("mbr", bios=code and (active or any(kinds)), uefi=_ESP_MBR in kinds)
    types, bootable = _gpt(head)
    # Windows writes boot code onto GPT disks too; it starts nothing without one of these marks.
    marked = bootable or _BIOS_BOOT in types or active
    return BootWays("gpt", bios=code and marked, uefi=_ESP in types)


def _gpt(head: bytes) -> tuple[set[uuid.UUID], bool]:
    """Return the types of the partitions, and whether one is marked for a BIOS."""
    count, size = struct.unpack_from("<II", head, SECTOR_BYTES + 80)
    types, bootable = set[uuid.UUID](), False
    if size != _ENTRY_BYTES:
        return types, bootable
    for index in range(min(count, _MAX_ENTRIES)):
        entry = head[2 * SECTOR_BYTES + index * size :][:size]
        if len(entry) < size or not any(entry[:16]):
            continue
        types.add(uuid.UUID(bytes_le=entry[:16]))
        bootable = bootable or bool(struct.unpack_from("<Q", entry, 48)[0] & _LEGACY_BOOTABLE)
    return types, bootable


def read_head(disk: Path, kind: DiskFormat) -> bytes | None:
    """Read the first `HEAD_BYTES` of a disk as a machine sees them; None where they are too scattered.

    Raises:
        OSError: It cannot be read.
    """
    with disk.open("rb") as file:
        if kind is DiskFormat.RAW:
            return file.read(HEAD_BYTES)
        try:
            return _qcow2_head(file)
        except (struct.error, ValueError, zlib.error):
            return None


def _qcow2_head(file: BinaryIO) -> bytes | None:
    header = file.read(104)
    version, bits = struct.unpack_from(">I", header, 4)[0], struct.unpack_from(">I", header, 20)[0]
    features = struct.unpack_from(">Q", header, 72)[0] if version >= 3 else 0
    if header[:4] != QCOW2_MAGIC or not _MIN_CLUSTER_BITS <= bits <= _MAX_CLUSTER_BITS:
        return None
    if features & (_COMPRESSION_TYPE | _EXTENDED_L2):
        return None
    cluster = 1 << bits
    table = struct.unpack(">Q", _at(file, struct.unpack_from(">Q", header, 40)[0], 8))[0] & _OFFSET
    head = b""
    for index in range(-(-HEAD_BYTES // cluster)):
        entry = struct.unpack(">Q", _at(file, table + 8 * index, 8))[0] if table else 0
        head += _cluster(file, entry, bits)
    return head[:HEAD_BYTES]


def _cluster(file: BinaryIO, entry: int, bits: int) -> bytes:
    cluster = 1 << bits
    if entry & _COMPRESSED:
        shift = 62 - (bits - 8)
        offset = entry & ((1 << shift) - 1)
        sectors = ((entry >> shift) & ((1 << (bits - 8)) - 1)) + 1
        packed = _at(file, offset, sectors * SECTOR_BYTES - offset % SECTOR_BYTES, whole=False)
        return zlib.decompressobj(-12).decompress(packed, cluster).ljust(cluster, b"\0")
    offset = entry & _OFFSET
    return bytes(cluster) if entry & _ZERO or not offset else _at(file, offset, cluster)


def _at(file: BinaryIO, offset: int, length: int, *, whole: bool = True) -> bytes:
    file.seek(offset)
    data = file.read(length)
    if whole and len(data) != length:
        raise ValueError("the file ends too early")
    return data
