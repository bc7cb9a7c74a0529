"""Usage of a replica, measured from outside. Blocking: run in a thread."""

from __future__ import annotations

from osgym_host.runtimes.base import Usage
from osgym_host.runtimes.held_files import HeldFiles
from osgym_host.runtimes.processes import cpu_s, pss_mib
from osgym_host.runtimes.replica_cgroup import CgroupGroup

_MIB = 1 << 20


def measure(
    group: CgroupGroup | None,
    pids: set[int] | None,
    *,
    deep: bool,
    overlay_mib: float | None,
    held: HeldFiles | None = None,
) -> Usage:
    """Measure a replica by its control groups, or by its processes where those are missing.

    Args:
        pids: Processes of the replica; None when it is dead.
        overlay_mib: Disk space of its folders.
        held: Deleted files that its processes hold; None where they were not scanned.
    """
    used_s = group.cpu_s() if group is not None else None
    if used_s is None and pids is not None:
        used_s = cpu_s(pids)
    charged_mib = group.charged_mib() if group is not None else None
    written_mib = None
    if held is not None:
        overlay_mib = None if overlay_mib is None else overlay_mib + held.deleted_bytes / _MIB
        written_mib = None if held.written_bytes is None else held.written_bytes / _MIB
    return Usage(
        pss_mib=pss_mib(pids or ()) if deep else None,
        charged_mib=0.0 if pids is None else charged_mib,
        cpu_s=used_s,
        overlay_mib=overlay_mib,
        processes=len(pids or ()),
        written_mib=written_mib,
        fds_in_flight=held.fds_in_flight if held is not None else None,
    )
