"""How a virtual machine is judged: pure. From what was seen of it to why it is, or must be, dead.

What costs nothing is listened to: QMP events and the end of the process. What costs little is looked
at once a second for all machines in one pass: the state and CPU time that `/proc/<pid>/stat` tells
(8 µs each). The guest itself is asked (`GET /v1/health`) only for a reason, since that wakes an idle
guest and makes it write to its memory: when it has computed without a pause for `busy_probe_s`
(it is awake then, and a guest that spins looks just so), and once in `idle_probe_s`, which finds what
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
from osgym_host.runtimes.qemu.launcher import ProcessEnd

_TEXT_MAX = 200


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a machine is, or must be, dead."""

    reason: ExitReason
    detail: str


def judge_event(name: str, data: Mapping[str, Any]) -> Verdict | None:
    """Say what a QMP event means for the machine; None where it means no harm.

    Events are made by QEMU, but some of their text comes from the guest: it is cut and only shown.
    """
    match name:
        case "GUEST_PANICKED":
            return Verdict(ExitReason.GUEST_PANIC, f"its kernel panicked{_panic_text(data.get('info'))}")
        case "BLOCK_IO_ERROR":
            return _judge_io_error(data)
        case "SHUTDOWN":
            return _judge_shutdown(str(data.get("reason", "")))
        case _:
            return None


def judge_status(status: str) -> Verdict | None:
    """Say what a `status` of `query-status` means; None for one in which the guest goes on.

    `paused` is for the caller to judge: it may be himself who paused it.
    """
    match status:
        case "internal-error":
            return Verdict(ExitReason.EMULATOR_FAILED, "QEMU could not go on (internal-error)")
        case "io-error":
            return Verdict(ExitReason.IO_ERROR, "it stands after an error of its disk")
        case "guest-panicked":
            return Verdict(ExitReason.GUEST_PANIC, "its kernel panicked")
        case "shutdown":
            return Verdict(ExitReason.GUEST_SHUTDOWN, "its guest switched itself off")
        case "watchdog":
            return Verdict(ExitReason.HUNG, "its watchdog fired")
        case _:
            return None


PAUSED = Verdict(ExitReason.HUNG, "its processors were paused by somebody")
STOPPED = Verdict(ExitReason.HUNG, "its process was stopped (SIGSTOP)")
MONITOR_LOST = Verdict(ExitReason.EMULATOR_FAILED, "its QMP connection broke while the process went on")


def silent(failing_s: float, error: str) -> Verdict:
    """The guest does not answer any more."""
    return Verdict(ExitReason.HUNG, f"its guest has not answered for {failing_s:.0f} s: {error[:_TEXT_MAX]}")


def judge_end(end: ProcessEnd, ram_mib: int | None) -> Verdict:
    """Say why a process ended that nobody had judged before. `ram_mib` is its memory cap."""
    if end.out_of_memory:
        return Verdict(ExitReason.OUT_OF_MEMORY, f"it used more than its cap of {ram_mib} MiB")
    if end.signal is not None:
        if end.signal == signal.SIGXFSZ:
            return Verdict(ExitReason.DISK_FULL, "it wrote more to its disk than it may")
        name = signal.strsignal(end.signal) or "unknown"
        reason = ExitReason.EMULATOR_FAILED if end.signal in _CRASHES else ExitReason.KILLED
        return Verdict(reason, f"QEMU was ended by signal {end.signal} ({name})")
    if end.exit_code is None:
        return Verdict(ExitReason.KILLED, "its process ended; nobody saw how")
    reason = ExitReason.EMULATOR_FAILED if end.exit_code else ExitReason.SESSION_ENDED
    said = f": {end.output.strip()[-_TEXT_MAX:]}" if end.exit_code and end.output.strip() else ""
    return Verdict(reason, f"QEMU ended with exit code {end.exit_code}{said}")


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


def _judge_io_error(data: Mapping[str, Any]) -> Verdict | None:
    if data.get("action") != "stop":  # reported to the guest, or ignored: it goes on
        return None
    why = str(data.get("reason", ""))[:_TEXT_MAX]
    operation = "writing to" if data.get("operation") == "write" else "reading from"
    # EFBIG is the bound of one overlay (RLIMIT_FSIZE), which QEMU counts among the other errors.
    if data.get("nospace") is True or why == os.strerror(errno.EFBIG):
        return Verdict(ExitReason.DISK_FULL, f"{operation} its disk: {why or 'no space'}")
    return Verdict(ExitReason.IO_ERROR, f"{operation} its disk: {why or 'unknown error'}")


