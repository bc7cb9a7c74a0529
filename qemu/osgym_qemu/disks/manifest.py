"""Manifest of a disk image, written beside it when it is complete."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from osgym_host.images.content_store import Manifest

DISK_MANIFEST_VERSION = 1


class DiskFormat(StrEnum):
    QCOW2 = "qcow2"
    RAW = "raw"


class GuestKind(StrEnum):
    """Agent that answers inside."""

    OSGYM = "osgym"
    OSWORLD = "osworld"
    NONE = "none"


class Firmware(StrEnum):
    """Firmware that starts the disk when no kernel is given from outside."""

    BIOS = "bios"
    UEFI = "uefi"


class Hardware(BaseModel):
    """Machine that an imported disk expects; ours are made for the default machine.

    Attributes:
        machine: Chipset: `pc` (i440FX) or `q35`.
        disk_bus: `sata` for systems without virtio drivers, as Windows is installed.
        nic: `e1000e` for the same.
        vga: A VGA screen and a USB tablet.
        screen_from: Source of frames: the VGA screen, or OSWorld's server in the guest.
    """

    model_config = ConfigDict(frozen=True)

    machine: Literal["pc", "q35"] = "pc"
    disk_bus: Literal["virtio", "sata"] = "virtio"
    nic: Literal["virtio", "e1000e"] = "virtio"
    ram_mib: int = 2048
    vcpus: int = 1
    vga: bool = True
    screen_from: Literal["vga", "server"] = "vga"


class DiskManifest(Manifest):
    """Metadata of a disk image; `manifest.json` in its folder.

    Attributes:
        name: Tag: the flavor it was made from, or the name of the import.
        image_digest: Golden image that it was made from; None for an import.
        guest: Agent that answers inside.
        kernel_append: Command line for its `vmlinuz`; empty when it has none beside it.
        firmware: Firmware that boots it, without a kernel from outside.
        screen: Width and height of the desktop in pixels.
        hardware: Machine that an imported disk expects; None for ours.
        source: Origin, for people.
        packages: Package name to version of the additions to the golden image.
        size_bytes: Size of the folder on this machine's disk when it was made.
        session_isolated: Programs of the desktop, root by sudo included, run in namespaces below those of the
            guest agent; False for disks of others, and for those made before there were such.
    """

    version: int = DISK_MANIFEST_VERSION
    name: str
    format: DiskFormat
    virtual_size_bytes: int
    image_digest: str | None
    guest: GuestKind
    kernel_append: str = ""
    firmware: Firmware
    screen: tuple[int, int]
    hardware: Hardware | None = None
    source: str
    packages: dict[str, str] = Field(default_factory=dict)
    size_bytes: int = 0
    bake_s: float = 0.0
    session_isolated: bool = False
