"""What a replica uses, measured from outside. Blocking: run in a thread."""

from __future__ import annotations

from collections.abc import Collection

from osgym_host.runtimes.base import Usage
from osgym_host.runtimes.cgroups import CgroupGroup
from osgym_host.runtimes.held_files import HeldFiles, held_files
from osgym_host.runtimes.processes import cpu_s, pss_mib

_MIB = 1 << 20


def measure(
    group: CgroupGroup | None,
    pids: set[int] | None,
    *,
    deep: bool,
    overlay_mib: float | None,
    disk_devices: Collection[int] = (),
) -> Usage:
    """Measure a replica: by its control groups where they tell, else by its processes.

    Args:
        pids: Its processes; None when it is dead.
        overlay_mib: What its folders hold on disk.
        disk_devices: Where files lie that count as disk although no folder shows them.
    """
    used_s = group.cpu_s() if group is not None else None
    if used_s is None and pids is not None:
        used_s = cpu_s(pids)
    charged_mib = group.charged_mib() if group is not None else None
    held = held_files(pids, disk_devices) if deep and pids is not None else HeldFiles()
    if overlay_mib is not None:
        overlay_mib += held.deleted_bytes / _MIB
    return Usage(
        pss_mib=pss_mib(pids or ()) if deep else None,
        charged_mib=0.0 if pids is None else charged_mib,
        cpu_s=used_s,
        overlay_mib=overlay_mib,
        processes=len(pids or ()),
        written_mib=held.written_bytes / _MIB if held.written_bytes is not None else None,
        fds_in_flight=held.fds_in_flight if deep else None,
    )
