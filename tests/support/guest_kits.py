"""Three guests that speak guest protocol v1, each stood up for real: what their contract runs against."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from osgym_host.addresses import UnixAddress
from osgym_qemu.agentless.guest import AgentlessGuest, MachineFacts, ScreenSource
from tests.support.guest_rig import Desktop, Guest, desktop, stop, until, until_serving

T = TypeVar("T")

PYAUTOGUI = '''
"""As much of pyautogui as OSWorld's adapter uses, on the display that its session names."""
from osgym_guest._native import Display
from osgym_protocol.keysyms import key_keysym

_display = Display()
_ALIASES = {"shiftleft": "shift", "ctrlleft": "ctrl", "altleft": "alt"}


def _key(name, down):
    first, rows = _display.keymap()
    keysym = key_keysym(_ALIASES.get(name, name))
    _display.key(next(code for code, row in enumerate(rows, first) if keysym in row[:2]), down)
    _display.sync()


def keyDown(name):
    _key(name, True)


def keyUp(name):
    _key(name, False)


def _button(name, down):
    _display.button({"left": 1, "middle": 2, "right": 3}[name], down)
    _display.sync()


def mouseDown(button):
    _button(button, True)


def mouseUp(button):
    _button(button, False)


def moveTo(x, y):
    _display.motion(x, y)
    _display.sync()
'''


@dataclass
class GuestKit:
    """A served guest.

    Attributes:
        guest: a client of it.
        generation: as health says it.
        break_off: what to kill in the middle of a step.
        rig: where the agent is started anew after that, if it is the agent that was killed.
    """

    guest: Guest
    generation: str
    break_off: list[subprocess.Popen[bytes]] = field(default_factory=list)
    rig: Desktop | None = None

    def lose_answer(self) -> None:
        """Break off the step that runs; afterwards the guest serves, and its answer is lost."""
        for process in self.break_off:
            process.kill()
            process.wait()
        if self.rig is not None:
            self.rig.start_agent()
            until_serving(self.guest)


@contextlib.contextmanager
def agent(folder: Path) -> Iterator[GuestKit]:
    """The guest agent on a small desktop."""
    with desktop(folder, size=(640, 480)) as rig:
        assert rig.agent is not None
        yield GuestKit(rig.guest, "g1", [rig.agent], rig)


@contextlib.contextmanager
def agentless(folder: Path) -> Iterator[GuestKit]:
    """A machine without a disk: its firmware says so on the screen and rests. Seen and used by QMP."""
    qmp = folder / "qmp.sock"
    argv = ["qemu-system-x86_64", "-nodefaults", "-accel", "tcg", "-m", "64", "-display", "none"]
    argv += ["-vga", "std", "-device", "qemu-xhci", "-device", "usb-tablet"]
    machine = subprocess.Popen([*argv, "-qmp", f"unix:{qmp},server=on,wait=off"])
    try:
        until(qmp.exists)
        facts = MachineFacts(generation=2, qmp=qmp, pid=machine.pid)
        with _served(facts, folder) as guest:
            yield GuestKit(guest, "2", [machine])
    finally:
        stop(machine)


@contextlib.contextmanager
def osworld(folder: Path) -> Iterator[GuestKit]:
    """OSWorld's endpoints (our agent's, on a small desktop), and in front of them the adapter."""
    inside = folder / "inside"
    modules = folder / "modules"
    for made in (inside, modules):
        made.mkdir()
    (modules / "pyautogui.py").write_text(PYAUTOGUI)
    (modules / "python3").symlink_to(sys.executable)
    with desktop(inside, size=(640, 480), agent=False) as rig:
        path = f"{Path(sys.executable).parent}:{rig.environment['PATH']}"
        inner = rig.start_agent(PATH=path, PYTHONPATH=str(modules))
        inner.json("POST", "/v1/ready", {"timeout_s": 20})
        assert rig.agent is not None
        server = UnixAddress(inside / "agent.sock")
        facts = MachineFacts(generation=3, qmp=None, pid=None, server=server, screen=ScreenSource.SERVER)
        with _served(facts, folder) as guest:
            yield GuestKit(guest, "3", [rig.agent])


KITS = {"agent": agent, "agentless": agentless, "osworld": osworld}


def missing(name: str) -> str:
    """What this machine lacks for a kit; empty when nothing."""
    needed = "qemu-system-x86_64" if name == "agentless" else "Xvfb"
    return "" if shutil.which(needed) else needed


@contextlib.contextmanager
def _served(facts: MachineFacts, folder: Path) -> Iterator[Guest]:
    """A guest without an agent, served by an event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def wait(coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)

    try:
        served = wait(AgentlessGuest.open(facts, folder / "guest.sock"))
        try:
            guest = Guest(folder / "guest.sock")
            guest.json("POST", "/v1/ready", {"timeout_s": 30})
            yield guest
        finally:
            wait(served.close())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