def _judge_shutdown(reason: str) -> Verdict | None:
    match reason:
        case "guest-shutdown":
            return Verdict(ExitReason.GUEST_SHUTDOWN, "its guest switched itself off")
        case "guest-reset" | "subsystem-reset":
            return Verdict(ExitReason.GUEST_REBOOTED, "its guest restarted itself")
        case "guest-panic":
            return Verdict(ExitReason.GUEST_PANIC, "its kernel panicked")
        case "host-signal":
            return Verdict(ExitReason.KILLED, "QEMU was told to end by a signal")
        case "host-error":
            return Verdict(ExitReason.EMULATOR_FAILED, "QEMU could not go on")
        case _:  # ours (host-qmp-quit), or nothing that ends it
            return None


def _panic_text(info: object) -> str:
    kind = info.get("type") if isinstance(info, Mapping) else None
    return f" ({str(kind)[:_TEXT_MAX]})" if kind else ""


# The look at all machines, once a second ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How machines are looked at.

    Attributes:
        look_s: Between two passes over `/proc`.
        busy_share: Of one core; from here on a machine counts as one that computes without a pause.
        busy_probe_s: So long without a pause, and its guest is asked whether it is alive.
        idle_probe_s: Every guest is asked so often, spread by a quarter to either side.
        probe_timeout_s: For one answer.
        hang_s: A guest that has not answered for so long, though it had the CPU, is hung.
    """

    look_s: float = 1.0
    busy_share: float = 0.85
    busy_probe_s: float = 15.0
    idle_probe_s: float = 900.0
    probe_timeout_s: float = 5.0
    hang_s: float = 15.0


@dataclass(frozen=True, slots=True)
class Look:
    """What `/proc/<pid>/stat` said at a moment (monotonic seconds)."""

    at_s: float
    state: str
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Vitals:
    """What is remembered of one machine between two looks.

    Attributes:
        spread: 0…1, its own, so that not all machines are asked at the same time.
        alive_at_s: When its guest last answered.
        look: The last one.
        busy_since_s: Since when it computes without a pause; None while it does not.
        stopped_since_s: Since when its process is stopped.
        failing_since_s: When the first of the unanswered probes began.
        excused_s: Of the time since then, what it could not use because it did not get the CPU.
    """

    spread: float
    alive_at_s: float
    look: Look | None = None
    busy_since_s: float | None = None
    stopped_since_s: float | None = None
    failing_since_s: float | None = None
    excused_s: float = 0.0

    def seen(self, look: Look, options: WatchOptions) -> Vitals:
        """Take in another look."""
        before = self.look
        busy_since_s = self.busy_since_s
        if before is not None and look.at_s > before.at_s:
            share = (look.cpu_s - before.cpu_s) / (look.at_s - before.at_s)
            if share < options.busy_share:
                busy_since_s = None
            elif busy_since_s is None:
                busy_since_s = before.at_s
        stopped_since_s = self.stopped_since_s
        if look.state != "T":
            stopped_since_s = None
        elif stopped_since_s is None:
            stopped_since_s = look.at_s
        return replace(self, look=look, busy_since_s=busy_since_s, stopped_since_s=stopped_since_s)

    def answered(self, at_s: float) -> Vitals:
        """Its guest answered."""
        return replace(self, alive_at_s=at_s, failing_since_s=None, excused_s=0.0)

    def unanswered(self, began_s: float, starved_s: float) -> Vitals:
        """It did not, while it waited for the CPU for `starved_s` of the time."""
        since_s = began_s if self.failing_since_s is None else self.failing_since_s
        return replace(self, failing_since_s=since_s, excused_s=self.excused_s + max(0.0, starved_s))

    def is_stopped(self) -> bool:
        """Whether it was found stopped twice in a row: a debugger may stop it for a moment."""
        return (
            self.stopped_since_s is not None
            and self.look is not None
            and self.look.at_s > self.stopped_since_s
        )

    def failing_s(self, now_s: float) -> float:
        """For how long it has not answered, without the time in which it could not."""
        return 0.0 if self.failing_since_s is None else now_s - self.failing_since_s - self.excused_s

    def wants_probe(self, now_s: float, options: WatchOptions) -> bool:
        """Whether its guest is to be asked now."""
        if self.failing_since_s is not None:
            return True
        if self.busy_since_s is not None:
            return now_s - max(self.busy_since_s, self.alive_at_s) >= options.busy_probe_s
        return now_s - self.alive_at_s >= options.idle_probe_s * (0.75 + 0.5 * self.spread)


def parse_stat(text: bytes, at_s: float, ticks_per_s: int) -> Look | None:
    """Read the content of `/proc/<pid>/stat`; None when it is not whole."""
    fields = text[text.rfind(b")") + 2 :].split(None, 14)
    try:
        return Look(at_s, fields[0].decode("ascii"), (int(fields[11]) + int(fields[12])) / ticks_per_s)
    except (IndexError, ValueError):
        return None
