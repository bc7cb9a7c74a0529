"""What the agent reads of the windows on the screen from the X server and the window manager."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import guest_rig
from tests.support.guest_rig import Desktop, desktop, stop, until

from osgym_guest.osworld.a11y import x_windows
from osgym_guest.osworld.a11y.x_windows import read_windows
from osgym_guest.osworld.session_pids import PROGRAMS_BELOW

pytestmark = pytest.mark.timeout(60)
PROGRAM = Path(guest_rig.__file__).with_name("many_windows.py")
COUNT, MAX_WINDOWS = 50, 30


def _managed(screen: Desktop) -> list[int]:
    """Windows of the window manager, the lowest first."""
    listed = screen.property("_NET_CLIENT_LIST_STACKING").partition("#")[2]
    return [int(each, 16) for each in listed.split(",") if each.strip()]


@contextlib.contextmanager
def _windows(screen: Desktop, count: int) -> Iterator[list[int]]:
    """So many windows and a menu above them, once the window manager has them all."""
    program = subprocess.Popen(
        ["/usr/bin/python3", str(PROGRAM), str(count)], env=screen.environment, stdout=subprocess.PIPE
    )
    try:
        assert program.stdout is not None
        with program.stdout:
            assert program.stdout.readline() == b"open\n"
        until(lambda: len(_managed(screen)) == count, timeout_s=20)
        yield _managed(screen)
    finally:
        stop(program)


def test_of_many_windows_the_topmost_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read with the menu above them; frames and unseen windows take none of their places."""
    monkeypatch.setattr(x_windows, "MAX_WINDOWS", MAX_WINDOWS)
    with desktop(tmp_path, agent=False) as screen:
        monkeypatch.setenv("DISPLAY", screen.display)
        with _windows(screen, 1):
            pass  # the window manager has finished its own start
        with _windows(screen, COUNT) as stacked:
            found = asyncio.run(read_windows())
    assert [window.id for window in found[:-1]] == stacked[1 - MAX_WINDOWS :]
    assert all(window.is_managed for window in found[:-1])
    assert (found[-1].title, found[-1].is_managed) == ("menu", False)
    assert [window.stacking for window in found] == list(range(COUNT - MAX_WINDOWS + 1, COUNT + 1))


CLAIMS = """
import os
from Xlib import X, Xatom, display
server = display.Display()
window = server.screen().root.create_window(10, 40, 200, 100, 0, X.CopyFromParent)
window.change_property(server.intern_atom("_NET_WM_PID"), Xatom.CARDINAL, 32, [os.getpid()])
window.map()
server.sync()
print("open", flush=True)
while True:
    server.next_event()
"""


@pytest.mark.parametrize("below", [False, True])
def test_the_process_that_a_window_claims_counts_where_it_is_numbered_alike(
    monkeypatch: pytest.MonkeyPatch, below: bool
) -> None:
    """This X server does not say whose a window is; programs below number themselves otherwise."""
    reader, writer = os.pipe()
    argv = ["Xvfb", "-displayfd", str(writer), "-nolisten", "tcp", "-extension", "X-Resource"]
    server = subprocess.Popen(argv, pass_fds=[writer], stderr=subprocess.DEVNULL)
    os.close(writer)
    with os.fdopen(reader) as said:
        monkeypatch.setenv("DISPLAY", ":" + said.readline().strip())
    if below:
        monkeypatch.setenv(PROGRAMS_BELOW, "1")
    program = subprocess.Popen(["/usr/bin/python3", "-c", CLAIMS], stdout=subprocess.PIPE)
    try:
        assert program.stdout is not None
        with program.stdout:
            assert program.stdout.readline() == b"open\n"
        (window,) = asyncio.run(read_windows())
    finally:
        stop(program)
        stop(server)
    assert window.pid == program.pid
    assert window.own_pid == (None if below else program.pid)
