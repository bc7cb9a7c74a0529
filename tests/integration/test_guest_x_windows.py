"""What the agent reads of the windows on the screen from the X server and the window manager."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest
from tests.support import guest_rig
from tests.support.guest_rig import desktop, stop

from osgym_guest.osworld.a11y import x_windows
from osgym_guest.osworld.a11y.x_windows import read_windows

PROGRAM = Path(guest_rig.__file__).with_name("many_windows.py")
COUNT, MAX_WINDOWS = 50, 30


def test_of_many_windows_the_topmost_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the menu above them; frames and windows that nobody sees take no place of theirs."""
    monkeypatch.setattr(x_windows, "MAX_WINDOWS", MAX_WINDOWS)
    with desktop(tmp_path, agent=False) as screen:
        monkeypatch.setenv("DISPLAY", screen.display)
        program = subprocess.Popen(
            ["/usr/bin/python3", str(PROGRAM), str(COUNT)], env=screen.environment, stdout=subprocess.PIPE
        )
        assert program.stdout is not None
        with program.stdout:
            assert program.stdout.readline() == b"open\n"
        stacked = screen.property("_NET_CLIENT_LIST_STACKING").split("#")[1].split(",")
        found = asyncio.run(read_windows())
        stop(program)
    assert [window.id for window in found[:-1]] == [int(each, 16) for each in stacked[1 - MAX_WINDOWS :]]
    assert all(window.is_managed for window in found[:-1])
    assert (found[-1].title, found[-1].is_managed) == ("menu", False)
    assert [window.stacking for window in found] == list(range(COUNT - MAX_WINDOWS + 1, COUNT + 1))
