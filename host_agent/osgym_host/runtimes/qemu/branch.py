"""Branching a running virtual machine: take its RAM and disk at one moment, give them to others.

The runtime owns the machines; this module is told what it needs of one (`BranchSource`,
`BranchChild`) and gives back a `BranchPoint`, the handle of the runtime contract.

    point = await keeper.take(source, keep=False)        # the parent stands still for milliseconds
    planted = await keeper.plant(point, child)           # a parked process: RAM and disk are in place
    # the runtime goes on as for any clone: device state by `getfd`, `migrate-incoming`, `cont`, identity
    await keeper.release(point)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from osgym_host.runtimes.base import BranchPoint
from osgym_host.runtimes.qemu.ram_delta import RamFile


class Monitor(Protocol):
    """What is needed of a QMP connection."""

    async def execute(
        self, command: str, arguments: Mapping[str, object] | None = None, *, timeout_s: float = 10.0
    ) -> Any:
        """Carry out one command and return its answer; commands sent at once are done in order."""
        ...


@dataclass(frozen=True, slots=True)
class BranchSource:
    """What is needed of a running machine to branch it.

    Attributes:
        token: What its guest agent demands now; a child's first identity call needs it.
        disk_node: Name of the format node at the top of its disk as it was started. Later tops are
            found by asking QEMU, so nothing of a branch needs to be recorded.
        folder: Its own folder; new overlays go there, and with it they go away.
        base_disk: The snapshot's frozen disk, the bottom of its chain.
    """

    replica_id: str
    generation: int
    image_digest: str
    token: str | None
    pid: int
    ram: RamFile
    monitor: Monitor
    disk_node: str
    folder: Path
    base_disk: Path


@dataclass(frozen=True, slots=True)
class BranchChild:
    """What is needed of a process that waits with `-incoming defer` to make it a child.

    Attributes:
        disk_node: Name of its (still empty) overlay's format node.
        base_node: Name of the format node of the snapshot's frozen disk below it.
        folder: Its own folder; links to the frozen layers it needs go there.
    """

    pid: int
    ram: RamFile
    monitor: Monitor
    disk_node: str
    base_node: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Planted:
    """What the runtime needs to go on.

    Attributes:
        device_state: The state to load by `migrate-incoming`; good until the point is released.
        token: What the guest agent demands until its new identity is acknowledged.
    """

    device_state: Path
    token: str | None


class BranchKeeper:
    """The branch points of one instance. Every method may be called concurrently."""

    def __init__(self, *, run_folder: Path, data_dir: Path, max_layers: int = 8) -> None:
        """Args: run_folder: for temporary points (`run/<instance>/points`); data_dir: for kept ones."""
        raise NotImplementedError

    @property
    def memory_mib(self) -> float:
        """What the temporary points hold in memory now."""
        raise NotImplementedError

    async def start(self) -> tuple[BranchPoint, ...]:
        """Remove what a killed predecessor left and return the kept points on disk."""
        raise NotImplementedError

    async def take(self, source: BranchSource, *, keep: bool) -> BranchPoint:
        """Take a point; the machine stands still for milliseconds and goes on whatever happens.

        Raises:
            PointFailed: It could not be taken; nothing of it is left, the machine runs.
        """
        raise NotImplementedError

    async def plant(self, point: BranchPoint, child: BranchChild) -> Planted:
        """Put the point's RAM and disk into a waiting process.

        Raises:
            PointNotFound: It was released.
            PointFailed: It could not be done; the process must be killed.
        """
        raise NotImplementedError

    async def release(self, point: BranchPoint) -> None:
        """Let go of a point and remove its files. Idempotent. Waits for plantings under way."""
        raise NotImplementedError

    async def export(self, point: BranchPoint, target: Path) -> None:
        """Write a kept point as one file."""
        raise NotImplementedError

    async def import_(self, source: Path) -> BranchPoint:
        """Take in a kept point of another host; the file is hostile input."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Release the temporary points."""
        raise NotImplementedError
