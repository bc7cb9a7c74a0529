"""Interface of launchers of QEMU processes, bare or in a runner container.

A launcher starts one process for an argument vector and keeps hold of it until nothing is left of it.
What is inside (guest, QMP, branching) is not its business: it hands back a `VmProcess`, whose PID is
the host's PID of QEMU itself, and the descriptors that the caller gave it are QEMU's under the numbers
that the argument vector names. Sockets are made by the caller and given in as listening descriptors,
so their paths never have to be seen from inside.

    launcher = ProcessLauncher(...)  # or runner.container.ContainerLauncher
    await launcher.prepare()
    process = await launcher.launch(LaunchRequest(name, argv, folder=folder, fds={3: qmp, 4: ram}))
    end = await process.wait()
    await process.remove()
"""

from __future__ import annotations

import enum
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from osgym_host.runtimes.base import RuntimeFault
from osgym_host.runtimes.processes import ProcessIdentity
from osgym_host.runtimes.replica_cgroup import Caps, CgroupGroup, MemoryEnd
from osgym_qemu.machine.namespace import AnyNamespace

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class RunnerKind(enum.StrEnum):
    """Ways to run a virtual machine (the setting `qemu.runner`)."""

    PROCESS = "process"
    CONTAINER = "container"


OVERHEAD_MIB = 160
"""Memory of QEMU beside guest RAM and translated code: 40 to 90 MiB were seen, and block and network
buffers grow under load. A cap that is too low kills the machine, so it is generous."""


def memory_cap_mib(ram_mib: int, tb_mib: int) -> int:
    """Return the least memory cap under which a machine with all its RAM written is not killed."""
    return ram_mib + tb_mib + OVERHEAD_MIB


class LaunchFailed(RuntimeFault):
    """Failure to start the process; nothing of it is left. `log_tail` has its output."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Request for one QEMU process.

    Attributes:
        name: Unique among the live ones of the instance; `[A-Za-z0-9_-]{1,64}`.
        argv: The whole argument vector. Its paths are those of the host, also in a container.
        folder: The machine's own folder, made by the caller: all that QEMU writes is in it. It and the
            files in it are given to the user that QEMU runs as, but for those named in `private`.
        reads: Other files and folders that QEMU only reads: frozen disks, a kernel, firmware.
        fds: The process's descriptor numbers (3 and up) to the caller's descriptors. The caller keeps
            and closes its own.
        namespace: The network namespace that QEMU is started in. For bare processes; None leaves it in ours.
        guest_listener: A listening unix socket: a connection accepted there is passed on to `guest_port`
            where QEMU runs. For containers, which have no network.
        guest_port: Where QEMU's user-mode networking listens, on its own loopback interface.
        caps: Of the whole process. Guest RAM and QEMU's own memory both count (`memory_cap_mib`).
        max_file_mib: Bound of each file that QEMU writes (its overlays); a write beyond it fails with EFBIG.
        env: Extra variables; besides, the process gets a fixed PATH and locale only.
        private: Names in `folder` that stay the caller's (records with secrets).
    """

    name: str
    argv: Sequence[str]
    folder: Path
    reads: tuple[Path, ...] = ()
    fds: Mapping[int, int] = field(default_factory=dict)
    namespace: AnyNamespace | None = None
    guest_listener: int | None = None
    guest_port: int = 5000
    caps: Caps = field(default_factory=Caps)
    max_file_mib: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    private: frozenset[str] = frozenset({"vm.json"})

    def __post_init__(self) -> None:
        """Check the values that become names and numbers.

        Raises:
            ValueError: A malformed name, descriptor number or an empty argument vector.
        """
        if _NAME.match(self.name) is None:
            raise ValueError(f"malformed name of a virtual machine: {self.name!r}")
        if not self.argv:
            raise ValueError("an empty argument vector")
        if any(number < 3 for number in self.fds):
            raise ValueError("descriptors below 3 are the launcher's")


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """End of a process. Both codes are None for an adopted process, whose status another process reaped.

    Attributes:
        memory: Owner of the memory that ran out, if the kernel killed it for that.
        output: Last bytes that QEMU itself printed (never the guest's).
    """

    exit_code: int | None = None
    signal: int | None = None
    memory: MemoryEnd = MemoryEnd.NONE
    output: str = ""


@dataclass(frozen=True, slots=True)
class FoundProcess:
    """Process of the instance that another launcher object started.

    Attributes:
        keeper: Id of its container, empty for a bare process.
        identity: Identity of QEMU's process, None when it has ended (the container still stands).
    """

    name: str
    keeper: str
    identity: ProcessIdentity | None


class VmProcess(ABC):
    """QEMU process, started or adopted."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def identity(self) -> ProcessIdentity:
        """Identity of QEMU's process on the host."""

    @property
    def pid(self) -> int:
        return self.identity.pid

    @property
    def keeper(self) -> str:
        """Id of its container, by which the next host agent finds it; empty for a bare process."""
        return ""

    @property
    @abstractmethod
    def group(self) -> CgroupGroup | None: ...

    @property
    @abstractmethod
    def end(self) -> ProcessEnd | None: ...

    @abstractmethod
    async def wait(self) -> ProcessEnd:
        """Wait for its end, without a deadline. Any number of tasks may wait."""

    @abstractmethod
    async def kill(self, *, timeout_s: float = 10.0) -> None:
        """Kill it and wait until it is gone. Idempotent.

        Raises:
            RuntimeFault: It is not gone after `timeout_s`.
        """

    @abstractmethod
    async def remove(self, *, timeout_s: float = 10.0) -> None:
        """Kill it and remove its container and control groups. Idempotent.

        The folder is the caller's.

        Raises:
            RuntimeFault: Something is left; calling again tries again.
        """

    @abstractmethod
    def output_tail(self, max_bytes: int = 4096) -> str:
        """Return the last output of QEMU itself."""


class Launcher(ABC):
    """Starter of QEMU processes of one instance."""

    @property
    @abstractmethod
    def runner(self) -> RunnerKind:
        """Kind of this launcher."""

    @property
    @abstractmethod
    def caps_enforced(self) -> frozenset[str]:
        """Caps among `memory`, `cpu` and `pids` that are really enforced. Valid after `prepare`."""

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """Missing capabilities and how to get them, one sentence each. Valid after `prepare`."""

    @abstractmethod
    async def prepare(self) -> None:
        """Check the host. Idempotent; starts nothing.

        Raises:
            RuntimeUnsupported: This host lacks something for it; the message says what to do.
        """

    @abstractmethod
    async def launch(self, request: LaunchRequest) -> VmProcess:
        """Start a process. It runs when this returns; QMP tells whether QEMU accepts its arguments.

        Cancelled, it leaves nothing behind.

        Raises:
            LaunchFailed: It could not be started; nothing of it is left.
        """

    @abstractmethod
    async def find(self) -> Sequence[FoundProcess]:
        """Return processes of this instance that a previous host agent left: containers by their labels; the
        caller's
                records know bare processes.
        """

    @abstractmethod
    async def adopt(self, name: str, identity: ProcessIdentity, keeper: str) -> VmProcess | None:
        """Take over a process of a previous host agent; None when it is gone."""

    @abstractmethod
    async def reap(self, keep: Collection[str] = ()) -> int:
        """Remove processes of a previous host agent that are not named in `keep`; return their number.

        Only processes with this instance's mark are touched.

        Raises:
            RuntimeFault: Something is left.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close threads and connections; processes go on. Idempotent."""
