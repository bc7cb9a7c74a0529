"""What a replica uses, measured from outside. Blocking: run in a thread."""

from __future__ import annotations

from osgym_host.runtimes.base import Usage
from osgym_host.runtimes.cgroups import CgroupGroup
from osgym_host.runtimes.processes import cpu_s, pss_mib


def measure(
    group: CgroupGroup | None, pids: set[int] | None, *, deep: bool, overlay_mib: float | None
) -> Usage:
    """Measure a replica: by its control groups where they tell, else by its processes.

    Args:
        pids: Its processes; None when it is dead.
        overlay_mib: What it wrote to disk.
    """
    used_s = group.cpu_s() if group is not None else None
    if used_s is None and pids is not None:
        used_s = cpu_s(pids)
    charged_mib = group.charged_mib() if group is not None else None
    return Usage(
        pss_mib=pss_mib(pids or ()) if deep else None,
        charged_mib=0.0 if pids is None else charged_mib,
        cpu_s=used_s,
        overlay_mib=overlay_mib,
        processes=len(pids or ()),
    )
