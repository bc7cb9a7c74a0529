"""What a virtual machine uses, measured from outside. Blocking: run in a thread."""

from __future__ import annotations

import os
from pathlib import Path

from osgym_host.runtimes.base import Usage
from osgym_host.runtimes.cgroups import CgroupGroup
from osgym_host.runtimes.processes import cpu_s, pss_mib


def measure(group: CgroupGroup | None, pid: int | None, folder: Path, *, deep: bool) -> Usage:
    """Measure a machine: a control group tells about CPU time and charges, the process about memory.

    Args:
        pid: QEMU's process; None when it is dead. Others in its groups, such as what passes connections
            on in a container, count as well.
        folder: Its folder with the files of its disk.
    """
    used_s = group.cpu_s() if group is not None else None
    if used_s is None and pid is not None:
        used_s = cpu_s([pid])
    charged_mib = group.charged_mib() if group is not None else None
    pids = set[int]() if pid is None else {pid} | (group.pids() if group is not None else set())
    pss = pss_mib(pids) if deep else None
    return Usage(
        pss_mib=pss,
        charged_mib=0.0 if pid is None else charged_mib,
        cpu_s=used_s,
        overlay_mib=disk_mib(folder) if deep else None,
        processes=len(pids),
    )


def disk_mib(folder: Path) -> float:
    """What the files in a machine's folder take of the disk.

    A layer that several machines share (branches, by hard links) counts to each with its part.
    """
    total = 0.0
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return 0.0
    for entry in entries:
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        total += found.st_blocks * 512 / max(1, found.st_nlink)
    return total / (1 << 20)
