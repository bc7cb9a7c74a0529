"""A machine of a disk, started with QEMU as anybody could: by the disk's own boot loader."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from osgym_host.addresses import TcpAddress
from osgym_host.guest_client import GuestClient, GuestError
from osgym_qemu.disks.overlay import make_overlay
from osgym_qemu.disks.store import DiskImage

TOKEN = "test-token"
BOOT_TIMEOUT_S = 240.0
"""Under emulation on a quiet machine 25 s by BIOS and 35 s by UEFI."""


@dataclass
class BootedDisk:
    """A machine started as anybody could."""

    process: asyncio.subprocess.Process
    address: TcpAddress
    guest: GuestClient
    console: Path

    async def shell(self, command: str) -> str:
        done = await self.guest.execute(command, shell=True, timeout_s=60)
        return done.output.strip()


@contextlib.asynccontextmanager
async def boot_disk(
    disk: DiskImage, folder: Path, *more: str, answers: bool = True
) -> AsyncIterator[BootedDisk]:
    """Start it, wait for its guest agent if it will have one; afterwards it is gone."""
    size_bytes = disk.manifest.virtual_size_bytes
    make_overlay(folder / "disk.qcow2", size_bytes, str(disk.disk), disk.manifest.format)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    console = folder / "console.log"
    argv = ["qemu-system-x86_64", "-nodefaults", "-display", "none", "-machine", "q35", "-accel", "tcg"]
    argv += ["-cpu", "Nehalem", "-m", "1024", "-drive", f"if=virtio,file={folder}/disk.qcow2,cache=unsafe"]
    argv += ["-netdev", f"user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:5000"]
    argv += ["-device", "virtio-net-pci,netdev=n,romfile=", "-device", "virtio-rng-pci"]
    argv += ["-serial", f"file:{console}", *more]
    process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.PIPE)
    address = TcpAddress("127.0.0.1", port)
    guest = GuestClient(address, token=TOKEN)
    try:
        until = time.monotonic() + BOOT_TIMEOUT_S
        while answers:
            with contextlib.suppress(GuestError):
                await guest.health(timeout_s=5)
                break
            tail = console.read_text(errors="replace")[-1500:] if console.exists() else ""
            assert process.returncode is None and time.monotonic() < until, tail
            await asyncio.sleep(0.5)
        yield BootedDisk(process, address, guest, console)
    finally:
        guest.close()
        if process.returncode is None:
            process.kill()
        await process.communicate()
