"""How the end, the events and the checks of a virtual machine are judged."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.runtimes.base import ExitReason
from osgym_host.runtimes.replica_cgroup import MemoryEnd
from osgym_qemu.health import rules
from osgym_qemu.health.rules import HealthOptions, Liveness, ProcStat
from osgym_qemu.machine.launcher import ProcessEnd

OPTIONS = HealthOptions()


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("GUEST_PANICKED", {"action": "pause", "info": {"type": "hyper-v"}}, ExitReason.GUEST_PANIC),
        ("SHUTDOWN", {"guest": True, "reason": "guest-reset"}, ExitReason.GUEST_REBOOTED),
        ("SHUTDOWN", {"guest": True, "reason": "guest-shutdown"}, ExitReason.GUEST_SHUTDOWN),
        ("SHUTDOWN", {"guest": False, "reason": "host-signal"}, ExitReason.KILLED),
        ("SHUTDOWN", {"guest": False, "reason": "host-qmp-quit"}, None),
        (
            "BLOCK_IO_ERROR",
            {"action": "stop", "operation": "write", "nospace": True},
            ExitReason.HOST_DISK_FULL,
        ),
        (
            "BLOCK_IO_ERROR",
            {"action": "stop", "operation": "write", "nospace": False, "reason": "File too large"},
            ExitReason.DISK_FULL,
        ),
        (
            "BLOCK_IO_ERROR",
            {"action": "stop", "operation": "read", "nospace": False, "reason": "Input/output error"},
            ExitReason.IO_ERROR,
        ),
        ("BLOCK_IO_ERROR", {"action": "report", "operation": "read"}, None),
        ("RTC_CHANGE", {"offset": 3}, None),
    ],
)
def test_events_that_end_a_machine(name: str, data: dict[str, Any], reason: ExitReason | None) -> None:
    """Each kind of death that QEMU reports has its own reason; the rest is no news."""
    cause = rules.cause_of_event(name, data)
    assert (cause.reason if cause else None) is reason


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (ProcessEnd(signal=signal.SIGKILL), ExitReason.KILLED),
        (ProcessEnd(signal=signal.SIGKILL, memory=MemoryEnd.CAP), ExitReason.OUT_OF_MEMORY),
        (ProcessEnd(signal=signal.SIGKILL, memory=MemoryEnd.HOST), ExitReason.HOST_OUT_OF_MEMORY),
        (ProcessEnd(signal=signal.SIGTERM), ExitReason.KILLED),
        (ProcessEnd(signal=signal.SIGSEGV), ExitReason.EMULATOR_FAILED),
        (ProcessEnd(signal=signal.SIGXFSZ), ExitReason.DISK_FULL),
        (ProcessEnd(exit_code=1, output="qemu: no"), ExitReason.EMULATOR_FAILED),
        (ProcessEnd(exit_code=0), ExitReason.SESSION_ENDED),
        (ProcessEnd(), ExitReason.KILLED),
    ],
)
def test_how_a_process_ended(end: ProcessEnd, reason: ExitReason) -> None:
    """A kill, a crash, its memory cap and its disk's bound are told apart."""
    assert rules.cause_of_end(end, 64).reason is reason


@given(st.text(), st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.booleans(), st.none())))
def test_any_event_is_judged(name: str, data: dict[str, Any]) -> None:
    """Whatever comes, nothing is raised, and what is shown is short."""
    for known in (name, "GUEST_PANICKED", "SHUTDOWN", "BLOCK_IO_ERROR"):
        cause = rules.cause_of_event(known, data)
        assert cause is None or len(cause.detail) < 300


def test_statuses() -> None:
    """Only those in which the guest does not go on by itself are a cause of death."""
    assert rules.cause_of_status("running") is None
    assert rules.cause_of_status("paused") is None
    found = rules.cause_of_status("internal-error")
    assert found is not None and found.reason is ExitReason.EMULATOR_FAILED


# Looks -------------------------------------------------------------------------------------------


def readings(shares: list[float], state: str = "S") -> Liveness:
    """Liveness after a reading per second of a machine that used such shares of a core."""
    liveness, cpu_s = Liveness(0.5, 0.0), 0.0
    for second, share in enumerate([0.0, *shares]):
        cpu_s += share
        liveness = liveness.updated(ProcStat(float(second), state, cpu_s), OPTIONS)
    return liveness


def test_an_idle_guest_is_left_alone() -> None:
    """It is asked once in a quarter of an hour, at its own time."""
    liveness = readings([0.0005] * 60)
    assert not liveness.needs_probe(60, OPTIONS)
    assert not liveness.needs_probe(899, OPTIONS)
    assert liveness.needs_probe(900, OPTIONS)
    early, late = Liveness(0.0, 0.0), Liveness(1.0, 0.0)
    assert early.needs_probe(700, OPTIONS) and not late.needs_probe(1100, OPTIONS)


def test_a_guest_that_computes_without_pause_is_asked() -> None:
    """After 15 s, again 15 s after it answered, and not when it paused in between."""
    assert not readings([1.0] * 14).needs_probe(14, OPTIONS)
    spinning = readings([1.0] * 15)
    assert spinning.needs_probe(15, OPTIONS)
    assert not spinning.answered(15.5).needs_probe(20, OPTIONS)
    assert spinning.answered(15.5).needs_probe(31, OPTIONS)
    assert not readings([1.0] * 10 + [0.2] + [1.0] * 10).needs_probe(21, OPTIONS)


def test_a_silent_guest_is_given_time_unless_the_host_kept_it_from_running() -> None:
    """Its time counts from the first unanswered probe, less what it waited for the CPU."""
    liveness = readings([1.0] * 15).unanswered(15, 0.0).unanswered(20, 0.0)
    assert liveness.needs_probe(25, OPTIONS)
    assert liveness.failing_s(31) == pytest.approx(16)
    starved = readings([1.0] * 15).unanswered(15, 4.5).unanswered(20, 4.5)
    assert starved.failing_s(31) == pytest.approx(7)
    assert starved.answered(31).failing_s(31) == 0


def test_a_stopped_process_is_seen_twice_before_it_counts() -> None:
    """One reading may have met a debugger."""
    assert not readings([], "T").is_stopped()
    assert readings([0.0], "T").is_stopped()
    assert not readings([0.0], "t").is_stopped()


def test_what_the_kernel_says_of_a_process_is_read() -> None:
    """Also when its name has brackets and spaces in it."""
    own = rules.parse_stat(Path("/proc/self/stat").read_bytes(), 1.0, os.sysconf("SC_CLK_TCK"))
    assert own is not None and own.state == "R" and own.cpu_s > 0
    odd = b"12 (a) b (x)) T 1 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0"
    assert rules.parse_stat(odd, 2.0, 100) == ProcStat(2.0, "T", 3.0)
    assert rules.parse_stat(b"", 2.0, 100) is None
