"""Rules of health: from observations of a virtual machine to the cause of its death. Pure.

What costs nothing is listened to: QMP events and the end of the process. What costs little is looked
at once a second for all machines in one pass: the state and CPU time that `/proc/<pid>/stat` tells
(8 µs each). The guest itself is asked (`GET /v1/health`) only for a reason, since that wakes an idle
guest and makes it write to its memory: when it has computed without a pause for `busy_probe_s`
(it is awake then, and a guest that spins checks just so), and once in `idle_probe_s`, which finds what
neither CPU time nor calls of a client tell: a guest agent that is gone from a replica nobody uses.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from osgym_host.runtimes.base import ExitReason
from osgym_host.runtimes.replica_cgroup import MemoryEnd
from osgym_qemu.machine.launcher import ProcessEnd

_TEXT_MAX = 200


@dataclass(frozen=True, slots=True)
class DeathCause:
    reason: ExitReason
    detail: str


def cause_of_event(name: str, data: Mapping[str, Any]) -> DeathCause | None:
    """Return the cause that a QMP event shows; None for a harmless one.

    Events are made by QEMU, but some of their text comes from the guest: it is cut and only shown.
    """
    match name:
        case "GUEST_PANICKED":
            return DeathCause(ExitReason.GUEST_PANIC, f"its kernel panicked{_panic_text(data.get('info'))}")
        case "BLOCK_IO_ERROR":
            return _cause_of_io_error(data)
        case "SHUTDOWN":
            return _CAUSES_OF_SHUTDOWN.get(str(data.get("reason", "")))
        case _:
            return None


def cause_of_status(status: str) -> DeathCause | None:
    """Return the cause that a `status` of `query-status` shows; None for one in which the guest goes on.

    The caller judges `paused`, since the host itself may have paused it.
    """
    return _CAUSES_OF_STATUS.get(status)


_REBOOTED = DeathCause(ExitReason.GUEST_REBOOTED, "its guest restarted itself")
_CAUSES_OF_STATUS = {
    "internal-error": DeathCause(ExitReason.EMULATOR_FAILED, "QEMU stopped with an internal error"),
    "io-error": DeathCause(ExitReason.IO_ERROR, "it is paused after an error of its disk"),
    "guest-panicked": DeathCause(ExitReason.GUEST_PANIC, "its kernel panicked"),
    "shutdown": DeathCause(ExitReason.GUEST_SHUTDOWN, "its guest shut itself down"),
    "watchdog": DeathCause(ExitReason.HUNG, "its watchdog fired"),
}
_CAUSES_OF_SHUTDOWN = {
    "guest-shutdown": DeathCause(ExitReason.GUEST_SHUTDOWN, "its guest shut itself down"),
    "guest-reset": _REBOOTED,
    "subsystem-reset": _REBOOTED,
    "guest-panic": DeathCause(ExitReason.GUEST_PANIC, "its kernel panicked"),
    "host-signal": DeathCause(ExitReason.KILLED, "QEMU was told to end by a signal"),
    "host-error": DeathCause(ExitReason.EMULATOR_FAILED, "QEMU stopped with an internal error"),
}
"""Causes by the reason of a `SHUTDOWN`; other reasons are the host's (`host-qmp-quit`), or end nothing."""
PAUSED = DeathCause(ExitReason.STOPPED, "its virtual CPUs were paused from outside")
STOPPED = DeathCause(ExitReason.STOPPED, "its process was stopped (SIGSTOP)")
MONITOR_LOST = DeathCause(ExitReason.EMULATOR_FAILED, "its QMP connection broke while the process went on")


def silent(failing_s: float, error: str) -> DeathCause:
    """Return the cause of a guest that does not answer any more."""
    return DeathCause(
        ExitReason.HUNG, f"its guest has not answered for {failing_s:.0f} s: {error[:_TEXT_MAX]}"
    )


def cause_of_end(end: ProcessEnd, ram_mib: int | None) -> DeathCause:
    """Return the cause of a process's end that no rule had judged before. `ram_mib` is its memory cap."""
    if end.memory is MemoryEnd.CAP:
        return DeathCause(ExitReason.OUT_OF_MEMORY, f"it used more than its cap of {ram_mib} MiB")
    if end.memory is MemoryEnd.HOST:
        return DeathCause(ExitReason.HOST_OUT_OF_MEMORY, "the host had no memory left")
    if end.signal is not None:
        if end.signal == signal.SIGXFSZ:
            return DeathCause(ExitReason.DISK_FULL, "it exceeded its cap of disk space (replica_disk_mib)")
        name = signal.strsignal(end.signal) or "unknown"
        reason = ExitReason.EMULATOR_FAILED if end.signal in _CRASHES else ExitReason.KILLED
        return DeathCause(reason, f"QEMU was ended by signal {end.signal} ({name})")
    if end.exit_code is None:
        return DeathCause(ExitReason.KILLED, "its process ended in an unknown way")
    reason = ExitReason.EMULATOR_FAILED if end.exit_code else ExitReason.SESSION_ENDED
    said = f": {end.output.strip()[-_TEXT_MAX:]}" if end.exit_code and end.output.strip() else ""
    return DeathCause(reason, f"QEMU ended with exit code {end.exit_code}{said}")


