"""Values of the contract of runtimes: images, specs, ends, usage, capabilities."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from osgym_host.addresses import GuestAddress
from osgym_protocol.reach import ReachKind


class ImageManifestLike(Protocol):
    """Part of an image's manifest that runtimes read."""

    @property
    def uid_base(self) -> int:
        """First host id of the 65,536 that own the files of the root file system."""
        ...

    @property
    def gid_base(self) -> int:
        """First host group id of them."""
        ...


class ImageLike(Protocol):
    """Image of a replica; each kind of runtime has its own kind of image."""

    @property
    def digest(self) -> str:
        """Content digest, by which the image is addressed."""
        ...


@runtime_checkable
class RootfsImage(ImageLike, Protocol):
    """Golden image as a folder of files; `osgym_host.images.store.Image` is one."""

    @property
    def rootfs(self) -> Path:
        """Root file system, read-only by agreement, owned by shifted ids."""
        ...

    @property
    def manifest(self) -> ImageManifestLike: ...


class Egress(enum.StrEnum):
    NONE = "none"
    ALLOWLIST = "allowlist"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Screen:
    width_px: int = 1920
    height_px: int = 1080

    def __str__(self) -> str:
        return f"{self.width_px}x{self.height_px}"


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """Saved disk and RAM of a running replica, from which others can be made.

    The runtime keeps the saved state until `Runtime.release_point`.

    Attributes:
        point_id: `[A-Za-z0-9_-]{1,64}`, unique on the host.
        image_digest: Digest of the image that the replica was cloned from; a child needs the same.
        kept: True if it is on disk and outlives the host agent (a checkpoint).
        pause_ms: Duration for which the replica stood still.
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
        token: Token that the guest agent demands of its callers; `None` where the channel is private.
        environment: Extra variables for the session (`OSGYM_*` of the runtime win).
        origin: Branch point of another replica to start from instead of the image.
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
    DESTROYED = "destroyed"  # destroy() or stop() was called
    SESSION_ENDED = "session_ended"  # PID 1 (or the VM) ended by itself
    DISPLAY_LOST = "display_lost"  # the session ended because its X server had died
    OUT_OF_MEMORY = "out_of_memory"  # its memory cap was reached and the kernel killed in it
    HOST_OUT_OF_MEMORY = "host_out_of_memory"  # the host had no memory left; its own cap was not reached
    KILLED = "killed"  # a signal that was not ours, and that nothing inside can send
    STOPPED = "stopped"  # somebody on the host stopped or paused it
    RUNTIME_LOST = "runtime_lost"  # the process that supervises replicas died
    DISK_FULL = "disk_full"  # it wrote as much as it may, and could write no more
    HOST_DISK_FULL = "host_disk_full"  # it could write no more, since the host's disk was full
    IO_ERROR = "io_error"  # its disk failed otherwise
    HUNG = "hung"  # its guest does not run on, and it was killed for that
    GUEST_PANIC = "guest_panic"  # the guest's kernel gave up
    GUEST_REBOOTED = "guest_rebooted"  # the guest restarted itself, so its state is not the episode's
    GUEST_SHUTDOWN = "guest_shutdown"  # the guest switched itself off
    EMULATOR_FAILED = "emulator_failed"  # the virtual machine monitor failed or crashed


@dataclass(frozen=True, slots=True)
class ExitInfo:
    """End of a replica.

    Attributes:
        detail: One line for people: exit code, signal, what was seen.
        log_tail: Last bytes of the console, undecodable bytes replaced. Written by the guest:
            show it, never interpret it.
    """

    reason: ExitReason
    detail: str
    exit_code: int | None = None
    signal: int | None = None
    log_tail: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources in use by a replica. `None` where the host cannot measure one.

    Attributes:
        pss_mib: Proportional set size of all its processes.
        charged_mib: Memory that the kernel charges to its cap (with page cache), cheaper to read.
        cpu_s: CPU time since it was created, dead processes included.
        overlay_mib: Disk space of its files, deleted ones that are still open included.
        written_mib: Amount that its live processes have written to files since they started.
        fds_in_flight: Number of descriptors sent over its unix sockets and not received: their files are in
            no other number.
    """

    pss_mib: float | None = None
    charged_mib: float | None = None
    cpu_s: float | None = None
    overlay_mib: float | None = None
    processes: int | None = None
    written_mib: float | None = None
    fds_in_flight: int | None = None


@dataclass(frozen=True, slots=True)
class ReclaimedMemory:
    """Memory of a replica before and after it was moved to swap.

    Attributes:
        freed_mib: Memory that was moved.
        left_mib: Memory that could not be moved, such as the kernel's own.
        occupied_mib: Memory that the replica still occupies, its compressed pages included.
    """

    freed_mib: float
    left_mib: float
    occupied_mib: float


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities of a runtime on this host. Settings that need others are refused.

    Attributes:
        caps_memory, caps_cpu, caps_pids: True if the cap of that name is really enforced.
        egress: Egress policies that the runtime can carry out.
        adoption: True if replicas survive the host agent and can be adopted by the next one.
        branching: True if `branch` works and `create` takes an `origin`.
        notes: Missing capabilities and how to get them, one sentence each.
        reach: Ways to reach into a desktop that the guest agent inside offers.
    """

    runtime: str
    caps_memory: bool = False
    caps_cpu: bool = False
    caps_pids: bool = False
    egress: frozenset[Egress] = frozenset({Egress.NONE})
    adoption: bool = False
    notes: tuple[str, ...] = ()
    branching: bool = False
    reach: frozenset[ReachKind] = frozenset(ReachKind)


@dataclass(frozen=True, slots=True)
class ReplicaRecord:
    """Running replica that another process created."""

    replica_id: str
    generation: int
    image_digest: str
    pid: int
    guest: GuestAddress


@dataclass(frozen=True, slots=True)
class StartReport:
    """Findings of `Runtime.start`: what it found and what it removed."""

    adoptable: tuple[ReplicaRecord, ...] = ()
    points: tuple[BranchPoint, ...] = ()
    reaped_replicas: int = 0
    reaped_processes: int = 0
