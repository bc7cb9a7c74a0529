"""Decision whether the host's load kept a desktop from answering: a pure function of the kernel's counters.

The host's load can keep a guest agent waiting for a processor, a disk or memory; but so can a policy whose
programs compute, write or use memory. The CPU time and disk traffic of the desktop itself are therefore
weighed against its waits. A desktop that had the resources to answer and did not is hung, which is attributed
to its policy.
"""

from __future__ import annotations

from dataclasses import dataclass

_MIN_WITHHELD_SHARE = 0.2
"""Share of a stall that the host must have kept the guest agent waiting, for the stall to be the host's."""
_MIN_RECLAIMS_PER_S = 10.0
"""Direct reclaims per second from which the host lacks memory. Those of cgroups at their own limits are not
in the count."""
_MIN_IO_STALLED_SHARE = 0.5
"""Share of a stall in which some process of the host waited for a disk, from which the disk is busy."""
_MAX_OWN_IO_MIB_PER_S = 0.25
"""Disk traffic from which a desktop may keep the disk busy itself; an idle desktop's is far lower."""
_CAP_REACHED_SHARE = 0.8
"""Share of its CPU cap from which a desktop is taken to wait because of the cap, not of the host's load."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Counters of one period in which a desktop had not answered a call.

    Attributes:
        unwatched_s: Time in which the host agent itself did not run, so that it could not see an answer.
        starved_s: Time in which a thread of the guest agent was ready to run and got no processor.
        own_cpu_s: CPU time that the desktop's processes used; None where nothing counts it.
        cpu_lowered: True while the desktop has a lower CPU weight, since it has used up its CPU credit.
        cpu_cap: CPU cap of the desktop in cores; None without one.
        blocked_s: Time in which the guest agent waited for a disk or for memory.
        reclaims: Number of allocations on the host that had to free memory first (direct reclaims).
        io_stalled_s: Time in which some process of the host waited for a disk.
        own_io_mib: Data that the desktop's processes read from disks and wrote; None where it cannot be read.
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
    """Return whether the host's load kept the desktop from answering."""
    min_withheld_s = _MIN_WITHHELD_SHARE * stall.passed_s
    if stall.passed_s <= 0:
        return False
    return (
        stall.unwatched_s >= min_withheld_s
        or _starved_by_others(stall, min_withheld_s)
        or (stall.blocked_s >= min_withheld_s and (_host_lacks_memory(stall) or _disk_is_busy(stall)))
    )


def _starved_by_others(stall: Stall, min_withheld_s: float) -> bool:
    """Return whether the agent waited for a processor because of processes outside its desktop.

    Programs of the same desktop can make the agent wait for at most the CPU time that they use, so that time
    is subtracted from the wait.
    """
    if stall.own_cpu_s is None or stall.cpu_lowered:
        return False
    if stall.cpu_cap is not None and stall.own_cpu_s >= _CAP_REACHED_SHARE * stall.cpu_cap * stall.passed_s:
        return False
    return stall.starved_s - stall.own_cpu_s >= min_withheld_s


def _host_lacks_memory(stall: Stall) -> bool:
    return stall.reclaims >= _MIN_RECLAIMS_PER_S * stall.passed_s


def _disk_is_busy(stall: Stall) -> bool:
    if stall.own_io_mib is None or stall.own_io_mib >= _MAX_OWN_IO_MIB_PER_S * stall.passed_s:
        return False
    return stall.io_stalled_s >= _MIN_IO_STALLED_SHARE * stall.passed_s
