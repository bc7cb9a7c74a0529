"""Contract between the managers of replicas and a runtime.

A runtime turns a golden image into running replicas and takes them away again without a trace. It
knows nothing of episodes, leases or HTTP. All methods are coroutines, are safe to call concurrently
for different replicas, and keep their promises when they are cancelled: a cancelled `create` leaves
nothing behind, a cancelled `destroy` goes on in the background until the replica is gone.

Import the contract from here, whatever module a part of it stands in.

`tests/contract/runtimes` is this text in executable form; every runtime passes it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from osgym_host.addresses import GuestAddress
from osgym_host.runtimes.faults import (
    DataDirBusy,
    GuestRestarted,
    GuestTampered,
    PointFailed,
    PointNotFound,
    ReplicaCreateFailed,
    ReplicaDestroyFailed,
    ReplicaExists,
    ReplicaNotFound,
    RuntimeFault,
    RuntimeNotRunning,
    RuntimeUnsupported,
)
from osgym_host.runtimes.frozen_disk import FrozenDisk
from osgym_host.runtimes.values import (
    BranchPoint,
    Capabilities,
    Egress,
    ExitInfo,
    ExitReason,
    ImageLike,
    ImageManifestLike,
    ReclaimedMemory,
    ReplicaRecord,
    ReplicaSpec,
    RootfsImage,
    Screen,
    StartReport,
    Usage,
)

__all__ = [
    "HOSTNAME",
    "BranchPoint",
    "Capabilities",
    "DataDirBusy",
    "Egress",
    "ExitInfo",
    "ExitReason",
    "GuestRestarted",
    "GuestTampered",
    "ImageLike",
    "ImageManifestLike",
    "PointFailed",
    "PointNotFound",
    "ReclaimedMemory",
    "Replica",
    "ReplicaCreateFailed",
    "ReplicaDestroyFailed",
    "ReplicaExists",
    "ReplicaNotFound",
    "ReplicaRecord",
    "ReplicaSpec",
    "RootfsImage",
    "Runtime",
    "RuntimeFault",
    "RuntimeNotRunning",
    "RuntimeUnsupported",
    "Screen",
    "StartReport",
    "Usage",
]

HOSTNAME = "desktop"
"""Host name inside every replica, so that no prompt or title on a screen tells two apart; outside they have
ids."""

_TRAVEL_REMEDY = "Those of `runtime: qemu` travel."
_BRANCH_REMEDY = "Run the host agent with `runtime: qemu`."


class Replica(ABC):
    """One running desktop, as the runtime that made it knows it. Identity never changes.

    A runtime derives its own and must say where the guest agent listens.

    Attributes:
        destroying: True once its runtime has begun to destroy it.
        removed: True once nothing of it is left.
    """

    def __init__(self, spec: ReplicaSpec) -> None:
        """Make it on the event loop of its runtime."""
        self._spec = spec
        self.destroying = False
        self.removed = False
        self._dead: asyncio.Future[ExitInfo] = asyncio.get_running_loop().create_future()

    @property
    def spec(self) -> ReplicaSpec:
        return self._spec

    @property
    def replica_id(self) -> str:
        return self._spec.replica_id

    @property
    def generation(self) -> int:
        return self._spec.generation

    @property
    @abstractmethod
    def guest(self) -> GuestAddress:
        """Address at which its guest agent listens; already bound, the guest cannot redirect it."""

    @property
    def guest_token(self) -> str | None:
        """Token that the guest agent demands of its callers; the spec's unless the runtime made one."""
        return self.spec.token

    @property
    def reported_ready(self) -> bool:
        """Whether its guest agent has already reported a drawn desktop, so that nobody needs to ask it."""
        return False

    @property
    def pid(self) -> int:
        """Host PID of its first process, 0 where it has none on this host."""
        return 0

    def agent_pid(self) -> int:
        """Return the host PID of the process that its guest agent runs in, 0 when unknown.

                The scheduler's counters of that process tell a slow guest agent from a frozen one. May block
        for
                milliseconds.
        """
        return self.pid

    @property
    def exit_info(self) -> ExitInfo | None:
        """How it ended, None while it lives. Set before `wait_dead` returns."""
        return self._dead.result() if self._dead.done() else None

    async def wait_dead(self) -> ExitInfo:
        """Wait, without a deadline, until no process of the replica is left.

        Any number of tasks may wait; each gets the same answer; after death it returns at once.
        Its files are still there until `Runtime.destroy`.
        """
        return await asyncio.shield(self._dead)

    def mark_dead(self, info: ExitInfo) -> None:
        """Record its end, once no process of it is left. Only the first call counts."""
        if not self._dead.done():
            self._dead.set_result(info)

    def console_tail(self, max_bytes: int = 8192) -> str:
        """Return the last bytes of the console log (hostile text), `""` when there is none."""
        return ""


