"""An X server that is stopped, and one that is only slow: the first ends the agent within seconds."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

import pytest
from tests.support.guest_rig import Desktop, GuestFault, desktop
from tests.support.waiting import stays

from osgym_guest.display_watchdog import DisplayWatchdog
from osgym_protocol.guest_api import EXIT_DISPLAY_GONE

NOTICED_S = 5.0


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Desktop]:
    """A small desktop with the agent."""
    with desktop(tmp_path, size=(320, 200), wm=False) as made:
        yield made


def test_a_frozen_server_ends_the_agent_as_one_that_is_gone(rig: Desktop) -> None:
    """A step waits for a server that was stopped: within seconds the agent ends with the code for that."""
    assert rig.agent is not None
    rig.guest.step({"op": "move", "x": 5, "y": 5})
    rig.server.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        with pytest.raises((GuestFault, HTTPException, OSError)):
            rig.guest.step({"op": "move", "x": 6, "y": 6})
        assert rig.agent.wait(NOTICED_S) == EXIT_DISPLAY_GONE
        assert time.monotonic() - began < NOTICED_S
    finally:
        rig.server.send_signal(signal.SIGCONT)


def test_work_that_takes_long_is_no_frozen_server(rig: Desktop) -> None:
    """A step that waits as it was told is answered; so is one during which the server stood still briefly."""
    rig.guest.step({"op": "wait", "duration_ms": 4000})
    resume = threading.Timer(1.5, rig.server.send_signal, (signal.SIGCONT,))
    rig.server.send_signal(signal.SIGSTOP)
    resume.start()
    rig.guest.step({"op": "move", "x": 6, "y": 6})
    assert rig.agent is not None and rig.agent.poll() is None


async def test_only_a_server_that_can_be_asked_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One elsewhere is left alone, one that is gone is told by its connections, one that is mute ends."""
    monkeypatch.setattr("osgym_guest.display_watchdog.PATIENCE_S", 0.05)
    monkeypatch.setattr("osgym_guest.display_watchdog.SILENT_S", 0.5)
    silent = asyncio.Event()
    for name in ("", "elsewhere:0", ":987654"):
        watchdog = DisplayWatchdog(silent.set, name)
        watchdog.start()
        await stays(lambda: not silent.is_set(), 0.3)
        watchdog.stop()
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "mute"))
        mute.listen(8)
        watchdog = DisplayWatchdog(silent.set, ":0")
        watchdog._path = str(tmp_path / "mute")
        watchdog.start()
        async with asyncio.timeout(10):
            await silent.wait()
        watchdog.stop()
