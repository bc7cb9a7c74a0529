"""Machines of an instance: parked, found again, removed without a trace."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from osgym_host.addresses import GuestAddress, TcpAddress
from osgym_host.runtimes.base import ReplicaDestroyFailed, RuntimeFault
from osgym_host.runtimes.egress.tools import NetworkFailed
from osgym_host.runtimes.processes import ProcessIdentity
from osgym_qemu.branching import RamControl, RamLibrary, RamLibraryLoader
from osgym_qemu.cloning.managed_vm import OVERLAY, ManagedVm, VmOptions
from osgym_qemu.disks.manifest import GuestKind
from osgym_qemu.disks.overlay import make_overlay
from osgym_qemu.golden.ram_file import RamIdentity
from osgym_qemu.golden.snapshot import GoldenRamCache, GoldenSnapshot, opened_disks
from osgym_qemu.machine.argv import (
    INHERITED_RAM,
    INHERITED_UEFI,
    RAM_CONTROL_FD,
    RAM_FD,
    SCREEN_QMP_FD,
    UEFI_FD,
    Disk,
    Launch,
    Ram,
)
from osgym_qemu.machine.launcher import Launcher, RunnerKind
from osgym_qemu.machine.machine import QMP_SOCKET, Machine, MachineFailed
from osgym_qemu.machine.qmp import QmpError
from osgym_qemu.machine.records import VmPhase, VmRecord, VmRecords
from osgym_qemu.network.base import FoundGuest, Network

log = logging.getLogger(__name__)

_START_TIMEOUT_S = 30.0
_ATTACH_TIMEOUT_S = 5.0
_QUERY_TIMEOUT_S = 5.0
_OOM_SCORE = 500


class VmManager:
    """Maker and remover of the machines of one instance. Its methods may be called concurrently."""

    def __init__(
        self, folder: Path, launcher: Launcher, network: Network, ram: GoldenRamCache, options: VmOptions
    ) -> None:
        """Args:
        folder: `run/<instance>`; nothing is touched before `open`.
        """
        self._folder = folder / "vms"
        self.records = VmRecords(folder / "records")
        self._launcher = launcher
        self._network = network
        self._ram = ram
        self._options = options
        self._library = RamLibraryLoader(options.native)
        self._numbers = itertools.count(1)

    def open(self) -> None:
        self._folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        self.records.open()

    def close(self) -> None:
        """Remove the empty folders. Idempotent.

        Raises:
            OSError: Something is left in them.
        """
        self.records.close()
        with contextlib.suppress(FileNotFoundError):
            self._folder.rmdir()

    # Making ------------------------------------------------------------------------------------------

    async def park(self, golden: GoldenSnapshot) -> ManagedVm:
        """Start a machine that waits for a state to load. On failure, also when cancelled, nothing is left.

        Raises:
            RuntimeFault, OsgymHostError, OSError: It could not be started.
        """
        ram = await self._ram.get(golden)
        name, folder = self._new_folder()
        identity = (ram.identity.device, ram.identity.inode, ram.identity.size_bytes)
        record = VmRecord(name=name, phase=VmPhase.STARTING, snapshot=golden.digest, ram=identity)
        machine: Machine | None = None
        library = await self._library.get()
        control = RamControl() if library is not None else None
        try:
            self.records.write(record)
            make_overlay(folder / OVERLAY, golden.disk_bytes)
            machine, address = await self._start(golden, record, folder, ram.fd, library, control)
            process = machine.process.identity
            record = record.model_copy(
                update={
                    "phase": VmPhase.PARKED,
                    "pid": process.pid,
                    "start_ticks": process.start_ticks,
                    "keeper": machine.process.keeper,
                }
            ).reached_at(address)
            self.records.write(record)
        except BaseException:
            if control is not None:
                control.close()
            await asyncio.shield(self._undo(name, folder, machine))
            raise
        return ManagedVm(self.remove, record, folder, machine, address, control)

    async def _start(
        self,
        golden: GoldenSnapshot,
        record: VmRecord,
        folder: Path,
        ram_fd: int,
        library: RamLibrary | None,
        control: RamControl | None,
    ) -> tuple[Machine, GuestAddress]:
        attachment = await self._network.attach(record.name)
        launch = Launch(
            name=record.name,
            disk=Disk(folder / OVERLAY, base_image=golden.image_format),
            ram=Ram(INHERITED_RAM, share=False),
            network=attachment.backend,
            screen_qmp=SCREEN_QMP_FD if golden.guest is not GuestKind.OSGYM else None,
            uefi=None if golden.uefi is None else INHERITED_UEFI,
            incoming=True,
            paused=True,
            tb_mib=self._options.tb_mib,
            qemu=self._options.qemu,
        )
        try:
            with contextlib.ExitStack() as stack:
                disks = stack.enter_context(opened_disks(golden.disk, golden.image))
                fds = {RAM_FD: ram_fd, **disks, **attachment.fds}
                if golden.uefi is not None:
                    fds[UEFI_FD] = self._ram.firmware(golden)
                env: Mapping[str, str] = {}
                reads: tuple[Path, ...] = ()
                if library is not None and control is not None:
                    fds[RAM_CONTROL_FD] = stack.enter_context(control.theirs).fileno()
                    env, reads = library.environment(RAM_FD, RAM_CONTROL_FD), (library.path,)
                machine = await Machine.start(
                    self._launcher,
                    golden.shape,
                    launch,
                    folder=folder,
                    fds=fds,
                    reads=reads,
                    caps=self._options.caps,
                    max_file_mib=self._options.disk_mib,
                    namespace=attachment.namespace,
                    guest_listener=attachment.guest_listener,
                    env=env,
                    timeout_s=_START_TIMEOUT_S,
                )
        finally:
            await self._network.started(attachment)
        try:
            prefer_for_oom_kill(machine.pid)
            await machine.prepare(timeout_s=_QUERY_TIMEOUT_S)
            guest = attachment.guest
            if guest is None:
                guest = TcpAddress("127.0.0.1", await machine.host_port(timeout_s=_QUERY_TIMEOUT_S))
        except BaseException:
            await asyncio.shield(machine.remove())
            raise
        return machine, guest

    def _new_folder(self) -> tuple[str, Path]:
        for number in self._numbers:
            folder = self._folder / f"v{number}"
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                return folder.name, folder
        raise AssertionError("numbers do not end")

    async def _undo(self, name: str, folder: Path, machine: Machine | None) -> None:
        try:
            if machine is not None:
                await machine.remove()
            await self._clear(name)
        except (RuntimeFault, OSError):  # its record is still there, and the next host agent reads it
            log.exception("files of %s could not be removed from %s", name, folder)

    def update_record(self, vm: ManagedVm, record: VmRecord) -> None:
        """Replace the record of a machine.

        Raises:
            OSError: It cannot be written.
        """
        self.records.write(record)
        vm.record = record

    # Removing ----------------------------------------------------------------------------------------

    async def remove(self, vm: ManagedVm) -> None:
        """Kill a machine and remove all it left. Idempotent.

        Raises:
            ReplicaDestroyFailed: Something is left; calling again tries again.
        """
        if vm.removed:
            return
        if vm.control is not None:
            vm.control.close()
        try:
            await vm.machine.remove()
            await self._clear(vm.name)
        except (RuntimeFault, OSError) as exc:
            raise ReplicaDestroyFailed(f"not everything of {vm.name} could be removed: {exc}") from exc
        vm.removed = True

    async def _clear(self, name: str) -> None:
        """Remove the files of a machine without a process; its record last, by which it is found again."""
        await self._network.detach(name)
        folder = self._folder / name
        if folder.exists():
            await asyncio.to_thread(shutil.rmtree, folder)
        self.records.remove(name)

    # What a previous host agent left -------------------------------------------------------------------

    async def adopt(self, record: VmRecord) -> ManagedVm | None:
        """Take over a machine of a previous host agent; None when it is dead or cannot be carried on."""
        process = record.process
        folder = self._folder / record.name
        if process is None or not record.adoptable or not is_machine(process, record.name, folder):
            return None
        if bool(record.keeper) != (self._launcher.runner is RunnerKind.CONTAINER):
            return None  # the setting `qemu.runner` is another one now
        found = await self._launcher.adopt(record.name, process, record.keeper)
        if found is None:
            return None
        if found.group is not None and found.group.can_freeze:  # it may have rested
            with contextlib.suppress(OSError):
                found.group.set_frozen(False)
        try:
            machine = await Machine.attach(found, folder / QMP_SOCKET, timeout_s=_ATTACH_TIMEOUT_S)
        except MachineFailed:
            await found.remove()
            return None
        try:
            status = await machine.status(timeout_s=_QUERY_TIMEOUT_S)
            if status == "paused":  # the previous host agent was killed while it took a branch point
                await machine.cont(timeout_s=_QUERY_TIMEOUT_S)
                status = await machine.status(timeout_s=_QUERY_TIMEOUT_S)
            assert record.replica is not None  # checked by `adoptable`
            guest = FoundGuest(record.host, record.port, record.reach, machine.pid)
            address = await self._network.adopt(record.name, record.replica.egress, guest)
        except (QmpError, NetworkFailed):
            status, address = "silent", None
        if status != "running" or address is None:
            await machine.remove()
            return None
        if record.ram is not None:
            self._ram.recover(record.snapshot, machine.pid, RamIdentity(*record.ram))
        return ManagedVm(self.remove, record, folder, machine, address)

    async def reap(self, keep: Collection[str]) -> tuple[int, int]:
        """Remove everything of a previous host agent but the machines named in `keep`.

        Returns:
            Number of machines, and number of processes, that were found.

        Raises:
            RuntimeFault: Something is left.
        """
        killed = 0
        for record in self.records.read_all():
            if record.name in keep or record.process is None:
                continue
            if is_machine(record.process, record.name, self._folder / record.name):
                killed += await asyncio.to_thread(record.process.kill)
        killed += await self._launcher.reap(keep)
        killed += await asyncio.to_thread(kill_unrecorded, self._folder, frozenset(keep))
        await self._network.reap(keep)
        names = {entry.name for entry in os.scandir(self._folder)}
        names |= {record.name for record in self.records.read_all()}
        for name in sorted(names - set(keep)):
            try:
                await self._clear(name)
            except OSError as exc:
                raise RuntimeFault(
                    f"the folder of an earlier virtual machine cannot be removed: {exc}"
                ) from exc
        return len(names - set(keep)), killed


def prefer_for_oom_kill(pid: int) -> None:
    """Make the kernel kill this process before the host agent when the host runs out of memory."""
    with contextlib.suppress(OSError):  # not everywhere may one user decide for another
        Path(f"/proc/{pid}/oom_score_adj").write_text(str(_OOM_SCORE))


def is_machine(process: ProcessIdentity, name: str, folder: Path) -> bool:
    """Return whether a process is a QEMU of this instance, with this name and its disk in this folder."""
    if ProcessIdentity.of(process.pid) != process:
        return False
    arguments = _arguments(process.pid)
    return name.encode() in arguments and any(os.fsencode(folder) + b"/" in part for part in arguments)


def kill_unrecorded(folder: Path, keep: Collection[str]) -> int:
    """Kill machines whose host agent died before it recorded their process. Blocking.

    Their arguments name the folder of their disk. No other program has that path among its arguments.
    """
    mark = os.fsencode(folder) + b"/"
    kept = tuple(mark + os.fsencode(name) + b"/" for name in keep)
    killed = 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        identity = ProcessIdentity.of(int(entry.name))
        arguments = b"\0".join(_arguments(int(entry.name)))
        ours = arguments.find(b"-blockdev\0") >= 0 and mark in arguments
        if identity is not None and ours and not any(name in arguments for name in kept):
            killed += identity.kill()
    return killed


def _arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