_CRASHES = frozenset(
    (
        signal.SIGSEGV,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGILL,
        signal.SIGFPE,
        signal.SIGSYS,
        signal.SIGTRAP,
    )
)


def _cause_of_io_error(data: Mapping[str, Any]) -> DeathCause | None:
    if data.get("action") != "stop":  # reported to the guest, or ignored: it goes on
        return None
    why = str(data.get("reason", ""))[:_TEXT_MAX]
    operation = "writing to" if data.get("operation") == "write" else "reading from"
    # EFBIG is the bound of one overlay (RLIMIT_FSIZE), which QEMU counts among the other errors.
    if why == os.strerror(errno.EFBIG):
        return DeathCause(ExitReason.DISK_FULL, f"{operation} its disk: {why}")
    if data.get("nospace") is True:
        return DeathCause(ExitReason.HOST_DISK_FULL, f"{operation} its disk: {why or 'no space'}")
    return DeathCause(ExitReason.IO_ERROR, f"{operation} its disk: {why or 'unknown error'}")


def _panic_text(info: object) -> str:
    kind = info.get("type") if isinstance(info, Mapping) else None
    return f" ({str(kind)[:_TEXT_MAX]})" if kind else ""


# The check of all machines, once a second --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HealthOptions:
    """Options of the health checks.

    Attributes:
        interval_s: Time between two passes over `/proc`.
        busy_share: Share of one core from which a machine counts as computing without a pause.
        busy_probe_s: Time of computing without a pause after which its guest is probed.
        idle_probe_s: Time between probes of every guest, spread by a quarter to either side.
        hang_s: Time without an answer, though it had the CPU, after which a guest is hung.
    """

    interval_s: float = 1.0
    busy_share: float = 0.85
    busy_probe_s: float = 15.0
    idle_probe_s: float = 900.0
    probe_timeout_s: float = 5.0
    hang_s: float = 15.0


@dataclass(frozen=True, slots=True)
class ProcStat:
    """Content of `/proc/<pid>/stat` at a time (monotonic seconds)."""

    at_s: float
    state: str
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Liveness:
    """State of one machine between two checks.

    Attributes:
        spread: Random number 0…1, so that not all machines are probed at the same time.
        alive_at_s: Time of the last answer of its guest.
        busy_since_s: Begin of computing without a pause; None while it pauses.
        stopped_since_s: Time at which its process was found stopped; None while it runs.
        failing_since_s: Begin of the first unanswered probe; None while it answers.
        starved_s: Time since then in which it waited for the CPU.
    """

    spread: float
    alive_at_s: float
    stat: ProcStat | None = None
    busy_since_s: float | None = None
    stopped_since_s: float | None = None
    failing_since_s: float | None = None
    starved_s: float = 0.0

    def updated(self, stat: ProcStat, options: HealthOptions) -> Liveness:
        before = self.stat
        busy_since_s = self.busy_since_s
        if before is not None and stat.at_s > before.at_s:
            share = (stat.cpu_s - before.cpu_s) / (stat.at_s - before.at_s)
            if share < options.busy_share:
                busy_since_s = None
            elif busy_since_s is None:
                busy_since_s = before.at_s
        stopped_since_s = self.stopped_since_s
        if stat.state != "T":
            stopped_since_s = None
        elif stopped_since_s is None:
            stopped_since_s = stat.at_s
        return replace(self, stat=stat, busy_since_s=busy_since_s, stopped_since_s=stopped_since_s)

    def answered(self, at_s: float) -> Liveness:
        return replace(self, alive_at_s=at_s, failing_since_s=None, starved_s=0.0)

    def unanswered(self, began_s: float, starved_s: float) -> Liveness:
        """Record a probe without an answer, during which it waited for the CPU for `starved_s`."""
        since_s = began_s if self.failing_since_s is None else self.failing_since_s
        return replace(self, failing_since_s=since_s, starved_s=self.starved_s + max(0.0, starved_s))

    def is_stopped(self) -> bool:
        """Return whether it was found stopped twice in a row: a debugger may stop it for a moment."""
        return (
            self.stopped_since_s is not None
            and self.stat is not None
            and self.stat.at_s > self.stopped_since_s
        )

    def failing_s(self, now_s: float) -> float:
        """Return the time without an answer, minus the time in which it waited for the CPU."""
        return 0.0 if self.failing_since_s is None else now_s - self.failing_since_s - self.starved_s

    def needs_probe(self, now_s: float, options: HealthOptions) -> bool:
        if self.failing_since_s is not None:
            return True
        if self.busy_since_s is not None:
            return now_s - max(self.busy_since_s, self.alive_at_s) >= options.busy_probe_s
        return now_s - self.alive_at_s >= options.idle_probe_s * (0.75 + 0.5 * self.spread)


def parse_stat(text: bytes, at_s: float, ticks_per_s: int) -> ProcStat | None:
    """Parse the content of `/proc/<pid>/stat`; None when it is incomplete."""
    fields = text[text.rfind(b")") + 2 :].split(None, 14)
    try:
        return ProcStat(at_s, fields[0].decode("ascii"), (int(fields[11]) + int(fields[12])) / ticks_per_s)
    except (IndexError, ValueError):
        return None
