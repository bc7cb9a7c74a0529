"""The contract between the managers of replicas and whatever runs them.

A runtime turns a golden image into running replicas and takes them away again without a trace. It
knows nothing of episodes, leases or HTTP. All methods are coroutines, are safe to call concurrently
for different replicas, and keep their promises when they are cancelled: a cancelled `create` leaves
nothing behind, a cancelled `destroy` goes on in the background until the replica is gone.

`tests/contract/test_runtime_contract.py` is this text in executable form; every runtime passes it.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from osgym_host.addresses import GuestAddress
from osgym_host.errors import OsgymHostError
from osgym_host.runtimes.frozen_disk import FrozenDisk
from osgym_protocol.reach import ReachKind

HOSTNAME = "desktop"
"""Inside every replica, so that no prompt or title on a screen tells two apart; outside they have ids."""


class ImageManifestLike(Protocol):
    """What a runtime reads of an image's manifest."""

    @property
    def uid_base(self) -> int:
        """First host id of the 65,536 that own the files of the root file system."""
        ...

    @property
    def gid_base(self) -> int:
        """The same for groups."""
        ...


class ImageLike(Protocol):
    """What every runtime needs of what it clones; each kind of runtime has its own kind of image."""

    @property
    def digest(self) -> str:
        """Content digest, the image's address."""
        ...


@runtime_checkable
class RootfsImage(ImageLike, Protocol):
    """A golden image as a folder of files; `osgym_host.images.store.Image` is one."""

    @property
    def rootfs(self) -> Path:
        """Root file system, read-only by agreement, owned by shifted ids."""
        ...

    @property
    def manifest(self) -> ImageManifestLike:
        """What was recorded when the image was baked."""
        ...


class Egress(enum.StrEnum):
    """Where a replica may connect to."""

    NONE = "none"
    ALLOWLIST = "allowlist"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Screen:
    """Size of the desktop in pixels."""

    width_px: int = 1920
    height_px: int = 1080

    def __str__(self) -> str:
        """Return the size as `1920x1080`."""
        return f"{self.width_px}x{self.height_px}"


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """A running replica's disk and RAM at one point in time, from which others can be made.

    A handle: what it stands for is kept by the runtime until `Runtime.release_point`.

    Attributes:
        point_id: `[A-Za-z0-9_-]{1,64}`, unique on the host.
        image_digest: Of the image that the replica was cloned from; a child needs the same.
        kept: It is on disk and outlives the host agent (a checkpoint).
        pause_ms: How long the replica stood still.
        ram_mib: RAM that differs from the image's.
        disk_mib: Disk that differs from the image's.
    """

    point_id: str
    image_digest: str
    replica_id: str
    generation: int
    kept: bool
    created_at: float
    pause_ms: float
    ram_mib: float
    disk_mib: float


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """Everything that a runtime needs to make one replica. `None` means no cap.

    Attributes:
        replica_id: Unique among the live replicas of the instance; `[A-Za-z0-9_-]{1,64}`.
        generation: New for each clone, never reused by an instance.
        ram_mib: Cap on the memory of all processes and in-memory files together.
        cpus: Cap on CPU time per second of real time (1.5 = one and a half cores).
        pids: Cap on processes and threads.
        token: What the guest agent demands of its callers; `None` where the channel is private.
        environment: Extra variables for the session (`OSGYM_*` of the runtime win).
        origin: Start from this branch point of another replica instead of from the image.
    """

    replica_id: str
    generation: int
    image: ImageLike
    screen: Screen = field(default_factory=Screen)
    ram_mib: int | None = None
    cpus: float | None = None
    pids: int | None = None
    egress: Egress = Egress.NONE
    token: str | None = field(default=None, repr=False)
    environment: tuple[tuple[str, str], ...] = ()
    origin: BranchPoint | None = None


