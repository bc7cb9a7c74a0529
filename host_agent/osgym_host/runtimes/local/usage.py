"""Measure what a replica uses, from outside. Blocking: run in a thread."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from osgym_host.runtimes.base import Usage
from osgym_host.runtimes.cgroups import CgroupGroup

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


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


def pss_mib(pids: Iterable[int]) -> float:
    """Sum of the proportional set sizes; processes that end meanwhile count nothing."""
    total_kib = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        for line in text.splitlines():
            if line.startswith("Pss:"):
                total_kib += int(line.split()[1])
                break
    return total_kib / 1024


def cpu_s(pids: Iterable[int]) -> float:
    """CPU time of processes and of their children that were waited for."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / _TICKS_PER_S


def start_time_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot: with the PID its identity. None if gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return None


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
