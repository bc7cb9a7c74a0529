"""Screen and input of a guest by OSWorld's server, where its desktop is not on the machine's VGA.

The screen is `/screenshot`. Input is the same plan of events as for QMP, said in calls of pyautogui, which
OSWorld's images have, and run by `/execute`: 0.3 s and more for each action, against milliseconds by QMP.
Only names from fixed maps and whole numbers go into that program.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import assert_never

from osgym_qemu.agentless.display import DisplayFailed, Drained
from osgym_qemu.agentless.frames import BadFrame, Frame, decode
from osgym_qemu.agentless.osworld import MAX_SCREENSHOT_BYTES, OsworldServer
from osgym_qemu.agentless.plan import (
    WHEEL_DOWN,
    WHEEL_UP,
    ButtonEvent,
    DrainInput,
    KeyEvent,
    Pause,
    PointerEvent,
    TimedOp,
)
from osgym_qemu.agentless.serve import RefusedRequest

TIMEOUT_S = 20.0
MAX_OUTPUT_CHARS = 500
MAX_ANSWER_BYTES = 32 * 1024
"""Largest answer of one call of pyautogui."""
MAX_PROGRAM_CHARS = 90_000
"""Largest program: Linux takes 128 KiB as one argument of a command."""
POINTER_DRAIN_S, KEY_DRAIN_S = 0.01, 0.001
"""Waits after input, in which applications follow; X itself takes all of it."""
_HEAD = "import pyautogui as p, time as t\np.FAILSAFE=False\np.PAUSE=0\np.MINIMUM_DURATION=0\n"

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
"""pyautogui's names of keys by QEMU's, where they differ."""
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
        DisplayFailed: pyautogui has no name for the key.
    """
    name = _KEYS.get(qcode) or (qcode if qcode in _SAME else None)
    if name is None:
        raise DisplayFailed(f"pyautogui has no key {qcode!r}")
    return name


def calls(ops: Sequence[TimedOp]) -> list[str]:
    """Return a plan as calls of pyautogui.

    Raises:
        DisplayFailed: A part of it has no call.
    """
    said: list[str] = []
    for op in ops:
        match op:
            case KeyEvent():
                verb = "keyDown" if op.down else "keyUp"
                said.append(f"p.{verb}({json.dumps(pyautogui_key(op.qcode))})")
            case ButtonEvent(button="wheel-up" | "wheel-down"):
                if op.down:
                    said.append(f"p.scroll({1 if op.button == WHEEL_UP else -1})")
            case ButtonEvent():
                verb = "mouseDown" if op.down else "mouseUp"
                said.append(f"p.{verb}(button={json.dumps(op.button)})")
            case PointerEvent():
                said.append(f"p.moveTo({op.x:d},{op.y:d})")
            case DrainInput():
                least_s = POINTER_DRAIN_S if op.pointer else KEY_DRAIN_S
                said.append(f"t.sleep({max(least_s, op.rest_ms / 1000)})")
            case Pause():
                said.append(f"t.sleep({op.duration_ms / 1000:.3f})")
            case _ as never:
                assert_never(never)
    return said


def programs(ops: Sequence[TimedOp]) -> list[tuple[str, float]]:
    """Return a plan as Python programs that fit into a command line, with the least duration of each.

    Raises:
        DisplayFailed: A part of it has no call.
    """
    parts: list[tuple[str, float]] = []
    lines: list[str] = []
    length, pause_s = 0, 0.0
    for op, line in zip((op for op in ops if _is_said(op)), calls(ops), strict=True):
        if length + len(line) > MAX_PROGRAM_CHARS:
            parts.append((_HEAD + "\n".join(lines), pause_s))
            lines, length, pause_s = [], 0, 0.0
        lines.append(line)
        length += len(line) + 1
        if isinstance(op, Pause):
            pause_s += op.duration_ms / 1000
        elif isinstance(op, DrainInput):
            pause_s += op.rest_ms / 1000
    return [*parts, (_HEAD + "\n".join(lines), pause_s)] if lines else parts


def _is_said(op: TimedOp) -> bool:
    """Return whether an event has a call: a click of the wheel has one, at its press."""
    return not (isinstance(op, ButtonEvent) and op.button in (WHEEL_UP, WHEEL_DOWN) and not op.down)


class RemoteDisplay:
    """Desktop behind OSWorld's server."""

    look_ms = 1000.0
    disturbs = True

    def __init__(self, server: OsworldServer) -> None:
        self._server = server

    async def capture(self) -> Frame:
        try:
            answer = await self._server.call(
                "GET", "/screenshot", timeout_s=TIMEOUT_S, max_body=MAX_SCREENSHOT_BYTES
            )
        except RefusedRequest as exc:
            raise DisplayFailed(f"the screen could not be read: {exc.message}") from exc
        if answer.status != 200:
            raise DisplayFailed(f"/screenshot answered with {answer.status}")
        try:
            return await asyncio.to_thread(lambda: decode(b"".join(answer.body)))
        except BadFrame as exc:
            raise DisplayFailed(f"/screenshot: {exc}") from exc

    async def carry_out(self, ops: Sequence[TimedOp], screen: tuple[int, int], drained: Drained) -> None:
        """Carry out a plan of input by as few programs as possible."""
        del screen
        for source, pause_s in programs(ops):
            await self._run(source, TIMEOUT_S + pause_s)
            await drained(DrainInput())

    async def _run(self, source: str, timeout_s: float) -> None:
        body = json.dumps({"command": ["python3", "-c", source], "shell": False}).encode()
        try:
            answer = await self._server.call("POST", "/execute", body, timeout_s=timeout_s)
        except RefusedRequest as exc:
            raise DisplayFailed(f"the input could not be sent: {exc.message}") from exc
        text = b"".join(bytes(part[:MAX_ANSWER_BYTES]) for part in answer.body)[:MAX_ANSWER_BYTES]
        try:
            done = json.loads(text)
            code = done["returncode"]
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            raise DisplayFailed(f"/execute answered with {answer.status}: {text[:200]!r}") from exc
        if code != 0:
            raise DisplayFailed(f"pyautogui failed: {str(done.get('error'))[-MAX_OUTPUT_CHARS:]}")

    def release_buffers(self) -> None:
        """Do nothing: no buffer is kept."""

    async def close(self) -> None:
        self._server.close()