class ExitReason(enum.StrEnum):
    """Why a replica is dead."""

    DESTROYED = "destroyed"  # destroy() or stop() was called
    SESSION_ENDED = "session_ended"  # PID 1 (or the VM) ended by itself
    DISPLAY_LOST = "display_lost"  # the session ended because its X server had died
    OUT_OF_MEMORY = "out_of_memory"  # its memory cap was reached and the kernel killed in it
    KILLED = "killed"  # a signal that was not ours
    RUNTIME_LOST = "runtime_lost"  # the process that supervises replicas died
    DISK_FULL = "disk_full"  # it could write no more: the host's disk or its own bound
    IO_ERROR = "io_error"  # its disk failed otherwise
    HUNG = "hung"  # it stood still (stopped, or its guest does not run on) and was killed for that
    GUEST_PANIC = "guest_panic"  # the guest's kernel gave up
    GUEST_REBOOTED = "guest_rebooted"  # the guest restarted itself, so its state is not the episode's
    GUEST_SHUTDOWN = "guest_shutdown"  # the guest switched itself off
    EMULATOR_FAILED = "emulator_failed"  # the virtual machine monitor failed or crashed


@dataclass(frozen=True, slots=True)
class ExitInfo:
    """How a replica ended.

    Attributes:
        detail: One line for people: exit code, signal, what was seen.
        log_tail: The last bytes of the console, undecodable bytes replaced. Written by the guest:
            show it, never interpret it.
    """

    reason: ExitReason
    detail: str
    exit_code: int | None = None
    signal: int | None = None
    log_tail: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a replica uses now. `None` where the host cannot tell.

    Attributes:
        pss_mib: Proportional set size of all its processes.
        charged_mib: What the kernel charges to its memory cap (with page cache), cheaper to read.
        cpu_s: CPU time since it was created, dead processes included.
        overlay_mib: What it has on disk, files included that were deleted and are still held.
        processes: Number of its processes.
        written_mib: What its live processes have written to files since they started.
        fds_in_flight: Descriptors that were sent over its unix sockets and not received: what they
            stand for is in no other number.
    """

    pss_mib: float | None
    charged_mib: float | None
    cpu_s: float | None
    overlay_mib: float | None
    processes: int | None
    written_mib: float | None = None
    fds_in_flight: int | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a runtime can do on this host, so that nothing is silently not enforced.

    Attributes:
        caps_memory, caps_cpu, caps_pids: The cap of that name is really enforced.
        egress: Policies that the runtime can carry out.
        adoption: Replicas survive the host agent and can be adopted by the next one.
        branching: `branch` works, and `create` takes an `origin`.
        notes: What is missing and how to get it, one sentence each.
        reach: The ways to reach into a desktop that the guest agent inside offers.
    """

    runtime: str
    caps_memory: bool
    caps_cpu: bool
    caps_pids: bool
    egress: frozenset[Egress]
    adoption: bool
    notes: tuple[str, ...] = ()
    branching: bool = False
    reach: frozenset[ReachKind] = frozenset(ReachKind)


@dataclass(frozen=True, slots=True)
class ReplicaRecord:
    """A replica found running that this process did not create."""

    replica_id: str
    generation: int
    image_digest: str
    pid: int
    guest: GuestAddress


@dataclass(frozen=True, slots=True)
class StartReport:
    """What `Runtime.start` found and did."""

    adoptable: tuple[ReplicaRecord, ...] = ()
    points: tuple[BranchPoint, ...] = ()
    reaped_replicas: int = 0
    reaped_processes: int = 0


class RuntimeFault(OsgymHostError):
    """Base of what a runtime raises."""

    def __init__(self, message: str, *, replica_id: str | None = None, log_tail: str = "") -> None:
        """Keep the fields beside the message."""
        super().__init__(message)
        self.replica_id = replica_id
        self.log_tail = log_tail


class RuntimeUnsupported(RuntimeFault):
    """This host cannot run this runtime (or this policy); `remedy` says how it could."""

    def __init__(self, message: str, *, remedy: str = "", replica_id: str | None = None) -> None:
        """Keep the remedy beside the message."""
        super().__init__(f"{message} {remedy}".strip(), replica_id=replica_id)
        self.remedy = remedy


class RuntimeNotRunning(RuntimeFault):
    """`start` was not called, `stop` was, or the runtime's supervisor is dead."""


class ReplicaCreateFailed(RuntimeFault):
    """The replica could not be started; nothing of it is left. `step` is where it failed."""

    def __init__(self, message: str, *, step: str, replica_id: str | None = None, log_tail: str = "") -> None:
        """Keep the failed step beside the message."""
        super().__init__(message, replica_id=replica_id, log_tail=log_tail)
        self.step = step


class ReplicaExists(RuntimeFault):
    """A live replica has this id already."""


class ReplicaNotFound(RuntimeFault):
    """No such replica, or another generation of it."""


