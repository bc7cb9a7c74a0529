"""Move of the host agent into a leaf of its delegated control group of version 2.

Version 2 lets no group that has processes pass controllers on ("no internal processes", cgroups(7)). A
service that systemd delegates (`Delegate=yes`) starts in the very group whose children it wants to cap.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from osgym_host.runtimes.processes import stat_fields

LEAF = "agent"
"""Name of the group of the host agent and its helpers, beside the groups of the replicas."""
_TRIES = 10


def move_to_leaf(own: Path, wanted: frozenset[str]) -> None:
    """Move all processes of this group one group below, so that it can delegate controllers.

    Nothing is moved unless all of them descend from this process and a wanted controller exists. A process
    that cannot be moved stays, and then nothing is capped.
    """
    with contextlib.suppress(OSError):
        pids = _pids_of(own)
        there = frozenset((own / "cgroup.controllers").read_text().split())
        if not there & wanted or not all(_is_ours(pid) for pid in pids):
            return
        leaf = own / LEAF
        leaf.mkdir(exist_ok=True)
        for _ in range(_TRIES):  # a process may be started meanwhile
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    (leaf / "cgroup.procs").write_text(str(pid))
            pids = _pids_of(own)
            if not pids:
                return


def _pids_of(group: Path) -> list[int]:
    return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]


def _is_ours(pid: int) -> bool:
    """Return whether a process is this one or descends from it; also when it is gone."""
    while pid > 1 and pid != os.getpid():
        try:
            pid = int(stat_fields(pid)[1])
        except (FileNotFoundError, ProcessLookupError):
            return True
    return pid == os.getpid()
