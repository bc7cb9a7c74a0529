"""Template: the machine that becomes a golden snapshot.

Who warms it up, and decides that it is ready, is above (`snapshotting`): that needs a client of
the guest agent. Here are the machine's two ends: `boot` and `freeze`; and `wake`, the trial of what was
made. All in one scratch folder, which becomes the snapshot's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from osgym_host.addresses import EnclosedAddress, GuestAddress, TcpAddress
from osgym_host.errors import OsgymHostError
from osgym_qemu.disks.manifest import DiskFormat
from osgym_qemu.disks.overlay import make_overlay, virtual_size
from osgym_qemu.disks.store import DiskImage
from osgym_qemu.golden.ram_file import RamFile, save_trimmed, sparse_sha256, template_ram
from osgym_qemu.golden.snapshot import opened_disks
from osgym_qemu.machine.argv import (
    GUEST_PORT,
    INHERITED_RAM,
    RAM_FD,
    SCREEN_QMP_FD,
    Disk,
    FileConsole,
    Kernel,
    Launch,
    Ram,
    RingConsole,
    Shape,
    UserNet,
)
from osgym_qemu.machine.launcher import Launcher
from osgym_qemu.machine.machine import SCREEN_SOCKET, Machine
from osgym_qemu.machine.namespace import AnyNamespace, try_to_make
from osgym_qemu.snapshots import DISK, RAM, STATE, base_name

TB_MIB = 256
"""Size of TCG's code cache while booting and warming up, when most code runs once."""
_LOOPBACK = "127.0.0.1"
_MACHINE = "vm"
_TRIAL = "trial"
_CONSOLE = "console.log"


class TemplateFailed(OsgymHostError):
    """Failure to boot or freeze a template."""


@dataclass(frozen=True, slots=True)
class FrozenTemplate:
    argv: list[str]
    ram_data_bytes: int
    state_bytes: int
    disk_bytes: int
    ram_sha256: str
    state_sha256: str
    disk_sha256: str


class GuestConnection:
    """Connection to the guest agent of a machine that only its builder uses: by namespace or by port."""

    def __init__(self, namespace: AnyNamespace | None) -> None:
        self.namespace = namespace
        self.backend = UserNet() if namespace is None else UserNet(host_port=GUEST_PORT)
        self.address: GuestAddress = TcpAddress(_LOOPBACK, 0)
        if namespace is not None:
            self.address = EnclosedAddress(_LOOPBACK, GUEST_PORT, namespace)

    @classmethod
    async def make(cls) -> GuestConnection:
        """Make a namespace where that is possible."""
        return cls(await try_to_make())

    async def find(self, machine: Machine, shape: Shape) -> None:
        """Ask a machine outside a namespace for its port.

        Raises:
            MachineFailed, QmpError: It has none, or does not answer.
        """
        if self.namespace is None and shape.network:
            self.address = TcpAddress(_LOOPBACK, await machine.host_port())

    def close(self) -> None:
        """Close the namespace. Idempotent."""
        if self.namespace is not None:
            self.namespace.close()