class ReplicaDestroyFailed(RuntimeFault):
    """Something of the replica is left (a process that cannot die, files that cannot go)."""


class PointFailed(RuntimeFault):
    """A branch point could not be taken, written or read; nothing of it is left."""


class PointNotFound(RuntimeFault):
    """There is no such branch point (any more)."""


class DataDirBusy(RuntimeFault):
    """Another live host agent uses this instance's directory."""


class GuestTampered(RuntimeFault):
    """A replica's guest agent is not what it was: what it answers says nothing. The message says in what."""


_BRANCH_REMEDY = "Use the runtime qemu."


class Replica(ABC):
    """One running desktop, as the runtime that made it knows it. Identity never changes."""

    @property
    @abstractmethod
    def replica_id(self) -> str:
        """Id given in the spec."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """Generation given in the spec."""

    @property
    @abstractmethod
    def spec(self) -> ReplicaSpec:
        """What it was created from."""

    @property
    @abstractmethod
    def guest(self) -> GuestAddress:
        """Where its guest agent listens; already bound, the guest cannot redirect it."""

    @property
    def guest_token(self) -> str | None:
        """What the guest agent demands of its callers; the spec's unless the runtime made one."""
        return self.spec.token

    @property
    def reported_ready(self) -> bool:
        """Whether its guest agent has already reported a drawn desktop, so that nobody needs to ask it."""
        return False

    @property
    @abstractmethod
    def pid(self) -> int:
        """Host PID of its first process."""

    def agent_pid(self) -> int:
        """Return the host PID of the process that its guest agent runs in, 0 when that is not known.

        By what it waits for, a slow guest agent is told from a frozen one. May block for milliseconds.
        """
        return self.pid

    @property
    @abstractmethod
    def exit_info(self) -> ExitInfo | None:
        """How it ended, `None` while it lives. Set before `wait_dead` returns."""

    @abstractmethod
    async def wait_dead(self) -> ExitInfo:
        """Wait, without a deadline, until no process of the replica is left.

        Any number of tasks may wait; each gets the same answer; after death it returns at once.
        Its files are still there until `Runtime.destroy`.
        """

    @abstractmethod
    def console_tail(self, max_bytes: int = 8192) -> str:
        """Return the last bytes of the console log (hostile text), `""` when there is none."""


