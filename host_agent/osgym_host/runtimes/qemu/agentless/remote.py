"""Screen and input of a guest whose desktop is not on the machine's VGA: by OSWorld's server inside it.

The screen is `/screenshot`. Input is the same plan of events as for QMP, said in calls of pyautogui, which
OSWorld's images have, and run by `/execute`: 0.3 s and more for each part, against milliseconds by QMP.
Only names from fixed maps and whole numbers go into that program.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import assert_never

from osgym_host.runtimes.qemu.agentless.display import DisplayFailed
from osgym_host.runtimes.qemu.agentless.frames import BadFrame, Frame, decode
from osgym_host.runtimes.qemu.agentless.osworld import OsworldServer
from osgym_host.runtimes.qemu.agentless.plan import (
    WHEEL_DOWN,
    WHEEL_UP,
    ButtonEvent,
    Event,
    KeyEvent,
    PointerEvent,
)
from osgym_host.runtimes.qemu.agentless.serve import Refused

TIMEOUT_S = 20.0
MAX_OUTPUT_CHARS = 500
_HEAD = "import pyautogui as p; p.FAILSAFE=False; p.PAUSE=0; p.MINIMUM_DURATION=0; "

_KEYS = {
    "ret": "enter",
    "spc": "space",
    "shift": "shiftleft",
    "shift_r": "shiftright",
    "ctrl": "ctrlleft",
    "ctrl_r": "ctrlright",
    "alt": "altleft",
    "alt_r": "altright",
    "meta_l": "winleft",
    "meta_r": "winright",
    "compose": "apps",
    "caps_lock": "capslock",
    "num_lock": "numlock",
    "scroll_lock": "scrolllock",
    "pgup": "pageup",
    "pgdn": "pagedown",
    "print": "printscreen",
    "minus": "-",
    "equal": "=",
    "bracket_left": "[",
    "bracket_right": "]",
    "backslash": "\\",
    "semicolon": ";",
    "apostrophe": "'",
    "grave_accent": "`",
    "comma": ",",
    "dot": ".",
    "slash": "/",
    "kp_add": "add",
    "kp_subtract": "subtract",
    "kp_multiply": "multiply",
    "kp_divide": "divide",
    "kp_decimal": "decimal",
    "kp_enter": "enter",
    **{f"kp_{digit}": f"num{digit}" for digit in range(10)},
    "audiomute": "volumemute",
    "audioplay": "playpause",
    "audionext": "nexttrack",
    "audioprev": "prevtrack",
    "ac_home": "browserhome",
    "ac_back": "browserback",
    "ac_forward": "browserforward",
    "ac_refresh": "browserrefresh",
    "ac_bookmarks": "browserfavorites",
}
"""QEMU's names of keys to pyautogui's, where they differ."""
_SAME = frozenset(
    (
        *"abcdefghijklmnopqrstuvwxyz0123456789",
        *("tab", "esc", "backspace", "delete", "insert", "home", "end", "left", "right", "up", "down"),
        *("pause", "help", "volumeup", "volumedown", *(f"f{number}" for number in range(1, 13))),
    )
)


def pyautogui_key(qcode: str) -> str:
    """Return pyautogui's name of a key.

    Raises:
        DisplayFailed: It has none.
    """
    name = _KEYS.get(qcode) or (qcode if qcode in _SAME else None)
    if name is None:
        raise DisplayFailed(f"pyautogui has no key {qcode!r}")
    return name


def program(events: Sequence[Event]) -> str:
    """Return the Python program that carries out events by pyautogui.

    Raises:
        DisplayFailed: An event cannot be said.
    """
    calls: list[str] = []
    for event in events:
        match event:
            case KeyEvent():
                verb = "keyDown" if event.down else "keyUp"
                calls.append(f"p.{verb}({json.dumps(pyautogui_key(event.qcode))})")
            case ButtonEvent(button="wheel-up" | "wheel-down"):
                if event.down:
                    calls.append(f"p.scroll({1 if event.button == WHEEL_UP else -1})")
            case ButtonEvent():
                verb = "mouseDown" if event.down else "mouseUp"
                calls.append(f"p.{verb}(button={json.dumps(event.button)})")
            case PointerEvent():
                calls.append(f"p.moveTo({event.x:d},{event.y:d})")
            case _ as never:
                assert_never(never)
    return _HEAD + "; ".join(calls)


class RemoteDisplay:
    """A desktop behind OSWorld's server."""

    def __init__(self, server: OsworldServer) -> None:
        """Nothing is opened before the first call; `close` closes the server's connections too."""
        self._server = server

    async def grab(self) -> Frame:
        """Return the screen as it is now."""
        try:
            answer = await self._server.call("GET", "/screenshot", timeout_s=TIMEOUT_S)
        except Refused as exc:
            raise DisplayFailed(f"the screen could not be read: {exc.message}") from exc
        if answer.status != 200:
            raise DisplayFailed(f"/screenshot answered with {answer.status}")
        try:
            return await asyncio.to_thread(decode, b"".join(answer.body))
        except BadFrame as exc:
            raise DisplayFailed(f"/screenshot: {exc}") from exc

    async def send(self, events: Sequence[Event], screen: tuple[int, int]) -> None:
        """Carry out input events."""
        del screen
        if not events:
            return
        body = json.dumps({"command": ["python3", "-c", program(events)], "shell": False}).encode()
        try:
            answer = await self._server.call("POST", "/execute", body, timeout_s=TIMEOUT_S)
        except Refused as exc:
            raise DisplayFailed(f"the input did not arrive: {exc.message}") from exc
        text = b"".join(answer.body)[: 64 * 1024]
        try:
            done = json.loads(text)
            code = done["returncode"]
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            raise DisplayFailed(f"/execute answered with {answer.status}: {text[:200]!r}") from exc
        if code != 0:
            raise DisplayFailed(f"pyautogui failed: {str(done.get('error'))[-MAX_OUTPUT_CHARS:]}")

    def rest(self) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Close the connections."""
        self._server.close()


__all__ = ["WHEEL_DOWN", "RemoteDisplay", "program", "pyautogui_key"]
