"""Calls of pyautogui source: their functions, arguments and actions."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping
from typing import Any

from osgym_protocol.grammars.base import Builder, Ending, Point, RawAction, UnreadableAction, shown
from osgym_protocol.grammars.chords import ChordError, check_chord
from osgym_protocol.grammars.objects import xy
from osgym_protocol.grammars.pyautogui_values import Values
from osgym_protocol.limits import (
    MAX_ACTIONS,
    MAX_CLICK_COUNT,
    MAX_DURATION_MS,
    MAX_KEY_REPEAT,
    MAX_SCROLL_CLICKS,
)

_IGNORED = ("tween", "logScreenshot", "_pause")
_POINT = ("x", "y")
_TIMED = ("duration",)
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "time.sleep": ("seconds",),
    "pyautogui.sleep": ("seconds",),
    "pyautogui.moveTo": (*_POINT, *_TIMED),
    "pyautogui.moveRel": ("xOffset", "yOffset", *_TIMED),
    "pyautogui.move": ("xOffset", "yOffset", *_TIMED),
    "pyautogui.dragTo": (*_POINT, *_TIMED, "tween", "button"),
    "pyautogui.dragRel": ("xOffset", "yOffset", *_TIMED, "tween", "button"),
    "pyautogui.drag": ("xOffset", "yOffset", *_TIMED, "tween", "button"),
    "pyautogui.click": (*_POINT, "clicks", "interval", "button", *_TIMED),
    "pyautogui.leftClick": (*_POINT, "interval", *_TIMED),
    "pyautogui.rightClick": (*_POINT, "interval", *_TIMED),
    "pyautogui.middleClick": (*_POINT, "interval", *_TIMED),
    "pyautogui.doubleClick": (*_POINT, "interval", "button", *_TIMED),
    "pyautogui.tripleClick": (*_POINT, "interval", "button", *_TIMED),
    "pyautogui.mouseDown": (*_POINT, "button", *_TIMED),
    "pyautogui.mouseUp": (*_POINT, "button", *_TIMED),
    "pyautogui.scroll": ("clicks", *_POINT),
    "pyautogui.vscroll": ("clicks", *_POINT),
    "pyautogui.hscroll": ("clicks", *_POINT),
    "pyautogui.keyDown": ("key",),
    "pyautogui.keyUp": ("key",),
    "pyautogui.press": ("keys", "presses", "interval"),
    "pyautogui.hold": ("keys",),
    "pyautogui.hotkey": ("keys", "interval"),
    "pyautogui.shortcut": ("keys", "interval"),
    "pyautogui.write": ("message", "interval"),
    "pyautogui.typewrite": ("message", "interval"),
    "pyautogui.screenshot": (),
}
"""Functions that are read and their parameters in order; `tween` and the like are accepted and not used."""
COMPUTER: dict[str, tuple[str, ...]] = {
    "computer.triple_click": _POINT,
    "computer.tripleClick": _POINT,
    "computer.wait": ("seconds",),
    "computer.terminate": ("status", "answer"),
}
"""Functions that OpenCUA adds."""
_CLICKS = {
    "leftClick": ("left", 1), "rightClick": ("right", 1), "middleClick": ("middle", 1),
    "doubleClick": ("left", 2), "tripleClick": ("left", 3), "triple_click": ("left", 3),
}  # fmt: skip
_BUTTONS: dict[Any, str] = {
    "left": "left", "middle": "middle", "right": "right", "primary": "left", "secondary": "right",
    1: "left", 2: "middle", 3: "right",
}  # fmt: skip
_WAIT_S = 5
DOUBLE_CLICK_S = 0.5
"""Time between clicks from which they are no double click: Windows' default; GTK has 0.4 s."""