class Runtime(ABC):
    """Makes replicas of one kind on this host."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name in `osgym_protocol.runtimes`."""

    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Say what this runtime can enforce here. Valid after `start`."""

    @abstractmethod
    async def start(self) -> StartReport:
        """Take the instance's directory and clear what a killed predecessor left.

        Idempotent: a second call on a started runtime changes nothing and returns an empty report.
        Afterwards no process, mount, cgroup or file of a former replica is left, except replicas
        named in `StartReport.adoptable`, which `adopt` or `reap` must settle.

        Raises:
            RuntimeUnsupported: The host lacks something; the message says what to do.
            DataDirBusy: Another live host agent holds the directory; nothing was touched.
            RuntimeFault: Leftovers could not be removed.
        """

    @abstractmethod
    async def create(self, spec: ReplicaSpec) -> Replica:
        """Start a fresh clone and return as soon as its first process runs.

        Connections to `Replica.guest` are accepted from now on; whether the desktop is drawn is
        the guest's to say (`GuestClient.ready`). A death after the return shows in `wait_dead`.

        Raises:
            ReplicaExists: The id is in use.
            ReplicaCreateFailed: It could not be started; nothing of it is left.
            RuntimeUnsupported: The spec asks for what this runtime cannot do (egress, screen).
            RuntimeNotRunning: Before `start`, after `stop`, or the supervisor is dead.
            ValueError: The spec is malformed.
        """

    @abstractmethod
    async def destroy(self, replica: Replica) -> None:
        """Kill every process of the replica and remove all it left: files, cgroups, sockets.

        Idempotent, also on a replica that died by itself and after `stop`. The id may be used
        again as soon as this returns.

        Raises:
            ReplicaDestroyFailed: Something is left; calling again tries again.
        """

    @abstractmethod
    async def usage(self, replica: Replica, *, deep: bool = True) -> Usage:
        """Measure what the replica uses. A dead replica uses no memory and has no processes.

        Args:
            deep: Also measure `pss_mib` and `overlay_mib`, which costs some 10 ms of CPU time; they
                are None without it. Where `charged_mib` is None, only `deep` tells about memory.

        Raises:
            ReplicaNotFound: It was destroyed.
        """

    def used_cpu_s(self, replica: Replica) -> float | None:
        """Return the CPU time of all its processes so far, a cheap read; None where nothing counts it.

        Raises:
            ReplicaNotFound: It was destroyed.
        """
        return None

    def set_cpu_weight(self, replica: Replica, weight: int) -> None:  # noqa: B027 (not abstract)
        """Set its share of the processors beside other replicas: 1 to 10,000, 100 at first.

        Raises:
            ReplicaNotFound: It was destroyed.
            OSError: The kernel refused.
        """

    @abstractmethod
    def replicas(self) -> Sequence[Replica]:
        """Return the replicas created or adopted by this object and not yet destroyed."""

    @abstractmethod
    async def adopt(self, record: ReplicaRecord) -> Replica:
        """Take over a replica of a previous host agent.

        Raises:
            ReplicaNotFound: It is gone, or not adoptable.
            RuntimeUnsupported: This runtime does not keep replicas (`Capabilities.adoption`).
        """

    @abstractmethod
    async def reap(self, record: ReplicaRecord) -> None:
        """Destroy a replica of a previous host agent. Idempotent.

        Raises:
            ReplicaDestroyFailed: Something is left.
        """

    # Trust in what a guest agent answers: runtimes that cannot see into a replica keep these answers --------

    async def witness(self, replica: Replica) -> None:  # noqa: B027 (not abstract)
        """Note what its guest agent is, before anybody has used the replica.

        Raises:
            ReplicaNotFound: It was destroyed.
        """

    async def attest(  # noqa: B027 (the same)
        self, replica: Replica, sockets: Sequence[int]
    ) -> None:
        """Check that its guest agent is still what `witness` noted, as far as can be seen from outside.

        Args:
            sockets: Inodes of our ends of the connections to it.

        Raises:
            GuestTampered: It was replaced or changed.
            ReplicaNotFound: It was destroyed.
            RuntimeFault: It cannot be looked at.
        """

    async def freeze_disk(self, replica: Replica) -> FrozenDisk | None:
        """Return its disk as it is now; it goes on. None where files have to be asked of the guest agent.

        Raises:
            ReplicaNotFound: It was destroyed.
            RuntimeFault: It could not be done; the replica is as it was.
        """
        return None

    # Branching: runtimes without it keep these answers -------------------------------------------

    async def branch(self, replica: Replica, *, keep: bool = False) -> BranchPoint:
        """Take the replica's disk and RAM as they are now; it goes on after a pause of milliseconds.

        `create` with this `origin` makes children, any number of them, until the point is released;
        live children do not need it any more.

        Args:
            keep: Write it to disk, so that it outlives the replica and the host agent.

        Raises:
            ReplicaNotFound: It is dead or destroyed.
            PointFailed: It could not be taken; the replica is not affected.
            RuntimeUnsupported: This runtime cannot (`Capabilities.branching`).
        """
        raise RuntimeUnsupported(f"the runtime {self.name} cannot branch a replica", remedy=_BRANCH_REMEDY)

    async def release_point(self, point: BranchPoint) -> None:
        """Let go of a point and remove its files, kept ones too. Idempotent."""
        raise RuntimeUnsupported(f"the runtime {self.name} has no branch points", remedy=_BRANCH_REMEDY)

    async def export_point(self, point: BranchPoint, target: Path) -> None:
        """Write a kept point as one file that `import_point` of another host takes.

        Raises:
            PointNotFound: It is gone, or not a kept one.
        """
        raise RuntimeUnsupported(f"the runtime {self.name} has no branch points", remedy=_BRANCH_REMEDY)

    async def import_point(self, source: Path) -> BranchPoint:
        """Take in a kept point of another host; the file is hostile input.

        Raises:
            PointFailed: It is broken, or of another golden snapshot than this host's; says which.
        """
        raise RuntimeUnsupported(f"the runtime {self.name} has no branch points", remedy=_BRANCH_REMEDY)

    @abstractmethod
    async def stop(self) -> None:
        """Destroy every replica and free what the runtime holds on the host. Idempotent.

        Afterwards nothing of this instance is left but its folder with lock files.

        Raises:
            ReplicaDestroyFailed: Something is left; all else was removed.
        """
