"""Which processes and windows the agent's native core follows."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import many_workers
from tests.support.guest_rig import Desktop, desktop, stop, until

from osgym_guest._native import Display, now_ns
from osgym_guest.settle import load_policies, settle

MAX_THREADS = 256
"""As many threads the native core follows at once (`OG_MAX_THREADS`)."""


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Desktop]:
    """A desktop without an agent: the tests use its display themselves."""
    with desktop(tmp_path, size=(640, 480), agent=False) as made:
        yield made


def test_a_program_that_finds_no_place_marks_no_other_as_starting(screen: Desktop) -> None:
    """A launched program that the full table cannot take is not waited for, and no other is taken for it."""
    with full(screen) as (trace, _, found):
        launched = subprocess.Popen(["sleep", "60"], env=screen.environment)
        turns = len(trace.read_bytes().splitlines())
        until(lambda: len(trace.read_bytes().splitlines()) > turns + 20, timeout_s=60)
        (screen.home / "rest").touch()
        ended = found.wait(15)
        stop(launched)
    assert ended


def test_ended_programs_give_their_places_to_others(screen: Desktop) -> None:
    """A program that begins to work when others have ended is followed."""
    with full(screen) as (trace, group, _):
        late = subprocess.Popen(["sh", "-c", "while :; do :; done"], env=screen.environment)
        assert not follows(trace, late.pid)
        os.killpg(group, signal.SIGKILL)
        try:
            until(lambda: follows(trace, late.pid), timeout_s=60)
        finally:
            stop(late)


def test_a_window_that_becomes_a_dialog_is_one(tmp_path: Path) -> None:
    """A window is a dialog while its program says so, even if it says so long after it was shown."""
    with desktop(tmp_path) as screen, contextlib.closing(Display(screen.display)) as display:
        screen.open("xterm", "-geometry", "20x5+100+100")
        window = int(screen.property("_NET_ACTIVE_WINDOW").split("#")[1], 16)

        def is_dialog() -> bool:
            display.begin()
            active, is_one, _ = display.receiver()
            assert active == window
            return is_one

        assert not is_dialog()
        kind = "_NET_WM_WINDOW_TYPE"
        for change, expected in (
            (["xprop", "-f", kind, "32a", "-set", kind, f"{kind}_DIALOG"], True),
            (["xprop", "-remove", kind], False),
            ([sys.executable, "-c", SET_TRANSIENT], True),
            (["xprop", "-remove", "WM_TRANSIENT_FOR"], False),
        ):
            subprocess.run([*change, "-id", str(window)], env=screen.environment, check=True)
            assert is_dialog() is expected, change


SET_TRANSIENT = """
import ctypes, sys
x11 = ctypes.CDLL("libX11.so.6")
x11.XOpenDisplay.restype = ctypes.c_void_p
display = ctypes.c_void_p(x11.XOpenDisplay(None))
root = ctypes.c_ulong(x11.XDefaultRootWindow(display))
x11.XSetTransientForHint(display, ctypes.c_ulong(int(sys.argv[2])), root)
x11.XSync(display, 0)
"""


@contextlib.contextmanager
def full(screen: Desktop) -> Iterator[tuple[Path, int, threading.Event]]:
    """A wait that follows as many threads as it can: its trace, their process group, and whether it ended."""
    trace = screen.home / "trace.jsonl"
    rule = replace(load_policies(None).rules["ready"], call_ms=20_000.0, max_ms=120_000.0)
    ended = threading.Event()
    with contextlib.closing(Display(screen.display)) as display:
        display.follow(600.0, 1.0, [])  # a busy machine makes nobody here one that works without end
        display.begin()

        def wait() -> None:
            settle(display, rule, now_ns(), str(trace))
            ended.set()

        with workers(screen, MAX_THREADS + 20) as group:
            display.begin()
            waiting = threading.Thread(target=wait)
            waiting.start()
            try:
                (screen.home / "go").touch()
                until(lambda: followed(trace) == MAX_THREADS, timeout_s=60)
                yield trace, group, ended
            finally:
                display.cancel()
                waiting.join()


@contextlib.contextmanager
def workers(screen: Desktop, count: int) -> Iterator[int]:
    """The group of processes that nobody has launched: the shell that starts them ends at once."""
    log = screen.home / "pid"
    script = 'python="$1"; shift; "$python" "$@" & echo $$ > pid'
    argv = ["sh", "-c", script, "sh", sys.executable, many_workers.__file__, str(count)]
    subprocess.run(argv, env=screen.environment, cwd=screen.home, start_new_session=True, check=True)
    group = int(log.read_text())
    try:
        until((screen.home / "forked").exists, timeout_s=60)
        yield group
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def last_turn(trace: Path) -> list[list[float]]:
    """Return the threads of the newest turn that the trace has whole."""
    if not trace.exists():
        return []
    for line in reversed(trace.read_bytes().splitlines()):
        with contextlib.suppress(ValueError):
            turn = json.loads(line)
            if "thr" in turn:
                return list(turn["thr"])
    return []


def followed(trace: Path) -> int:
    """Return how many threads are followed."""
    return len(last_turn(trace))


def follows(trace: Path, pid: int) -> bool:
    """Return whether a process is followed."""
    return any(thread[0] == pid for thread in last_turn(trace))
