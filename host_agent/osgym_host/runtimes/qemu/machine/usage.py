"""Usage of a virtual machine, measured from outside. Blocking: run in a thread."""

from __future__ import annotations

import os
from pathlib import Path

from osgym_host.runtimes import usage
from osgym_host.runtimes.base import Usage
from osgym_host.runtimes.held_files import devices_of, held_files
from osgym_host.runtimes.replica_cgroup import CgroupGroup


def measure_vm(group: CgroupGroup | None, pid: int | None, folder: Path, *, deep: bool) -> Usage:
    """Measure a machine.

    Args:
        pid: PID of QEMU; None when it is dead. Other processes in its groups, such as the forwarder of a
            container, count as well.
    """
    pids = None
    if pid is not None:
        pids = {pid} | (group.pids() if group is not None else set())
    return usage.measure(
        group,
        pids,
        deep=deep,
        overlay_mib=disk_mib(folder) if deep else None,
        held=held_files(pids, devices_of(str(folder))) if deep and pids is not None else None,
    )


def disk_mib(folder: Path) -> float:
    """Return the disk space of the files in a machine's folder in MiB.

    A layer that several machines share (branches, by hard links) counts for each in equal parts.
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
