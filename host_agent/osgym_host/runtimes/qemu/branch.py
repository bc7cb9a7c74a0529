"""Branching a running virtual machine: take its RAM and disk at one moment, give them to others.

The runtime owns the machines; this module is told what it needs of one (`BranchSource`,
`BranchChild`) and gives back a `BranchPoint`, the handle of the runtime contract.

    point = await keeper.take(source, keep=False)  # the parent stands still for milliseconds
    planted = await keeper.plant(point, child)     # a parked process: RAM, disk and device state are in
    await child.machine.cont()                     # the runtime goes on as for any clone: identity, READY
    await keeper.release(point)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from osgym_host.runtimes.base import BranchPoint
from osgym_host.runtimes.qemu.machine import Machine
from osgym_host.runtimes.qemu.ram_file import RamIdentity


@dataclass(frozen=True, slots=True)
class BranchSource:
    """What is needed of a running machine to branch it.

    Attributes:
        token: What its guest agent demands now; a child's first identity call needs it.
        folder: Its own folder: the files of its disk are in it, new ones are put there (`top-*.qcow2`).
        overlay: The overlay in that folder that it was started with.
        base_disk: The snapshot's frozen disk, below all its layers.
        vga: It has a VGA screen, whose memory is not part of the RAM file.
    """

    replica_id: str
    generation: int
    image_digest: str
    token: str | None
    machine: Machine
    ram: RamIdentity
    folder: Path
    overlay: Path
    base_disk: Path
    vga: bool = False


@dataclass(frozen=True, slots=True)
class BranchChild:
    """What is needed of a process that waits with `-incoming defer` to make it a child.

    Attributes:
        folder: Its own folder: links to the frozen layers it needs are put there (`below-*.qcow2`).
        overlay: Its empty overlay in that folder; node `d0`, with or without a backing file yet.
        base_disk: The snapshot's frozen disk.
    """

    machine: Machine
    ram: RamIdentity
    folder: Path
    overlay: Path
    base_disk: Path
    vga: bool = False


@dataclass(frozen=True, slots=True)
class Planted:
    """What the runtime needs to go on.

    Attributes:
        token: What the guest agent demands until its new identity is acknowledged.
    """

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
        """Put the point's RAM, disk and device state into a waiting process; it stays paused.

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