class Calls:
    """Makes actions of calls, and tracks the pointer."""

    def __init__(self, to: Builder, values: Values, computer: bool) -> None:
        self._to = to
        self._values = values
        self._known = {**FUNCTIONS, **COMPUTER} if computer else FUNCTIONS
        self._space = to.context.space()
        self._pointer: Point | None = to.context.pointer

    def name(self, call: ast.Call) -> str:
        """Return the name of the called function; empty for an unknown one."""
        return self._values.name_of(call.func)

    def call(self, call: ast.Call) -> None:
        """Add the actions of a call. Raises UnreadableAction if the function is not one that is read."""
        name = self.name(call)
        if name == "pyautogui.size" and not call.args and not call.keywords:
            return
        if name not in self._known or name == "pyautogui.hold":
            read = f"{name or ast.unparse(call.func)[:60]}(...)" if _short(call.func) else "a call"
            raise self._refuse(call, f"{read} is not supported{self._similar(call)}", self._allowed())
        given = self.arguments(call, self._known[name])
        kind = name.partition(".")[2]
        if kind == "terminate":
            self._terminate(call, given)
            return
        self._to.add(f"line {call.lineno}", *self._actions(kind, call, given))

    def _similar(self, call: ast.Call) -> str:
        """Return a question for the function that was probably meant; empty where none is similar."""
        wanted = ast.unparse(call.func) if _short(call.func) else ""
        names = {_last(known): known for known in self._known}
        near = difflib.get_close_matches(_last(wanted[:60]), names, n=1)
        return f"; did you mean {names[near[0]]}" if near else ""

    def _allowed(self) -> str:
        """Return the names of the functions, grouped by module."""
        modules: dict[str, list[str]] = {}
        for known in self._known:
            if known != "pyautogui.hold":
                modules.setdefault(known.partition(".")[0], []).append(_last(known))
        return "; ".join(f"{module}: {', '.join(names)}" for module, names in modules.items())

    def _actions(self, kind: str, call: ast.Call, given: Mapping[str, Any]) -> list[RawAction]:
        match kind:
            case "click" | "leftClick" | "rightClick" | "middleClick" | "doubleClick" | "tripleClick":
                return self._click(kind, call, given)
            case "triple_click":
                return self._click(kind, call, given)
            case "moveTo" | "move" | "moveRel":
                return [{"op": "move", **xy(self._target(call, given))}]
            case "dragTo" | "drag" | "dragRel":
                return self._drag(call, given)
            case "mouseDown" | "mouseUp":
                op = "button_down" if kind == "mouseDown" else "button_up"
                return [{"op": op, **xy(self._point(call, given)), "button": self._button(call, given)}]
            case "scroll" | "vscroll" | "hscroll":
                clicks = self._whole(call, given, "clicks", -MAX_SCROLL_CLICKS, MAX_SCROLL_CLICKS)
                moved = {"dx": clicks} if kind == "hscroll" else {"dy": -clicks}
                return [{"op": "scroll", **xy(self._point(call, given)), **moved}]
            case "keyDown" | "keyUp":
                return [{"op": "key_down" if kind == "keyDown" else "key_up", "key": self._key(call, given)}]
            case "press":
                return self._press(call, given)
            case "hotkey" | "shortcut":
                return [{"op": "key", "keys": self._chord(call, given)}]
            case "write" | "typewrite":
                return self._write(call, given)
            case "sleep" | "wait":
                seconds = self._number(call, given, "seconds", _WAIT_S if kind == "wait" else None)
                return [{"op": "wait", "duration_ms": seconds * 1000}]
            case _:
                return [{"op": "screenshot"}]

    def arguments(self, call: ast.Call, parameters: tuple[str, ...]) -> dict[str, Any]:
        """Return the arguments by their names.

        Raises:
            UnreadableAction: There are too many, or one that the function lacks.
        """
        name, given = self.name(call).partition(".")[2], {}
        values = []
        for argument in call.args:
            if isinstance(argument, ast.Starred):
                raise self._refuse(call, "arguments must be written out, not *unpacked")
            values.append(self._values.of(argument))
        if name in ("hotkey", "shortcut") and values and not isinstance(values[0], list):
            values = [values]  # hotkey('ctrl', 'c') and hotkey(['ctrl', 'c']) are the same
        if len(values) > len(parameters):
            raise self._refuse(call, f"{name} takes at most {len(parameters)} arguments")
        for parameter, value in zip(parameters, values, strict=False):
            given[parameter] = value
        for keyword in call.keywords:
            parameter = keyword.arg or ""
            if parameter not in parameters and parameter not in _IGNORED:
                raise self._refuse(
                    call, f"{name} has no argument {parameter[:40]!r}", ", ".join(parameters) or "none"
                )
            if parameter in given:
                raise self._refuse(call, f"{name} is given {parameter} twice")
            given[parameter] = None if parameter in _IGNORED else self._values.of(keyword.value)
        for timed in ("duration", "interval"):
            if given.get(timed) is not None:
                self._number(call, given, timed, 0)
        return given

    def keys_of(self, call: ast.Call, given: Mapping[str, Any]) -> list[str]:
        """Return the argument `keys`: a key or a list of them."""
        keys = given.get("keys")
        listed = [keys] if isinstance(keys, str) else keys
        if not isinstance(listed, list) or not listed or not all(isinstance(k, str) and k for k in listed):
            raise self._refuse(call, f"keys must be names of keys, not {shown(keys)}")
        return listed

    def _chord(self, call: ast.Call, given: Mapping[str, Any]) -> list[str]:
        keys = self.keys_of(call, given)
        try:
            return check_chord(keys)
        except ChordError as exc:
            raise self._refuse(call, str(exc)) from None

    def _click(self, kind: str, call: ast.Call, given: Mapping[str, Any]) -> list[RawAction]:
        at = self._point(call, given)
        button, count = _CLICKS.get(kind, ("left", 1))
        if kind == "click":
            count = self._whole(call, given, "clicks", 1, MAX_CLICK_COUNT, 1)
        if given.get("button") is not None:
            button = self._button(call, given)
        one: RawAction = {"op": "click", **xy(at), "button": button}
        if (given.get("interval") or 0) > DOUBLE_CLICK_S:
            return [{**one, "count": 1} for _ in range(count)]
        return [{**one, "count": count}]

    def _drag(self, call: ast.Call, given: Mapping[str, Any]) -> list[RawAction]:
        """Read a drag from the pointer's position; a move just before it is its first point."""
        start = self._pointer
        end = self._target(call, given)
        button = self._button(call, given)
        if start is None:
            return self._to.drag_to(end, button=button)
        if self._to.last() == {"op": "move", **xy(start)}:
            self._to.drop_last()
        return self._to.drag_to(end, start, button=button)

    def _target(self, call: ast.Call, given: Mapping[str, Any]) -> Point:
        """Return the goal of a move: a point, or an offset from the known position of the pointer."""
        if "xOffset" not in given and "yOffset" not in given:
            at = self._point(call, given)
            if at is None:
                raise self._refuse(call, "the call needs a destination: x and y")
            return at
        if self._pointer is None:
            raise self._refuse(call, "a relative move needs a point to start from, in a call before it")
        first = given.get("xOffset")
        offsets = first if isinstance(first, list) and len(first) == 2 else (first, given.get("yOffset"))
        moved = []
        for axis, offset in enumerate(offsets):
            value = 0 if offset is None else offset
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise self._refuse(call, f"an offset must be a number, not {shown(offset)}")
            moved.append(self._pointer[axis] + int(self._space.length_px(value, axis)))
        screen = self._to.context.screen
        if not (0 <= moved[0] < screen[0] and 0 <= moved[1] < screen[1]):
            raise self._refuse(call, f"the move ends at ({moved[0]}, {moved[1]}), outside the screen")
        self._pointer = (moved[0], moved[1])
        return self._pointer

    def _point(self, call: ast.Call, given: Mapping[str, Any]) -> Point | None:
        x, y = given.get("x"), given.get("y")
        if x is None and y is None:
            return None
        if isinstance(x, list) and y is None and len(x) == 2:
            x, y = x
        at = self._space.pixel(x, y)
        if at is None:
            read = f"({shown(x)}, {shown(y)})"
            position = f"line {call.lineno}"
            raise self._to.refuse(self._space.why(x, y), position, read, self._space.allowed())
        self._pointer = at
        return at

    def _button(self, call: ast.Call, given: Mapping[str, Any]) -> str:
        value = given.get("button")
        if value is None:
            return "left"
        name = value.lower() if isinstance(value, str) else value
        if isinstance(name, (bool, float, list)) or name not in _BUTTONS:
            raise self._refuse(call, f"unknown button {shown(value)}", "left, middle, right")
        return _BUTTONS[name]

    def _key(self, call: ast.Call, given: Mapping[str, Any]) -> str:
        key = given.get("key")
        if not isinstance(key, str) or not key:
            raise self._refuse(call, f"key must be the name of a key, not {shown(key)}")
        return key

    def _press(self, call: ast.Call, given: Mapping[str, Any]) -> list[RawAction]:
        keys = self.keys_of(call, given)
        presses = self._whole(call, given, "presses", 0, MAX_KEY_REPEAT, 1)
        if len(keys) == 1:
            return [{"op": "key", "keys": keys, "repeat": presses}] if presses else []
        if len(keys) * presses > MAX_ACTIONS:
            raise self._refuse(call, f"a step has at most {MAX_ACTIONS} actions")
        return [{"op": "key", "keys": [key]} for _ in range(presses) for key in keys]

    def _write(self, call: ast.Call, given: Mapping[str, Any]) -> list[RawAction]:
        message = given.get("message")
        if isinstance(message, str):
            return [{"op": "type", "text": message}]
        if isinstance(message, list) and all(isinstance(key, str) and key for key in message):
            return [{"op": "key", "keys": [key]} for key in message]
        raise self._refuse(call, f"message must be a text or a list of keys, not {shown(message)}")

    def _terminate(self, call: ast.Call, given: Mapping[str, Any]) -> None:
        status, answer = given.get("status", "success"), given.get("answer")
        if status not in ("success", "failure"):
            raise self._refuse(call, f"unknown status {shown(status)}", "success, failure")
        if answer is not None and not isinstance(answer, str):
            raise self._refuse(call, f"an answer must be text, not {shown(answer)}")
        position = f"line {call.lineno}"
        if status == "failure":
            self._to.end(position, Ending.FAIL, answer or "")
        else:
            self._to.end(position, Ending.ANSWER if answer else Ending.DONE, answer or "")

    def _number(self, call: ast.Call, given: Mapping[str, Any], name: str, default: float | None) -> float:
        value = given.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._refuse(call, f"{name} must be a number, not {shown(value)}")
        if not 0 <= value <= MAX_DURATION_MS / 1000:
            raise self._refuse(call, f"{name} is from 0 to {MAX_DURATION_MS // 1000} s")
        return value

    def _whole(
        self, call: ast.Call, given: Mapping[str, Any], name: str, low: int, high: int, default: Any = None
    ) -> int:
        value = given.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise self._refuse(
                call, f"{name} must be a whole number from {low} to {high}, not {shown(value)}"
            )
        if value != int(value):
            raise self._refuse(call, f"{name} must be a whole number, not {shown(value)}")
        return int(value)

    def _refuse(self, call: ast.Call, why: str, allowed: str = "") -> UnreadableAction:
        return self._to.refuse(why, f"line {call.lineno}", allowed=allowed)


def _last(name: str) -> str:
    """Return a name without its module."""
    return name.rpartition(".")[2]


def _short(node: ast.expr) -> bool:
    """Return whether an expression is a name or an attribute of a name, which a message can show."""
    inner = node.value if isinstance(node, ast.Attribute) else node
    return isinstance(inner, ast.Name)
