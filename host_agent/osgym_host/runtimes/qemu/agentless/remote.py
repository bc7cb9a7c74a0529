"""Screen and input of a guest whose desktop is not on the machine's VGA: by OSWorld's server inside it.

The screen is `/screenshot`. Input is the same plan of events as for QMP, said in calls of pyautogui, which
OSWorld's images have, and run by `/execute`: 0.3 s and more for each action, against milliseconds by QMP.
Only names from fixed maps and whole numbers go into that program.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import assert_never

from osgym_host.runtimes.qemu.agentless.display import DisplayFailed, Drained
from osgym_host.runtimes.qemu.agentless.frames import BadFrame, Frame, decode
from osgym_host.runtimes.qemu.agentless.osworld import MAX_SCREENSHOT_BYTES, OsworldServer
from osgym_host.runtimes.qemu.agentless.plan import (
    WHEEL_DOWN,
    WHEEL_UP,
    ButtonEvent,
    DrainInput,
    KeyEvent,
    Pause,
    PointerEvent,
    TimedOp,
)
from osgym_host.runtimes.qemu.agentless.serve import RefusedRequest

TIMEOUT_S = 20.0
MAX_OUTPUT_CHARS = 500
MAX_ANSWER_BYTES = 32 * 1024
"""Of what one call of pyautogui says."""
MAX_PROGRAM_CHARS = 90_000
"""Linux takes 128 KiB as one argument of a command."""
POINTER_DRAIN_S, KEY_DRAIN_S = 0.01, 0.001
"""X takes all of it; the applications get a moment to follow."""
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
        DisplayFailed: pyautogui has no name for the key.
    """
    name = _KEYS.get(qcode) or (qcode if qcode in _SAME else None)
    if name is None:
        raise DisplayFailed(f"pyautogui has no key {qcode!r}")
    return name


def calls(ops: Sequence[TimedOp]) -> list[str]:
    """Say a plan in calls of pyautogui.

    Raises:
        DisplayFailed: Something in it cannot be said.
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
    """Say a plan in Python programs that fit into a command line, with the time that each takes at least.

    Raises:
        DisplayFailed: Something in it cannot be said.
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
    """A click of the wheel is one call, said when it goes down."""
    return not (isinstance(op, ButtonEvent) and op.button in (WHEEL_UP, WHEEL_DOWN) and not op.down)


class RemoteDisplay:
    """A desktop behind OSWorld's server."""

    look_ms = 1000.0
    disturbs = True

    def __init__(self, server: OsworldServer) -> None:
        """Nothing is opened before the first call; `close` closes the server's connections too."""
        self._server = server

    async def capture(self) -> Frame:
        """Return the screen as it is now."""
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
        """Carry out a plan of input, as few programs as it fits in."""
        del screen
        for source, pause_s in programs(ops):
            await self._run(source, TIMEOUT_S + pause_s)
            await drained(DrainInput())

    async def _run(self, source: str, timeout_s: float) -> None:
        body = json.dumps({"command": ["python3", "-c", source], "shell": False}).encode()
        try:
            answer = await self._server.call("POST", "/execute", body, timeout_s=timeout_s)
        except RefusedRequest as exc:
            raise DisplayFailed(f"the input did not arrive: {exc.message}") from exc
        text = b"".join(bytes(part[:MAX_ANSWER_BYTES]) for part in answer.body)[:MAX_ANSWER_BYTES]
        try:
            done = json.loads(text)
            code = done["returncode"]
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            raise DisplayFailed(f"/execute answered with {answer.status}: {text[:200]!r}") from exc
        if code != 0:
            raise DisplayFailed(f"pyautogui failed: {str(done.get('error'))[-MAX_OUTPUT_CHARS:]}")

    def release_buffers(self) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Close the connections."""
        self._server.close()


__all__ = ["RemoteDisplay", "programs", "pyautogui_key"]
