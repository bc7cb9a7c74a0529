"""Map from how a runtime says that a replica ended to the reason that pool and clients are told."""

from __future__ import annotations

from osgym_host.core.reasons import Reason
from osgym_host.logs import quote_lines
from osgym_host.runtimes import base

CONSOLE_CHARS = 400
"""Number of characters from the end of a replica's console that a detail quotes."""
ENDED_BY_SIGTERM = (base.ExitReason.SESSION_ENDED, base.ExitReason.DISPLAY_LOST)
"""Exit reasons that a replica reports when the whole machine shuts down and signals all processes."""
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
"""Reason by exit reason; for those not listed it is `guest_dead`."""


def reason_of_exit(info: base.ExitInfo) -> tuple[Reason, str]:
    """Return the reason of a replica's end for pool and clients, and a detail for people."""
    detail = f"{info.reason.value}: {info.detail}"
    if info.log_tail:
        detail += f"; its console ends: {quote_lines(info.log_tail, CONSOLE_CHARS)}"
    return _REASONS.get(info.reason, Reason.GUEST_DEAD), detail
