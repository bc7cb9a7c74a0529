"""Records of virtual machines on disk, by which the next host agent recognizes them.

Every machine has a folder of its own, `<data_dir>/run/<instance>/vms/<name>`, and a record beside it,
`records/<name>.json`, from the moment before its process is started until nothing of it is left; one
that was parked and becomes a replica keeps both. The folder belongs to the user that the machine runs
as, the record to the host agent alone: it names processes that are killed, and holds the token of the
guest agent. It is replaced atomically, and not synced to disk: it has to outlive the host agent, not
the host, with which the machines end as well.
"""

from __future__ import annotations

import contextlib
from enum import StrEnum
from pathlib import Path
from typing import assert_never

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from osgym_host.addresses import EnclosedAddress, GuestAddress, TcpAddress, UnixAddress
from osgym_host.runtimes.base import Egress, ReplicaRecord
from osgym_host.runtimes.processes import ProcessIdentity
from osgym_host.runtimes.replica_cgroup import Caps
from osgym_host.whole_file import write_whole
from osgym_qemu.machine.namespace import NamespaceOf

MAX_RECORD_BYTES = 64 * 1024


class VmPhase(StrEnum):
    STARTING = "starting"  # its process may run, and nobody has spoken to it yet
    PARKED = "parked"  # it waits to become a replica
    RESUMING = "resuming"  # it is becoming one
    RUNNING = "running"  # its guest has acknowledged the identity of the replica


class GuestReach(StrEnum):
    PORT = "port"  # a port of the host's loopback interface, or the far end of a link
    NAMESPACE = "namespace"  # a port inside a network namespace
    SOCKET = "socket"  # a unix socket of the host


class ReplicaFacts(BaseModel):
    """Replica of a machine, with the part of its spec that the next host agent needs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    replica_id: str
    generation: int
    token: str = Field(repr=False)
    screen: tuple[int, int]
    ram_mib: int | None
    cpus: float | None
    pids: int | None
    egress: Egress

    @property
    def caps(self) -> Caps:
        return Caps(ram_mib=self.ram_mib, cpus=self.cpus, pids=self.pids)


class VmRecord(BaseModel):
    """Record of one machine.

    Attributes:
        name: Name of its folder and its control group, unique among live machines of the instance.
        pid, start_ticks: Identity of its process, None before the start.
        host, port, reach: Address of the guest agent, and the way to it; port 0 before it is known.
        keeper: Id of its container, empty for a bare process.
        ram: Device, inode and size in bytes of the golden RAM that it maps.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    phase: VmPhase
    snapshot: str
    pid: int | None = None
    start_ticks: int | None = None
    host: str = Field(default="127.0.0.1", max_length=64)
    port: int = Field(default=0, ge=0, le=65535)
    reach: GuestReach = GuestReach.PORT
    keeper: str = ""
    ram: tuple[int, int, int] | None = None
    replica: ReplicaFacts | None = None

    @property
    def process(self) -> ProcessIdentity | None:
        """Identity of its process, None before the start."""
        if self.pid is None or self.start_ticks is None:
            return None
        return ProcessIdentity(self.pid, self.start_ticks)

    def reached_at(self, address: GuestAddress) -> VmRecord:
        match address:
            case UnixAddress():
                return self.model_copy(update={"reach": GuestReach.SOCKET})
            case EnclosedAddress():
                reach = GuestReach.NAMESPACE
            case TcpAddress():
                reach = GuestReach.PORT
            case _:
                assert_never(address)
        return self.model_copy(update={"host": address.host, "port": address.port, "reach": reach})

    @property
    def adoptable(self) -> bool:
        """Whether a next host agent may carry it on, if it still runs."""
        return self.phase is VmPhase.RUNNING and self.replica is not None and self.process is not None

    def address(self) -> GuestAddress:
        """Return the address at which any root process reaches the guest agent, as long as the machine runs.

        Raises:
            ValueError: The record alone is not enough: taps, and sockets into containers.
        """
        if self.reach is GuestReach.PORT:
            return TcpAddress(self.host, self.port)
        if self.reach is GuestReach.NAMESPACE and self.host == "127.0.0.1" and self.pid is not None:
            return EnclosedAddress(self.host, self.port, NamespaceOf(self.pid))
        raise ValueError(f"{self.name}: who runs it alone knows where it is reached")

    def as_replica(self, guest: GuestAddress | None = None) -> ReplicaRecord:
        """Return the replica's record in the form of the runtime contract.

        Args:
            guest: Address of its guest agent, if the caller knows better than `address`.

        Raises:
            ValueError: The machine is not a replica, or has no process; or as `address`.
        """
        if self.replica is None or self.pid is None:
            raise ValueError(f"{self.name} is not a replica")
        return ReplicaRecord(
            self.replica.replica_id,
            self.replica.generation,
            self.snapshot,
            self.pid,
            guest or self.address(),
        )


class VmRecords:
    """Store of an instance's records, in a folder of the host agent alone. Blocking, quick."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write(self, record: VmRecord) -> None:
        """Write or replace the record of a machine, without a sync.

        Raises:
            OSError: It cannot be written; the old record is still there.
        """
        write_whole(self._folder / f"{record.name}.json", record.model_dump_json().encode())

    def remove(self, name: str) -> None:
        """Remove the record of a machine. Idempotent."""
        (self._folder / f"{name}.json").unlink(missing_ok=True)

    def read_all(self) -> list[VmRecord]:
        """Return all records in the order of their names; broken ones are removed."""
        found = []
        for path in sorted(self._folder.glob("*")):
            record = _read(path)
            if record is None or path.name != f"{record.name}.json":
                path.unlink(missing_ok=True)
            else:
                found.append(record)
        return found

    def close(self) -> None:
        """Remove the folder if it is empty. Idempotent."""
        with contextlib.suppress(FileNotFoundError):
            self._folder.rmdir()


def _read(path: Path) -> VmRecord | None:
    try:
        with path.open("rb") as file:
            return VmRecord.model_validate_json(file.read(MAX_RECORD_BYTES))
    except (OSError, ValidationError):
        return None
