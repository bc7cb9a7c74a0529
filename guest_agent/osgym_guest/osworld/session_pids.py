"""PIDs of the desktop's programs, where these run in a PID namespace below ours.

The X server reports its clients in our numbers. Programs report themselves (`_NET_WM_PID`, the accessibility
bus) in theirs.
"""

from __future__ import annotations

import os
from pathlib import Path

PROGRAMS_BELOW = "OSGYM_PROGRAMS_BELOW"
"""Environment variable of a helper that runs beside the agent, above the desktop's programs."""
SESSION_LEVEL = 2
"""Number of namespaces from ours to that of the programs, theirs included; the session bus's lies between."""


def session_pid(pid: int | None, *, below: bool | None = None) -> int | None:
    """Return the PID that a process of ours has among the desktop's programs.

    Args:
        pid: PID in our namespace.
        below: Programs run in a namespace below ours; by default as the environment says.

    Returns:
        None for a process that is gone, or is none of theirs.
    """
    if below is None:
        below = PROGRAMS_BELOW in os.environ
    if not pid or not below:
        return pid
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    numbers = next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [])
    return int(numbers[SESSION_LEVEL]) if len(numbers) > SESSION_LEVEL else None
