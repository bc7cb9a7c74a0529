"""Measure what a replica uses, from outside. Blocking: run in a thread."""

from __future__ import annotations

from pathlib import Path

from osgym_host.runtimes.base import Usage
from osgym_host.runtimes.cgroups import CgroupGroup
from osgym_host.runtimes.processes import cpu_s, pss_mib


def processes_of(init_pid: int) -> set[int]:
    """PIDs of a process and all its descendants; for a PID namespace's first, that is everybody."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry.name))
    if not Path(f"/proc/{init_pid}").exists():
        return set()
    found = {init_pid}
    todo = [init_pid]
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in found:
                found.add(child)
                todo.append(child)
    return found


def measure(group: CgroupGroup, pid: int | None, deep: bool, overlay_mib: float | None) -> Usage:
    """What a replica uses, from its control groups where they tell, else from its processes.

    Args:
        pid: Its first process; None when it is dead.
    """
    pids: set[int] = set()
    if pid is not None:
        pids = group.pids() or processes_of(pid)
    used_cpu_s = group.cpu_s()
    if used_cpu_s is None and pid is not None:
        used_cpu_s = cpu_s(pids)
    return Usage(
        pss_mib=pss_mib(pids) if deep else None,
        charged_mib=0.0 if pid is None else group.charged_mib(),
        cpu_s=used_cpu_s,
        overlay_mib=overlay_mib,
        processes=len(pids),
    )