class Template:
    """Machine that becomes a snapshot. `remove` must be called at the end."""

    def __init__(
        self,
        machine: Machine,
        folder: Path,
        ram_fd: int,
        connection: GuestConnection,
        base: str,
        argv: list[str],
    ) -> None:
        self.machine = machine
        self._connection = connection
        self._folder = folder
        self._vm = folder / _MACHINE
        self._ram_fd = ram_fd
        self._base = base
        self._argv = argv

    @classmethod
    async def boot(
        cls,
        launcher: Launcher,
        disk: DiskImage,
        shape: Shape,
        *,
        folder: Path,
        credentials: dict[str, str],
        screen_server: bool = False,
        uefi: Path | None = None,
        qemu: str = "qemu-system-x86_64",
    ) -> Template:
        """Start the machine from a disk image; on failure nothing runs.

        Args:
            folder: Scratch folder that becomes the snapshot's; the launcher's own.
            credentials: Values for the guest's init system, by name.
            screen_server: True for a second QMP server, at `screen_socket`.
            uefi: Firmware of a disk that boots by UEFI; clones need the same file.

        Raises:
            ImageError: The disk cannot be read.
            OSError: The overlay cannot be written.
            LaunchFailed, MachineFailed: QEMU does not start.
        """
        vm = folder / _MACHINE
        vm.mkdir(mode=0o700)
        kind = disk.manifest.format
        base = base_name(kind)
        os.link(disk.disk, vm / base)
        make_overlay(vm / DISK, virtual_size(disk.disk, kind), base, kind)
        ram_fd = template_ram(shape.ram_mib)
        kernel = None
        if disk.kernel is not None:
            kernel = Kernel(disk.kernel, disk.initrd, disk.manifest.kernel_append)
        connection = await GuestConnection.make()
        launch = Launch(
            name=_MACHINE,
            disk=Disk(vm / DISK),
            ram=Ram(INHERITED_RAM, share=True),
            network=connection.backend if shape.network else None,
            screen_qmp=SCREEN_QMP_FD if screen_server else None,
            console=FileConsole(vm / _CONSOLE),
            kernel=kernel,
            uefi=uefi,
            credentials=tuple(_credential(vm, name, value) for name, value in credentials.items()),
            tb_mib=TB_MIB,
            qemu=qemu,
        )
        machine: Machine | None = None
        try:
            reads = (disk.folder,) if uefi is None else (disk.folder, uefi)
            fds = {RAM_FD: ram_fd}
            machine = await Machine.start(
                launcher, shape, launch, folder=vm, fds=fds, reads=reads, namespace=connection.namespace
            )
            await connection.find(machine, shape)
        except BaseException:
            os.close(ram_fd)
            connection.close()
            if machine is not None:
                await asyncio.shield(machine.remove())
            raise
        argv = [part.replace(str(folder), ".") for part in machine.argv]
        return cls(machine, folder, ram_fd, connection, base, argv)

    @property
    def address(self) -> GuestAddress:
        return self._connection.address

    @property
    def screen_socket(self) -> Path:
        return self._vm / SCREEN_SOCKET

    def console_tail(self, max_bytes: int = 8192) -> str:
        """Return the end of the serial console: for people only."""
        try:
            with (self._vm / _CONSOLE).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - max_bytes))
                return log.read(max_bytes).decode("utf-8", "replace")
        except OSError:
            return ""

    async def freeze(self) -> FrozenTemplate:
        """Stop the machine and write its parts into the folder: disk, base, RAM, state.

        Raises:
            MachineFailed, QmpError: QEMU refuses or does not answer.
            OSError: A file cannot be written.
        """
        await self.machine.stop()
        await self.machine.save_state(self._folder / STATE)
        await self.machine.remove()
        return await asyncio.to_thread(self._collect)

    async def remove(self) -> None:
        """Kill the machine, if it runs, and remove the files that no snapshot needs. Idempotent."""
        await self.machine.remove()
        if self._ram_fd >= 0:
            os.close(self._ram_fd)
            self._ram_fd = -1
        self._connection.close()
        await asyncio.to_thread(shutil.rmtree, self._vm, ignore_errors=True)

    def _collect(self) -> FrozenTemplate:
        ram, state, disk = (self._folder / name for name in (RAM, STATE, DISK))
        ram_data_bytes = save_trimmed(self._ram_fd, ram)
        os.close(self._ram_fd)
        self._ram_fd = -1
        for name in (DISK, self._base):
            (self._vm / name).rename(self._folder / name)
        for path in (ram, state, disk):
            if os.geteuid() == 0:
                os.chown(path, 0, 0)
            path.chmod(0o400)
            with path.open("rb") as file:
                os.fsync(file.fileno())
        return FrozenTemplate(
            argv=self._argv,
            ram_data_bytes=ram_data_bytes,
            state_bytes=state.stat().st_size,
            disk_bytes=disk.stat().st_blocks * 512,
            ram_sha256=sparse_sha256(ram),
            state_sha256=sparse_sha256(state),
            disk_sha256=sparse_sha256(disk),
        )


@contextlib.asynccontextmanager
async def trial_clone(
    launcher: Launcher,
    shape: Shape,
    folder: Path,
    *,
    image_format: DiskFormat,
    screen_server: bool = False,
    uefi: Path | None = None,
    qemu: str,
) -> AsyncIterator[tuple[Machine, GuestAddress, Path]]:
    """Context with one clone of a frozen machine, made as the runtime makes it.

    Yields the machine, the address of its guest agent, and the path of its second QMP server.
    """
    trial = folder / _TRIAL
    trial.mkdir(mode=0o700)
    ram = await asyncio.to_thread(RamFile.load, folder / RAM)
    machine: Machine | None = None
    connection = await GuestConnection.make()
    try:
        overlay = trial / "overlay.qcow2"
        make_overlay(overlay, virtual_size(folder / DISK, DiskFormat.QCOW2))
        launch = Launch(
            name=_TRIAL,
            disk=Disk(overlay, base_image=image_format),
            ram=Ram(INHERITED_RAM, share=False),
            network=connection.backend if shape.network else None,
            screen_qmp=SCREEN_QMP_FD if screen_server else None,
            uefi=uefi,
            console=RingConsole(),
            incoming=True,
            paused=True,
            qemu=qemu,
        )
        reads = () if uefi is None else (uefi,)
        with opened_disks(folder / DISK, folder / base_name(image_format)) as disks:
            fds = {RAM_FD: ram.fd, **disks}
            machine = await Machine.start(
                launcher, shape, launch, folder=trial, fds=fds, reads=reads, namespace=connection.namespace
            )
        await machine.load_state(folder / STATE)
        await connection.find(machine, shape)
        await machine.cont()
        yield machine, connection.address, trial / SCREEN_SOCKET
    finally:
        ram.close()
        connection.close()
        if machine is not None:
            await asyncio.shield(machine.remove())
        await asyncio.to_thread(shutil.rmtree, trial, ignore_errors=True)


def _credential(folder: Path, name: str, value: str) -> Path:
    """Write one string for the guest's init system (systemd.exec(5), "Credentials", SMBIOS type 11)."""
    path = folder / f"credential.{name}"
    path.touch(mode=0o600)
    path.write_text(f"io.systemd.credential:{name}={value}")
    return path
