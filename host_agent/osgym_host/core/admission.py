"""Capacity of the host for more replicas by RAM, CPU and disk, measured where possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

MIN_SAMPLES = 3
"""Number of measured replicas below which the cap is the estimate."""


class Limit(StrEnum):
    """Resource that keeps the host from more replicas."""

    NONE = "none"
    MAX_REPLICAS = "max_replicas"
    RAM = "ram"
    CPU = "cpu"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits that the operator sets.

    Attributes:
        max_replicas: Hard bound on replicas that exist at once.
        ram_reserve_mib: Memory that is left to the rest of the host.
        ram_cap_mib: RAM bound of one replica; the estimate before there is a measurement.
        cpu_per_replica: Share of a core that one replica is counted with.
        disk_per_replica_mib: Disk space counted for a new overlay.
    """

    max_replicas: int
    ram_reserve_mib: int = 1024
    ram_cap_mib: int = 2048
    cpu_per_replica: float = 0.02
    disk_reserve_mib: int = 2048
    disk_per_replica_mib: int = 64


@dataclass(frozen=True, slots=True)
class RestingLoad:
    """Memory of replicas whose memory is in swap while nobody uses them.

    Attributes:
        each_mib: Memory that each measured one occupies at rest, its compressed pages included.
        headroom_mib: Memory that is kept for replicas that wake.
        swap_free_mib: Free swap space, before compression.
    """

    each_mib: Sequence[float]
    headroom_mib: float
    swap_free_mib: float


@dataclass(frozen=True, slots=True)
class ImageLoad:
    """Memory of the replicas of one golden image.

    Attributes:
        peaks_mib: Highest PSS seen of each replica that was measured, recent retired ones too.
        now_mib: PSS, as last measured, of the replicas that exist.
    """

    peaks_mib: Sequence[float]
    now_mib: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """Resources of the host at the last reading.

    Attributes:
        ram_available_mib: RAM that can be used without swapping (MemAvailable).
        cores: CPU cores this service may use.
        disk_free_mib: Free space where overlays are written.
        images: Memory of replicas, by golden image.
        pending: Replicas that were started but are not in `ram_available_mib` yet.
        existing: All replicas that are not gone.
        resting: Memory of replicas that rest; None where replicas do not rest.
    """

    ram_available_mib: float
    cores: int
    disk_free_mib: float
    images: Sequence[ImageLoad] = ()
    pending: int = 0
    existing: int = 0
    resting: RestingLoad | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """Number of replicas that may start now, and the limit behind it."""

    room: int
    limit: Limit
    replica_ram_mib: float


def replica_ram_estimate(samples: Sequence[float], cap_mib: int) -> float:
    """Return the RAM in MiB that one more replica will need.

    Mean plus two standard deviations of the measured ones, never more than the cap; the cap itself
    while there are fewer than `MIN_SAMPLES`.
    """
    if len(samples) < MIN_SAMPLES:
        return float(cap_mib)
    mean = sum(samples) / len(samples)
    deviation = math.sqrt(sum((s - mean) ** 2 for s in samples) / len(samples))
    return min(float(cap_mib), max(1.0, mean + 2 * deviation))


def admit(budget: Budget, load: MeasuredLoad) -> Admission:
    """Return how many replicas may be started on top of those that exist.

    Replicas that are still starting are charged in full, since the memory they will use is not
    missing yet; running ones with what they may still grow to the estimate of their image. One more may be of
    any image, so it is counted with the largest estimate; an image with few measurements has that one too.
    """
    measured = [image for image in load.images if len(image.peaks_mib) >= MIN_SAMPLES]
    estimates = [replica_ram_estimate(image.peaks_mib, budget.ram_cap_mib) for image in measured]
    each = max(estimates, default=float(budget.ram_cap_mib))
    grown = zip(measured, estimates, strict=True)
    growth = sum(max(0.0, estimate - now) for image, estimate in grown for now in image.now_mib)
    if measured:
        others = [image for image in load.images if len(image.peaks_mib) < MIN_SAMPLES]
        growth += sum(max(0.0, each - now) for image in others for now in image.now_mib)
    by_ram = _room_by_ram(budget, load, each, growth)
    by_cpu = load.cores / budget.cpu_per_replica - load.existing if budget.cpu_per_replica > 0 else math.inf
    by_disk = (load.disk_free_mib - budget.disk_reserve_mib) / budget.disk_per_replica_mib - load.pending
    rooms: tuple[tuple[Limit, float], ...] = (
        (Limit.MAX_REPLICAS, budget.max_replicas - load.existing),
        (Limit.RAM, by_ram),
        (Limit.CPU, by_cpu),
        (Limit.DISK, by_disk),
    )
    limit, room = min(rooms, key=lambda pair: pair[1])
    return Admission(max(0, math.floor(room)), limit, each)


def _room_by_ram(budget: Budget, load: MeasuredLoad, each: float, growth: float) -> float:
    """Return the room by memory, for replicas that need `each` MiB while they are awake.

    `growth` is the memory in MiB that existing replicas may still take.

    Where replicas rest, one more needs its memory at rest, and space for the rest of it in swap, since every
    page of it may be moved there. Those that start need all of their memory until they rest.
    """
    free = load.ram_available_mib - budget.ram_reserve_mib
    resting = load.resting
    if resting is None or len(resting.each_mib) < MIN_SAMPLES:
        return free / each - growth / each - load.pending
    at_rest = min(each, replica_ram_estimate(resting.each_mib, budget.ram_cap_mib))
    room = (free - resting.headroom_mib - load.pending * each) / at_rest
    return min(room, resting.swap_free_mib / each - load.pending)
