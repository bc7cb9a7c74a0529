"""Whether the host kept a desktop from answering: one pure function of what the kernel counts outside of it.

A desktop that could have answered and did not is hung, which is its policy's doing. One that got no
processor, or waited for a disk or for memory, may be the host's: but a policy can compute, write and use
memory too, and so make its own agent wait. What the desktop itself used is therefore held against it.
"""

from __future__ import annotations

from dataclasses import dataclass

_LEAST_SHARE = 0.2
"""Of the time without an answer, what the host must have kept from the desktop."""
_LEAST_RECLAIMS_PER_S = 10.0
"""Allocations of the whole host, not of one with a cap, that had to free memory first."""
_LEAST_IO_SHARE = 0.5
"""Of the time, in which some process of the host waited for a disk."""
_MOST_OWN_IO_MIB_PER_S = 0.25
"""What an idle desktop stays far below, and nobody who keeps a disk busy does."""
_OF_CAP = 0.8
"""From this part of its own CPU cap on, a desktop waits because of the cap."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A time in which a desktop owed an answer.

    Attributes:
        passed_s: How long it was.
        unwatched_s: Of it, how long the host agent itself did not run.
        starved_s: How long a thread of the guest agent was ready to run and got no processor.
        own_cpu_s: What the desktop's processes computed meanwhile; None where nothing counts it.
        cpu_lowered: It has used up its credit of CPU time, so that others come first.
        cpu_cap: Its own cap, in cores; None without one.
        blocked_s: How long the guest agent waited for a disk or for memory.
        reclaims: Allocations of the host that had to free memory first.
        io_stalled_s: How long some process of the host waited for a disk.
        own_io_mib: What the desktop's processes read from disks and wrote; None where that cannot be read.
    """

    passed_s: float
    unwatched_s: float = 0.0
    starved_s: float = 0.0
    own_cpu_s: float | None = None
    cpu_lowered: bool = False
    cpu_cap: float | None = None
    blocked_s: float = 0.0
    reclaims: int = 0
    io_stalled_s: float = 0.0
    own_io_mib: float | None = None


def is_of_the_host(stall: Stall) -> bool:
    """Return whether the host kept the desktop from answering."""
    least_s = _LEAST_SHARE * stall.passed_s
    if stall.passed_s <= 0:
        return False
    return (
        stall.unwatched_s >= least_s
        or _starved_by_others(stall, least_s)
        or (stall.blocked_s >= least_s and (_lacks_memory(stall) or _disk_is_busy(stall)))
    )


def _starved_by_others(stall: Stall, least_s: float) -> bool:
    """Who waits for a processor behind programs of the same desktop waits no longer than those compute."""
    if stall.own_cpu_s is None or stall.cpu_lowered:
        return False
    if stall.cpu_cap is not None and stall.own_cpu_s >= _OF_CAP * stall.cpu_cap * stall.passed_s:
        return False
    return stall.starved_s - stall.own_cpu_s >= least_s


def _lacks_memory(stall: Stall) -> bool:
    """A desktop at its own cap frees its own memory, and that is not counted here."""
    return stall.reclaims >= _LEAST_RECLAIMS_PER_S * stall.passed_s


def _disk_is_busy(stall: Stall) -> bool:
    if stall.own_io_mib is None or stall.own_io_mib >= _MOST_OWN_IO_MIB_PER_S * stall.passed_s:
        return False
    return stall.io_stalled_s >= _LEAST_IO_SHARE * stall.passed_s
