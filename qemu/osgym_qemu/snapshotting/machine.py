"""Disks that others made, on their way to a snapshot: their machine, and who stands for a guest agent."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from osgym_host.addresses import GuestAddress
from osgym_host.guest_client import GuestClient
from osgym_host.runtimes.base import RuntimeUnsupported
from osgym_qemu.agentless.guest import AgentlessGuest, MachineFacts, ScreenSource
from osgym_qemu.disks.manifest import Firmware, GuestKind, Hardware
from osgym_qemu.disks.store import DiskImage
from osgym_qemu.machine.argv import Accel, DiskBus, Nic, Shape
from osgym_qemu.snapshots import UEFI

UEFI_FIRMWARE = (
    Path("/usr/share/ovmf/OVMF.fd"),  # Debian, Ubuntu
    Path("/usr/share/edk2/ovmf/OVMF.fd"),  # Fedora
    Path("/usr/share/qemu/OVMF.fd"),
)
"""Firmware in one file, with its variables in memory."""
MACHINES = {"pc": "pc-i440fx-7.2", "q35": "pc-q35-7.2"}
QUIET_S = 5.0
"""A system that boots stands still for moments; on a desktop that is up nothing happens for this long."""
_SOCKET = "guest.sock"


def shape_of_disk(
    disk: DiskImage, accel: Accel, cpu: str, ram_mib: int, vcpus: int, screen: tuple[int, int]
) -> Shape:
    manifest = disk.manifest
    hardware = manifest.hardware
    if hardware is None and manifest.guest is GuestKind.OSGYM:
        return Shape(accel=accel, cpu=cpu, ram_mib=ram_mib, vcpus=vcpus)
    hardware = hardware or Hardware()
    return Shape(
        accel=accel,
        machine=MACHINES[hardware.machine],
        cpu=cpu,
        vcpus=vcpus,
        ram_mib=ram_mib,
        vga=hardware.vga,
        firmware=manifest.firmware,
        screen_px=screen,
        disk_bus=DiskBus(hardware.disk_bus),
        nic=Nic(hardware.nic),
    )


def copy_firmware(disk: DiskImage, folder: Path) -> Path | None:
    """Copy the firmware that a disk needs into the folder of its snapshot-to-be; None where it is BIOS.

    Raises:
        RuntimeUnsupported: There is no UEFI firmware on this machine.
    """
    if disk.manifest.firmware is not Firmware.UEFI or disk.kernel is not None:
        return None
    found = next((path for path in UEFI_FIRMWARE if path.is_file()), None)
    if found is None:
        raise RuntimeUnsupported(
            "there is no UEFI firmware on this machine.", remedy="Install the package ovmf."
        )
    target = folder / UEFI
    shutil.copyfile(found, target)
    target.chmod(0o444)
    return target


@contextlib.asynccontextmanager
async def agentless_client(
    disk: DiskImage,
    *,
    folder: Path,
    screen_socket: Path,
    pid: int,
    address: GuestAddress,
    screen: tuple[int, int],
    quiet_s: float,
) -> AsyncIterator[GuestClient]:
    """Serve a machine's guest as the runtime will, and give a client of it, within the context.

    Args:
        screen_socket: The machine's second QMP server.
        address: Where a server in the guest is reached, if there is one.
        quiet_s: How long screen and guest are quiet when it is ready.

    Raises:
        QmpError, OSError: The machine's screen cannot be reached.
    """
    manifest = disk.manifest
    hardware = manifest.hardware or Hardware()
    facts = MachineFacts(
        generation=0,
        qmp=screen_socket,
        pid=pid,
        server=address if manifest.guest is GuestKind.OSWORLD else None,
        screen=ScreenSource(hardware.screen_from),
        ready_quiet_s=quiet_s,
        ready_size=screen,
    )
    guest = await AgentlessGuest.open(facts, folder / _SOCKET)
    try:
        async with GuestClient(guest.address) as client:
            yield client
    finally:
        await guest.close()
