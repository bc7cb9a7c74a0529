"""Swap space of this host, and reclaiming of memory to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from osgym_host.runtimes.page_out import page_out
from osgym_host.runtimes.replica_cgroup import CgroupGroup
from osgym_host.runtimes.values import ReclaimedMemory

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Swap:
    """Swap space of this host.

    Attributes:
        free_mib: Free space, before compression.
        compressed: True if the swap that is used first is compressed memory (zram).
        ratio: Memory that one MiB in swap occupies; 0 for swap on a disk.
    """

    total_mib: float = 0.0
    free_mib: float = 0.0
    compressed: bool = False
    ratio: float = 0.0


EXPECTED_RATIO = 0.25
"""Memory of one MiB in empty zram: idle desktops came to 0.20 with lz4."""
_FULL_ENOUGH_MIB = 64
"""Amount in swap from which the measured ratio counts."""


def read_swap(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> Swap:
    """Read the swap space of this host.

    Raises:
        OSError: The kernel does not say.
    """
    total = used = 0.0
    first: tuple[float, bool] | None = None
    stored = occupied = 0.0
    for line in (proc / "swaps").read_text().splitlines()[1:]:
        name, _, size, taken, priority, *_ = line.split()
        total, used = total + int(size) / 1024, used + int(taken) / 1024
        device = Path(name).name
        is_zram = device.startswith("zram")
        if first is None or float(priority) > first[0]:
            first = (float(priority), is_zram)
        if is_zram:
            with contextlib.suppress(OSError, ValueError):
                numbers = (sys / "block" / device / "mm_stat").read_text().split()
                stored, occupied = stored + int(numbers[0]), occupied + int(numbers[2])
        else:
            stored += int(taken) * 1024
    compressed = first is not None and first[1]
    measured = stored > _FULL_ENOUGH_MIB * _MIB
    ratio = occupied / stored if measured else EXPECTED_RATIO if compressed else 0.0
    return Swap(total, total - used, compressed, ratio)


_MAX_PASSES = 6
_IDLE_PASSES = 2
"""Number of passes without a gain after which nothing more is expected. One is not enough: the kernel skips
pages that were used since its last look, such as those of the X server's screen."""
_REST_MIB = 4.0
"""Memory below which nothing more is expected: the kernel's own, which was 2.3 MiB for an idle desktop.
A pass without a gain asks each shrinker of the kernel, and every mount has one: with 1,400 desktops such
passes and those of kswapd took a fifth of all CPU time."""
_GAIN_MIB = 1.0
_STEP_MIB = 20.0
"""Memory that is moved after a step. Where more was moved, as after a start, the kernel reclaims the rest."""


def reclaim(group: CgroupGroup, *, before_shared: Callable[[], None] | None = None) -> ReclaimedMemory | None:
    """Move the memory of a group to swap. Blocking: 100 ms for 40 MiB, 25 ms for the working set of a step.

    Args:
        before_shared: Called before the kernel reclaims what several processes have mapped, which follows a
            start. None: that stays in memory.

    Returns:
        What was moved; None if the kernel cannot do it for one group, or does not say.

    Raises:
        OSError: The kernel refused.
    """
    before_mib = group.charged_mib()
    if not group.can_reclaim or before_mib is None:
        return None
    with group.swap_allowed():
        page_out(group.pids())
        left_mib = group.charged_mib()
        if left_mib is None:
            return None
        if before_shared is not None and (before_mib - left_mib > _STEP_MIB or left_mib > _REST_MIB):
            before_shared()
            left_mib = _reclaim_rest(group)
    if left_mib is None:
        return None
    compressed_mib = (group.swapped_mib() or 0.0) * read_swap().ratio
    return ReclaimedMemory(max(0.0, before_mib - left_mib), left_mib, left_mib + compressed_mib)


def _reclaim_rest(group: CgroupGroup) -> float | None:
    """Reclaim what the processes of a group share; return what is left, None if that is unknown."""
    before_mib = group.charged_mib()
    idle_passes = 0
    for _ in range(_MAX_PASSES):
        group.reclaim()
        after_mib = group.charged_mib()
        if before_mib is None or after_mib is None:
            return None
        idle_passes = 0 if before_mib - after_mib >= _GAIN_MIB else idle_passes + 1
        before_mib = after_mib
        if idle_passes == _IDLE_PASSES or after_mib < _REST_MIB:
            break
    return before_mib
