"""Assembly of a disk from a tree: partitions, EFI system partition, boot loaders, root file system.

Programs that need neither loop devices nor root work on plain files at offsets.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from osgym_host.images.errors import BakeError
from osgym_host.images.namespaces import NamespaceSpec, call

MIB = 1 << 20
SECTOR_BYTES = 512
GPTMBR = Path("/usr/lib/syslinux/mbr/gptmbr.bin")
"""First-stage loader that starts the partition marked as bootable (package syslinux-common)."""

_MBR_CODE_BYTES = 440
_SPARE_MIB = 1
"""Space before the first partition and after the last, for both copies of the partition table."""

_TIMEOUT_S = 900.0
TOOLS = {
    "sgdisk": "gdisk",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.vfat": "dosfstools",
    "mcopy": "mtools",
    "syslinux": "syslinux",
    "qemu-img": "qemu-utils",
}
"""Program → Debian package that has it."""

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def missing_packages() -> list[str]:
    """Return the Debian packages that this machine lacks for making a disk."""
    path = f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}"
    lacking = [package for tool, package in TOOLS.items() if shutil.which(tool, path=path) is None]
    if not GPTMBR.is_file():
        lacking.append("syslinux-common")
    return sorted(set(lacking))


def require_tools() -> None:
    """Check that every program is installed.

    Raises:
        BakeError: Some are missing; the hint is the command that installs them.
    """
    if lacking := missing_packages():
        hint = f"apt-get install {' '.join(lacking)}"
        raise BakeError("disk", f"missing on this machine: {', '.join(lacking)}", hint=hint)


@dataclass(frozen=True, slots=True)
class PartitionLayout:
    """Places of the parts of a disk, in bytes."""

    efi_start: int
    efi_bytes: int
    root_start: int
    root_bytes: int
    disk_bytes: int


def plan_layout(
    content_bytes: int, entries: int, free_mib: int, efi_mib: int, journal_mib: int
) -> PartitionLayout:
    """Return sizes for a root file system that holds `content_bytes` in `entries` files, with free space.

    Besides the content it needs the journal, half a block for the end of each file, and 2 % for inode tables
    and bitmaps (ext4's default of 256 bytes per 16 KiB is 1.6 %).
    """
    content_mib = (content_bytes + entries * 2048) // MIB + 1
    root_mib = (content_mib + free_mib + journal_mib) * 102 // 100 + 8
    efi_start = _SPARE_MIB * MIB
    root_start = efi_start + efi_mib * MIB
    disk_bytes = root_start + (root_mib + _SPARE_MIB) * MIB
    return PartitionLayout(efi_start, efi_mib * MIB, root_start, root_mib * MIB, disk_bytes)


@dataclass(frozen=True, slots=True)
class Identifiers:
    """UUIDs of the disk and its parts, derived from the inputs so that two bakes agree."""

    disk: str
    efi: str
    root_partition: str
    root: str

    @property
    def efi_serial(self) -> str:
        """Return the serial number of the FAT file system: eight hexadecimal digits."""
        return self.efi.replace("-", "")[:8]


@dataclass(frozen=True, slots=True)
class BootFiles:
    """Files that are copied onto the EFI system partition."""

    kernel: Path
    initrd: Path
    efi_loader: Path
    append: str


def make_root(
    inside: NamespaceSpec,
    disk: Path,
    layout: PartitionLayout,
    ids: Identifiers,
    epoch_s: int,
    journal_mib: int,
) -> None:
    """Write an ext4 of the tree `merged` into the disk, with owners as root inside sees them.

    The disk must be in the folder that `inside` works in, writable for the mapped root.

    Raises:
        ImageError: mkfs.ext4 failed.
    """
    # A file that was never written is all zeros: nothing needs to be zeroed now, nor by a kernel thread
    # of the guest later.
    extended = f"offset={layout.root_start},hash_seed={ids.root},nodiscard,lazy_itable_init=1"
    extended += ",assume_storage_prezeroed=1,root_owner=0:0"
    argv = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "1", "-L", "osgym", "-U", ids.root]
    argv += ["-J", f"size={journal_mib}", "-E", extended, "-d", "merged"]
    argv += [disk.name, str(layout.root_bytes // 4096)]
    env = {"E2FSPROGS_FAKE_TIME": str(epoch_s), "SOURCE_DATE_EPOCH": str(epoch_s), "MKE2FS_SYNC": "0"}
    call(
        NamespaceSpec(inside.cwd, inside.idmap, inside.overlay, env={**inside.env, **env}),
        argv,
        timeout_s=_TIMEOUT_S,
    )


def make_partitions(disk: Path, layout: PartitionLayout, ids: Identifiers) -> None:
    """Write the partition table: the EFI system partition, marked bootable for BIOS, and the root.

    Raises:
        BakeError: sgdisk failed.
    """
    efi_last = (layout.efi_start + layout.efi_bytes) // SECTOR_BYTES - 1
    root_last = (layout.root_start + layout.root_bytes) // SECTOR_BYTES - 1
    argv = ["sgdisk", "--clear", "--set-alignment=2048", f"--disk-guid={ids.disk}"]
    argv += [f"--new=1:{layout.efi_start // SECTOR_BYTES}:{efi_last}", "--typecode=1:ef00"]
    argv += ["--change-name=1:EFI", f"--partition-guid=1:{ids.efi}", "--attributes=1:set:2"]
    argv += [f"--new=2:{layout.root_start // SECTOR_BYTES}:{root_last}", "--typecode=2:8304"]
    argv += ["--change-name=2:root", f"--partition-guid=2:{ids.root_partition}"]
    _run([*argv, str(disk)])
    with disk.open("r+b") as file:
        file.write(GPTMBR.read_bytes()[:_MBR_CODE_BYTES])


def make_efi(disk: Path, layout: PartitionLayout, ids: Identifiers, boot: BootFiles) -> None:
    """Fill the EFI system partition: kernel, initial RAM disk, systemd-boot for UEFI, syslinux for BIOS.

    Raises:
        BakeError: One of the programs failed.
    """
    offset, blocks = layout.efi_start, layout.efi_bytes // 1024
    argv = ["mkfs.vfat", "-F", "32", "-s", "1", "--invariant", "-i", ids.efi_serial, "-n", "OSGYM-EFI"]
    argv += ["-h", str(offset // SECTOR_BYTES), "--offset", str(offset // SECTOR_BYTES)]
    _run([*argv, str(disk), str(blocks)])
    volume = f"{disk}@@{offset}"
    texts = {
        "loader/loader.conf": "default osgym.conf\ntimeout 0\neditor no\n",
        "loader/entries/osgym.conf": "title OSGym desktop\nlinux /vmlinuz\ninitrd /initrd.img\n"
        f"options {boot.append}\n",
        "syslinux/syslinux.cfg": "DEFAULT osgym\nPROMPT 0\nTIMEOUT 0\nLABEL osgym\n  LINUX /vmlinuz\n"
        f"  INITRD /initrd.img\n  APPEND {boot.append}\n",
    }
    files = {"vmlinuz": boot.kernel, "initrd.img": boot.initrd, "EFI/BOOT/BOOTX64.EFI": boot.efi_loader}
    _run(["mmd", "-i", volume, "::EFI", "::EFI/BOOT", "::loader", "::loader/entries", "::syslinux"])
    with tempfile.TemporaryDirectory(prefix="osgym-efi-") as scratch:
        for name, text in texts.items():
            files[name] = Path(scratch) / name.replace("/", "-")
            files[name].write_text(text)
        for name, path in files.items():
            _run(["mcopy", "-i", volume, str(path), f"::{name}"])
    _run(["syslinux", "--install", "--directory", "syslinux", "--offset", str(offset), str(disk)])


def convert(raw: Path, target: Path) -> None:
    """Write a raw disk as qcow2, without its zeros.

    Raises:
        BakeError: qemu-img failed.
    """
    _run(["qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", str(raw), str(target)])


def _run(argv: list[str]) -> None:
    env = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}", "MTOOLS_SKIP_CHECK": "1"}
    env["LC_ALL"] = "C.UTF-8"
    try:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except FileNotFoundError as exc:
        raise BakeError(
            "disk", f"{argv[0]} is not installed", hint=f"apt-get install {TOOLS.get(argv[0], '')}"
        ) from exc
    except subprocess.TimeoutExpired as exc:
        raise BakeError("disk", f"{argv[0]} took longer than {_TIMEOUT_S:.0f} s") from exc
    if done.returncode != 0:
        raise BakeError(
            "disk", f"{argv[0]} ended with {done.returncode}", (done.stdout + done.stderr)[-2000:]
        )
