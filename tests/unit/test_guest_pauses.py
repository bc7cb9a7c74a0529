"""Pauses of the desktop's clocks, in programs of this machine that are stopped meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.test_guest_view import Desktop, compiled  # noqa: F401  # a fixture

from osgym_guest.clock_pauses import ClockPauses

PAUSE_S = 1.0
WAIT_S = 0.4
TIMES = "import time; print(*(time.clock_gettime(c) for c in (0, 1, 4, 5, 6, 7)), flush=True)"
ASKED = f"import sys\nfor line in sys.stdin:\n {TIMES}"
PRELUDE = f"""
import ctypes, select, signal, threading, time
libc = ctypes.CDLL(None, use_errno=True)
class Timespec(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
def soon(clock):
    at = time.clock_gettime_ns(clock) + int({WAIT_S} * 1e9)
    return ctypes.byref(Timespec(at // 10**9, at % 10**9))
room = [ctypes.create_string_buffer(128) for _ in range(3)]
libc.sem_init(room[0], 0, 0)
libc.pthread_mutex_lock(room[1])
length = Timespec(0, int({WAIT_S} * 1e9))
def cond(clock):
    at = soon(clock)
    while libc.pthread_cond_clockwait(room[2], room[1], clock, at) == 0:
        pass
def futex():
    word, began = ctypes.c_int(0), time.monotonic()
    while time.monotonic() - began < {WAIT_S}:
        left = int(({WAIT_S} - time.monotonic() + began) * 1e9) + 1
        libc.syscall(202, ctypes.byref(word), 128, 0, ctypes.byref(Timespec(0, left)), None, 0)
def futex_until():
    word, at = ctypes.c_int(0), soon(1)
    while libc.syscall(202, ctypes.byref(word), 137, 0, at, None, -1) == 0:
        pass
def alarm(start):
    came = []
    signal.signal(signal.SIGALRM, lambda *_: came.append(1))
    start()
    while not came:
        signal.pause()
def posix_timer():
    timer = ctypes.c_void_p()
    assert libc.timer_create(1, None, ctypes.byref(timer)) == 0
    when = (Timespec * 2)(Timespec(), length)
    assert libc.timer_settime(timer, 0, ctypes.byref(when), None) == 0
"""
WAITS = {
    "sleep": f"time.sleep({WAIT_S})",
    "usleep": f"libc.usleep(int({WAIT_S} * 1e6))",
    "nanosleep": "libc.nanosleep(ctypes.byref(length), None)",
    "clock_nanosleep": "libc.clock_nanosleep(0, 1, soon(0), None)",
    "select": f"select.select([], [], [], {WAIT_S})",
    "poll": f"select.poll().poll({WAIT_S} * 1000)",
    "ppoll": "libc.ppoll(None, 0, ctypes.byref(length), None)",
    "pselect": "libc.pselect(0, None, None, None, ctypes.byref(length), None)",
    "epoll": f"select.epoll().poll({WAIT_S})",
    "semaphore": "libc.sem_timedwait(room[0], soon(0))",
    "condition": "cond(1)",
    "condition_wall": "cond(0)",
    "lock": f"threading.Event().wait({WAIT_S})",
    "mutex": "libc.pthread_mutex_clocklock(room[1], 1, soon(1))",
    "sigtimedwait": f"signal.sigtimedwait([signal.SIGUSR1], {WAIT_S})",
    "futex": "futex()",
    "futex_until": "futex_until()",
    "setitimer": f"alarm(lambda: signal.setitimer(signal.ITIMER_REAL, {WAIT_S}))",
    "timer": "alarm(posix_timer)",
}


@pytest.fixture
def desktop(compiled: Desktop) -> Desktop:  # noqa: F811
    """A desktop whose clocks were never held."""
    compiled.page.write_bytes(b" " * 64)
    return compiled


@contextlib.contextmanager
def running(desktop: Desktop, *argv: str) -> Iterator[subprocess.Popen[str]]:
    """A program of the desktop, killed at the end."""
    env = {**os.environ, "LD_PRELOAD": str(desktop.preload), "TZ": "UTC"}
    with subprocess.Popen(
        argv, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as program:
        try:
            yield program
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)


def paused(desktop: Desktop, program: subprocess.Popen[str], charge_s: float | None = 0.0) -> float:
    """Hold the clocks and stop the program for a while, as the host does; return the rest of the charge."""
    pauses = ClockPauses(desktop.page)
    pauses.hold()
    os.killpg(program.pid, signal.SIGSTOP)
    time.sleep(PAUSE_S)
    os.killpg(program.pid, signal.SIGCONT)
    return pauses.resume(charge_s)


def told(program: subprocess.Popen[str], question: bool = True) -> list[float]:
    """Numbers of the program's next line."""
    assert program.stdin is not None and program.stdout is not None
    if question:
        program.stdin.write("\n")
        program.stdin.flush()
    return [float(word) for word in program.stdout.readline().split()]


@pytest.mark.parametrize(
    ("charge_s", "passed_s"), [(0.0, 0.0), (None, PAUSE_S), (0.25, 0.25)], ids=["nothing", "real", "some"]
)
def test_all_clocks_move_by_the_charge(desktop: Desktop, charge_s: float | None, passed_s: float) -> None:
    """Wall, monotonic, raw, coarse and boot clocks, in a program that runs already and in a new one."""
    with running(desktop, sys.executable, "-c", ASKED) as program:
        before = told(program)
        assert paused(desktop, program, charge_s) == 0.0
        after = told(program)
        for clock, (was, now) in enumerate(zip(before, after, strict=True)):
            assert passed_s - 0.006 <= now - was < passed_s + 0.5, clock
        with running(desktop, sys.executable, "-c", TIMES) as other:
            for was, now in zip(after, told(other, question=False), strict=True):
                assert -0.006 <= now - was < 5


def test_clocks_never_go_back(desktop: Desktop) -> None:
    """While pauses begin and end, a program that asks all the time sees no earlier time."""
    script = (
        "import time\nlast = [0] * 2\nend = time.monotonic() + 0.3\nwhile time.monotonic() < end:\n"
        " for i, c in enumerate((0, 1)):\n"
        "  now = time.clock_gettime_ns(c)\n  assert now >= last[i], (c, now - last[i])\n  last[i] = now\n"
        "print(1)"
    )
    with running(desktop, sys.executable, "-c", script) as program:
        pauses = ClockPauses(desktop.page)
        while program.poll() is None:
            pauses.hold()
            pauses.resume(0.0)
        assert told(program, question=False) == [1]


def test_a_charge_beyond_the_pause_is_told(desktop: Desktop) -> None:
    """The clock moves by what has passed; the rest is left to be waited for."""
    with running(desktop, sys.executable, "-c", ASKED) as program:
        before = told(program)
        left_s = paused(desktop, program, PAUSE_S + 60)
        assert 55 < left_s < 60
        assert PAUSE_S <= told(program)[1] - before[1] < PAUSE_S + 1


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_goes_on_for_what_was_left(desktop: Desktop, name: str) -> None:
    """Its timeout ends while the program is stopped; afterwards it takes as long as ever by the clock."""
    script = (
        f"{PRELUDE}\nprint(0, flush=True)\nbegan = time.monotonic()\n{WAITS[name]}\n"
        "print(time.monotonic() - began, flush=True)"
    )
    with running(desktop, sys.executable, "-c", script) as program:
        assert told(program, question=False) == [0]
        time.sleep(WAIT_S / 4)
        began = time.monotonic()
        paused(desktop, program)
        [passed_s] = told(program, question=False)
        assert WAIT_S - 0.01 <= passed_s < WAIT_S + 0.3
        assert time.monotonic() - began > PAUSE_S + WAIT_S / 2


def test_timeout_and_sleep_of_a_shell(desktop: Desktop) -> None:
    """What `timeout` runs is not ended early, and `sleep` does not wake early."""
    script = "echo 1; timeout 0.6 sleep 5; echo 2; sleep 0.6; echo 3"
    with running(desktop, "sh", "-c", script) as program:
        assert told(program, question=False) == [1]
        for number in (2, 3):
            time.sleep(0.1)
            paused(desktop, program)
            began = time.monotonic()
            assert told(program, question=False) == [number]
            assert 0.3 < time.monotonic() - began < 0.9


def test_files_are_as_old_as_they_look(desktop: Desktop, tmp_path: Path) -> None:
    """A file keeps its time over later pauses, and none is from the future."""
    with running(desktop, sys.executable, "-c", ASKED) as program:
        (tmp_path / "first").touch()
        first = float(desktop.run("stat", "-c", "%.Y", str(tmp_path / "first")))
        paused(desktop, program)
        (tmp_path / "second").touch()
        second = float(desktop.run("stat", "-c", "%.Y", str(tmp_path / "second")))
        assert 0 <= second - first < PAUSE_S
        paused(desktop, program)
        for name, was in (("first", first), ("second", second)):
            assert float(desktop.run("stat", "-c", "%.Y", str(tmp_path / name))) == was
        assert second <= told(program)[0]