class Runtime(ABC):
    """Makes replicas of one kind on this host.

    A runtime must have a name, create replicas, list them and destroy them. What it says of everything else
    is true of one that enforces no caps, measures nothing, keeps nothing and does not branch.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Name under which its kind is registered."""

    def capabilities(self) -> Capabilities:
        """Return what this runtime can enforce here. Valid after `start`."""
        return Capabilities(self.name)

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
        return StartReport()

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

    async def usage(self, replica: Replica, *, deep: bool = True) -> Usage:
        """Measure what the replica uses. A dead replica uses no memory and has no processes.

        Args:
            deep: Also measure `pss_mib` and `overlay_mib`, which costs some 10 ms of CPU time; they
                are None without it. Where `charged_mib` is None, only `deep` tells about memory.

        Raises:
            ReplicaNotFound: It was destroyed.
        """
        return Usage()

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

    def can_pause(self, replica: Replica) -> bool:
        """Return whether `pause` works on this replica."""
        return False

    async def pause(self, replica: Replica) -> None:
        """Stop all processes of the replica. It can still be measured and destroyed. Idempotent.

        Raises:
            ReplicaNotFound: It was destroyed.
            RuntimeFault, OSError: It could not be paused, and runs on.
        """
        raise RuntimeUnsupported(f"the runtime {self.name} cannot pause a replica")

    async def unpause(self, replica: Replica) -> None:  # noqa: B027 (not abstract)
        """Let the processes of a paused replica run on. Idempotent.

        Raises:
            ReplicaNotFound: It was destroyed.
            RuntimeFault, OSError: It still stands.
        """

    async def reclaim(self, replica: Replica) -> ReclaimedMemory | None:
        """Move the memory of a paused replica to the host's swap.

        Returns:
            What was moved; None if the kernel cannot reclaim the memory of one replica.

        Raises:
            ReplicaNotFound: It was destroyed.
            OSError: The kernel refused.
        """
        return None

    @abstractmethod
    def replicas(self) -> Sequence[Replica]:
        """Return the replicas created or adopted by this object and not yet destroyed."""

    async def adopt(self, record: ReplicaRecord) -> Replica:
        """Take over a replica of a previous host agent.

        Raises:
            ReplicaNotFound: It is gone, or not adoptable.
            RuntimeUnsupported: This runtime does not keep replicas (`Capabilities.adoption`).
        """
        raise RuntimeUnsupported(
            f"the runtime {self.name} cannot adopt replicas", replica_id=record.replica_id
        )

    async def reap(self, record: ReplicaRecord) -> None:  # noqa: B027 (not abstract)
        """Destroy a replica of a previous host agent. Idempotent.

        Raises:
            ReplicaDestroyFailed: Something is left.
        """

    # Trust in what a guest agent answers: runtimes that cannot see into a replica keep these answers --------

    async def witness(self, replica: Replica) -> None:  # noqa: B027 (not abstract)
        """Record the identity of the guest agent before anybody has used the replica.

        Raises:
            ReplicaNotFound: It was destroyed.
        """

    async def attest(self, replica: Replica, sockets: Sequence[int]) -> bool:
        """Compare the guest agent with its recorded identity, as far as that is visible from outside.

        Returns:
            True if the check is conclusive: no program of the desktop can reach the agent, so that it cannot
            have changed anything that the check does not see either.

        Args:
            sockets: Inodes of the host's ends of the connections to it.

        Raises:
            GuestTampered: It was replaced or changed.
            ReplicaNotFound: It was destroyed.
            RuntimeFault: The check could not be made.
        """
        return False

    async def freeze_disk(self, replica: Replica) -> FrozenDisk | None:
        """Return the replica's disk as it is now; the replica goes on. None where only the guest agent can
        read files.

        Raises:
            ReplicaNotFound: It was destroyed.
            RuntimeFault: The disk could not be frozen; the replica is unchanged.
        """
        return None

    # Branching: runtimes without it keep these answers -------------------------------------------

    def why_no_branching(self) -> RuntimeUnsupported | None:
        """Return the error, with a remedy, of branching a replica that somebody has used; None: it can."""
        if self.capabilities().branching:
            return None
        return RuntimeUnsupported(f"The runtime {self.name} cannot branch a replica.", remedy=_BRANCH_REMEDY)

    def why_no_templates(self) -> str | None:
        """Return the reason why a replica that only a set-up has used cannot branch; None: it can."""
        return None if self.capabilities().branching else "this runtime cannot branch a replica"

    def why_no_warm_clones(self) -> str | None:
        """Return the reason why a replica that nobody has used cannot be cloned; None: it can."""
        return f"those of {self.name} are clones of one that has booted"

    async def branch(self, replica: Replica, *, keep: bool = False) -> BranchPoint:
        """Save the replica's disk and RAM as a branch point; it goes on after a pause of milliseconds.

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

    async def find_points(self) -> Sequence[BranchPoint]:
        """Return the kept points that there are now; other hosts may have added or released some.

        Raises:
            OSError: They cannot be read.
        """
        return ()

    async def release_point(self, point: BranchPoint) -> None:
        """Release a point and remove its files, kept ones too. Idempotent."""
        raise RuntimeUnsupported(f"the runtime {self.name} has no branch points", remedy=_BRANCH_REMEDY)

    async def export_point(self, point: BranchPoint, target: Path) -> None:
        """Write a kept point to one file for `import_point` of another host.

        Raises:
            PointNotFound: It is gone, or not a kept one.
        """
        raise RuntimeUnsupported(
            f"Checkpoints of the runtime {self.name} stay on their host.", remedy=_TRAVEL_REMEDY
        )

    async def import_point(self, source: Path) -> BranchPoint:
        """Read a kept point of another host; the file is hostile input.

        Raises:
            PointFailed: The file is broken, or of another golden snapshot than this host's.
        """
        raise RuntimeUnsupported(
            f"Checkpoints of the runtime {self.name} stay on their host.", remedy=_TRAVEL_REMEDY
        )

    async def stop(self) -> None:
        """Destroy every replica and free what the runtime holds on the host. Idempotent.

        Afterwards nothing of this instance is left but its folder with lock files.

        Raises:
            ReplicaDestroyFailed: Something is left; all else was removed.
        """
        results = await asyncio.gather(*map(self.destroy, self.replicas()), return_exceptions=True)
        for failed in filter(None, results):
            raise failed
