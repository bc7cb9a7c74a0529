"""Virtual machines made without snapshots: a disk and a boot, or QEMU's own `loadvm`."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from osgym_host.addresses import TcpAddress
from osgym_host.guest_client import GuestClient, GuestError
from osgym_qemu.disks.store import DiskImage
from osgym_qemu.machine.argv import Disk, Kernel, Launch, Ram, Shape, UserNet, to_argv
from osgym_qemu.machine.qmp import Qmp

READY_TIMEOUT_S = 600.0
SAVE_TIMEOUT_S = 120.0
SAVED = "frozen"
TOKEN = "benchmark"
_POLL_S = 0.05
_END_S = 10.0
_OWN_RAM = re.compile(r"^memory-backend-file,(id=ram0),mem-path=")


@dataclass(frozen=True)
class Recipe:
    """Options that all booted machines of a series share."""

    image: DiskImage
    shape: Shape
    screen: tuple[int, int]
    tb_mib: int = 64


class BootedVm:
    """Machine with RAM of its own."""

    def __init__(self, process: subprocess.Popen[bytes], address: TcpAddress, qmp: Path) -> None:
        self.process = process
        self.address = address
        self.qmp = qmp

    @property
    def pid(self) -> int:
        return self.process.pid

    async def ready(self) -> None:
        """Wait until its desktop is drawn and quiet.

        Raises:
            TimeoutError: It is not in time, or QEMU ended.
        """
        end = time.monotonic() + READY_TIMEOUT_S
        async with GuestClient(self.address, token=TOKEN) as guest:
            while time.monotonic() < end and self.process.poll() is None:
                with contextlib.suppress(GuestError):
                    if (await guest.ready(timeout_s=30)).desktop_ready:
                        return
                await asyncio.sleep(_POLL_S)
        raise TimeoutError(f"no desktop (QEMU: {self.process.poll()})")

    async def save(self) -> None:
        """Write RAM and devices into the disk (`savevm`), for `boot(saved=True)` of its copies."""
        monitor = await Qmp.connect(self.qmp, _END_S)
        try:
            said = await monitor.hmp(f"savevm {SAVED}", timeout_s=SAVE_TIMEOUT_S)
            assert not said.strip(), said
        finally:
            await monitor.close()

    async def show_a_frame(self) -> None:
        async with GuestClient(self.address, token=TOKEN) as guest:
            await guest.observe()


@contextlib.asynccontextmanager
async def boot(recipe: Recipe, disk: Path, folder: Path, *, saved: bool = False) -> AsyncIterator[BootedVm]:
    """Start QEMU on a disk of its own: the kernel from beside the image, or what `save` left in the disk.

    Args:
        disk: Disk in qcow2, written to.
    """
    vm = _start(recipe, disk, folder, saved)
    try:
        yield vm
    finally:
        vm.process.kill()
        vm.process.wait(_END_S)
        vm.qmp.unlink(missing_ok=True)


def _start(recipe: Recipe, disk: Path, folder: Path, saved: bool) -> BootedVm:
    folder.mkdir(mode=0o700, exist_ok=True)
    width, height = recipe.screen
    credentials = []
    for name, value in {"osgym.token": TOKEN, "osgym.screen": f"{width}x{height}"}.items():
        credentials.append(folder / name)
        credentials[-1].write_text(f"io.systemd.credential:{name}={value}")
    image = recipe.image
    assert image.kernel is not None
    port = _free_port()
    launch = Launch(
        name="bench",
        disk=Disk(disk),
        ram=Ram("", share=False),
        qmp=folder / "qmp.sock",
        network=UserNet(host_port=port),
        kernel=Kernel(image.kernel, image.initrd, image.manifest.kernel_append),
        credentials=tuple(credentials),
        tb_mib=recipe.tb_mib,
    )
    # Memory of its own, as QEMU gives it to whoever does not ask for anything else.
    argv = [_OWN_RAM.sub(r"memory-backend-ram,\1", part) for part in to_argv(recipe.shape, launch)]
    if saved:
        argv += ["-loadvm", SAVED]
    with (folder / "qemu.log").open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    return BootedVm(process, TcpAddress("127.0.0.1", port), folder / "qmp.sock")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port
