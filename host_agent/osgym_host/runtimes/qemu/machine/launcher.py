"""How QEMU processes come into being: one interface, whether bare or in a runner container.

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
from osgym_host.runtimes.qemu.machine.namespace import AnyNamespace
from osgym_host.runtimes.replica_cgroup import Caps, CgroupGroup, MemoryEnd

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class RunnerKind(enum.StrEnum):
    """Ways to run a virtual machine (the setting `qemu.runner`)."""

    PROCESS = "process"
    CONTAINER = "container"


OVERHEAD_MIB = 160
"""What QEMU may need beside guest RAM and translated code: 40 to 90 MiB were seen, and block and network
buffers grow under load. A cap that is too low kills the machine, so there is room."""


def memory_cap_mib(ram_mib: int, tb_mib: int) -> int:
    """Return the least memory cap under which a machine with all its RAM written is not killed."""
    return ram_mib + tb_mib + OVERHEAD_MIB


class LaunchFailed(RuntimeFault):
    """The process could not be started; nothing of it is left. `log_tail` is what it printed."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """One QEMU process to start.

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
        """Check what later becomes names and numbers.

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
    """How a process ended. Both None: it was adopted, so its status was another's to read.

    Attributes:
        memory: Whether the kernel killed it for want of memory.
        output: The last bytes that QEMU itself printed (never what the guest wrote).
    """

    exit_code: int | None = None
    signal: int | None = None
    memory: MemoryEnd = MemoryEnd.NONE
    output: str = ""


@dataclass(frozen=True, slots=True)
class FoundProcess:
    """A process of the instance that this launcher object did not start.

    Attributes:
        keeper: What finds it again: the id of a container, empty for a bare process.
        identity: QEMU's process, None when it has ended (the container still stands).
    """

    name: str
    keeper: str
    identity: ProcessIdentity | None


class VmProcess(ABC):
    """One QEMU process, started or adopted."""

    @property
    @abstractmethod
    def name(self) -> str:
        """As in the request."""

    @property
    @abstractmethod
    def identity(self) -> ProcessIdentity:
        """QEMU's process on the host, for sure."""

    @property
    def pid(self) -> int:
        """QEMU's PID on the host."""
        return self.identity.pid

    @property
    def keeper(self) -> str:
        """What finds it again after the host agent: the id of a container, empty for a bare process."""
        return ""

    @property
    @abstractmethod
    def group(self) -> CgroupGroup | None:
        """Its control groups, where there are any: caps and usage."""

    @property
    @abstractmethod
    def end(self) -> ProcessEnd | None:
        """How it ended, None while it lives."""

    @abstractmethod
    async def wait(self) -> ProcessEnd:
        """Wait, without a deadline, for its end. Any number of tasks may wait."""

    @abstractmethod
    async def kill(self, *, timeout_s: float = 10.0) -> None:
        """Kill it and wait until it is gone. Idempotent.

        Raises:
            RuntimeFault: It is not gone after `timeout_s`.
        """

    @abstractmethod
    async def remove(self, *, timeout_s: float = 10.0) -> None:
        """Kill it and take away what keeps it (container, control group). Idempotent.

        The folder is the caller's.

        Raises:
            RuntimeFault: Something is left; calling again tries again.
        """

    @abstractmethod
    def output_tail(self, max_bytes: int = 4096) -> str:
        """Return the last that QEMU itself printed."""


class Launcher(ABC):
    """Starts QEMU processes of one instance."""

    @property
    @abstractmethod
    def runner(self) -> RunnerKind:
        """Which way this is."""

    @property
    @abstractmethod
    def caps_enforced(self) -> frozenset[str]:
        """Which of `memory`, `cpu` and `pids` are really enforced. Valid after `prepare`."""

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """What is missing here and how to get it, one sentence each. Valid after `prepare`."""

    @abstractmethod
    async def prepare(self) -> None:
        """Find out what the host offers. Idempotent; starts nothing.

        Raises:
            RuntimeUnsupported: This way cannot be gone here; the message says what to do.
        """

    @abstractmethod
    async def launch(self, request: LaunchRequest) -> VmProcess:
        """Start a process. It runs when this returns; whether QEMU likes its arguments, QMP tells.

        Cancelled, it leaves nothing behind.

        Raises:
            LaunchFailed: It could not be started; nothing of it is left.
        """

    @abstractmethod
    async def find(self) -> Sequence[FoundProcess]:
        """Return the processes of this instance that a previous host agent left, as far as a launcher can
        tell without records: containers by their labels; bare processes are found by the caller's records.
        """

    @abstractmethod
    async def adopt(self, name: str, identity: ProcessIdentity, keeper: str) -> VmProcess | None:
        """Take over a process of a previous host agent; None when it is gone."""

    @abstractmethod
    async def reap(self, keep: Collection[str] = ()) -> int:
        """Remove what a previous host agent left and is not named in `keep`; return how many.

        Only ever touches what carries this instance's mark.

        Raises:
            RuntimeFault: Something is left.
        """

    @abstractmethod
    async def close(self) -> None:
        """Let go of threads and connections; processes go on. Idempotent."""
