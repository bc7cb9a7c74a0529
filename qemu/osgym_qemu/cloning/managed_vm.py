"""Machine of an instance as its manager knows it, and the options of all machines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from osgym_host.addresses import GuestAddress
from osgym_host.runtimes.processes import process_state
from osgym_host.runtimes.replica_cgroup import Caps, CgroupGroup
from osgym_qemu.branching import RamControl
from osgym_qemu.golden.ram_file import RamIdentity
from osgym_qemu.machine.launcher import ProcessEnd
from osgym_qemu.machine.machine import Machine
from osgym_qemu.machine.records import VmRecord

OVERLAY = "overlay.qcow2"


@dataclass(frozen=True, slots=True)
class VmOptions:
    """Options of all machines of an instance.

    Attributes:
        tb_mib: Size of TCG's cache of translated code.
        caps: Caps of a machine until its replica's spec replaces them.
        disk_mib: Bound of one overlay; None for none.
        native: Folder for the library that makes branches faster (`ram_native`); None: without it.
    """

    tb_mib: int = 64
    caps: Caps = field(default_factory=Caps)
    disk_mib: int | None = None
    qemu: str = "qemu-system-x86_64"
    native: Path | None = None


class ManagedVm:
    """Machine of an instance: its record, folder, process and connection."""

    def __init__(
        self,
        remove: Callable[[ManagedVm], Awaitable[None]],
        record: VmRecord,
        folder: Path,
        machine: Machine,
        address: GuestAddress,
        control: RamControl | None = None,
    ) -> None:
        """Use `VmManager.park` or `adopt`.

        Args:
            control: Socket to the library in a parked machine; closed before its guest runs.
        """
        self._remove = remove
        self.record = record
        self.folder = folder
        self.machine = machine
        self.address = address
        self.control = control
        self.removed = False

    @property
    def name(self) -> str:
        """Name of its folder, record, control group and connection."""
        return self.record.name

    @property
    def pid(self) -> int:
        return self.machine.pid

    @property
    def group(self) -> CgroupGroup | None:
        return self.machine.process.group

    @property
    def ram(self) -> RamIdentity:
        assert self.record.ram is not None  # known before its process is started
        return RamIdentity(*self.record.ram)

    @property
    def overlay(self) -> Path:
        return self.folder / OVERLAY

    @property
    def is_alive(self) -> bool:
        """Whether its process runs and QMP is connected."""
        if self.machine.end is not None or self.machine.qmp.closed:
            return False
        state = process_state(self.pid)
        return state not in ("", "T", "t", "Z")

    async def wait_end(self) -> ProcessEnd:
        """Wait, without a deadline, until its process is gone."""
        return await self.machine.wait_dead()

    async def remove(self) -> None:
        """Kill it and remove all it left. Idempotent.

        Raises:
            ReplicaDestroyFailed: Something is left; calling again tries again.
        """
        await self._remove(self)
