"""What the end of a replica, as its runtime tells it, means to the pool and to clients."""

from __future__ import annotations

from osgym_host.core.reasons import Reason
from osgym_host.logs import quote_lines
from osgym_host.runtimes import base

CONSOLE_CHARS = 400
"""How much of a replica's console goes into a detail."""
ENDED_BY_SIGTERM = (base.ExitReason.SESSION_ENDED, base.ExitReason.DISPLAY_LOST)
"""Ends that a signal to all processes of a machine that shuts down looks like."""
_REASONS = {
    base.ExitReason.OUT_OF_MEMORY: Reason.OUT_OF_MEMORY,
    base.ExitReason.HOST_OUT_OF_MEMORY: Reason.HOST_OUT_OF_MEMORY,
    base.ExitReason.KILLED: Reason.KILLED,
    base.ExitReason.STOPPED: Reason.STOPPED,
    base.ExitReason.RUNTIME_LOST: Reason.RUNTIME_LOST,
    base.ExitReason.DISK_FULL: Reason.DISK,
    base.ExitReason.HOST_DISK_FULL: Reason.DISK_FULL,
    base.ExitReason.IO_ERROR: Reason.IO_ERROR,
    base.ExitReason.HUNG: Reason.GUEST_HUNG,
    base.ExitReason.GUEST_PANIC: Reason.GUEST_PANIC,
    base.ExitReason.GUEST_REBOOTED: Reason.GUEST_REBOOTED,
    base.ExitReason.EMULATOR_FAILED: Reason.EMULATOR_FAILED,
}
"""What a death means to the pool and the client; all others are `guest_dead`."""


def reason_of_exit(info: base.ExitInfo) -> tuple[Reason, str]:
    """Return the reason that the end of a replica is for pool and client, and the detail for people."""
    detail = f"{info.reason.value}: {info.detail}"
    if info.log_tail:
        detail += f"; its console ends: {quote_lines(info.log_tail, CONSOLE_CHARS)}"
    return _REASONS.get(info.reason, Reason.GUEST_DEAD), detail
