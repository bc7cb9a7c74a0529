"""The internal form: checks a dictionary with `op` field by field (ARCHITECTURE.md, internal actions)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from osgym_host.actions.errors import BadAction

Action = dict[str, Any]
Check = Callable[[Any], str | None]

MAX_TEXT_CHARS = 100_000
MAX_DURATION_MS = 60_000
MAX_PATH_POINTS = 1_000
BUTTONS = ("left", "middle", "right", "back", "forward")


def parse_internal(action: Mapping[str, Any]) -> Action:
    """Returns a checked copy of an internal action.

    Raises:
        BadAction: Unknown `op`, unknown or missing field, or a value of the wrong kind.
    """
    op = action.get("op")
    if not isinstance(op, str) or op not in FIELDS:
        raise BadAction(dict(action), f"there is no op {op!r}; there are {', '.join(FIELDS)}")
    required, optional = FIELDS[op]
    out: Action = {"op": op}
    for name, value in action.items():
        if name == "op":
            continue
        check = required.get(name) or optional.get(name)
        if check is None:
            raise BadAction(dict(action), f"{op} has no field {name!r}")
        if value is None and name in optional:
            continue
        wrong = check(value)
        if wrong is not None:
            raise BadAction(dict(action), f"{name} {wrong}")
        out[name] = value
    for name in required:
        if name not in out:
            raise BadAction(dict(action), f"{op} needs the field {name!r}")
    if ("x" in out) != ("y" in out):
        raise BadAction(dict(action), "x and y go together")
    return out


def _int(low: int, high: int) -> Check:
    def check(value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            return f"must be a whole number from {low} to {high}"
        return None

    return check


def _number(low: float, high: float) -> Check:
    def check(value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return "must be a number"
        if not low <= value <= high:  # false for what is not a number, too
            return f"must be a number from {low:g} to {high:g}"
        return None

    return check


def _one_of(*values: str) -> Check:
    def check(value: Any) -> str | None:
        return None if value in values else f"must be one of {', '.join(values)}"

    return check


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return "must be a text"
    return None if len(value) <= MAX_TEXT_CHARS else f"has more than {MAX_TEXT_CHARS} characters"


def _key(value: Any) -> str | None:
    return None if isinstance(value, str) and 0 < len(value) <= 64 else "must be the name of a key"


def _keys(least: int) -> Check:
    def check(value: Any) -> str | None:
        if not isinstance(value, list) or not least <= len(value) <= 8 or any(map(_key, value)):
            return f"must be a list of {least} to 8 names of keys"
        return None

    return check


def _path(value: Any) -> str | None:
    if not isinstance(value, list) or not 2 <= len(value) <= MAX_PATH_POINTS:
        return f"must be a list of 2 to {MAX_PATH_POINTS} points"
    for point in value:
        if not isinstance(point, list) or len(point) != 2 or any(map(_pixel, point)):
            return "must be a list of [x, y] in whole pixels"
    return None


_pixel = _int(-100_000, 100_000)
_button = _one_of(*BUTTONS)
_duration = _number(0, MAX_DURATION_MS)
_XY: dict[str, Check] = {"x": _pixel, "y": _pixel}
_MODIFIERS: dict[str, Check] = {"modifiers": _keys(0)}

FIELDS: dict[str, tuple[dict[str, Check], dict[str, Check]]] = {
    "click": ({}, {**_XY, "button": _button, "count": _int(1, 10), **_MODIFIERS}),
    "move": (_XY, {}),
    "drag": ({"path": _path}, {"button": _button, **_MODIFIERS}),
    "scroll": (
        {},
        {
            **_XY,
            "dx": _int(-100_000, 100_000),
            "dy": _int(-100_000, 100_000),
            "unit": _one_of("clicks", "px"),
            **_MODIFIERS,
        },
    ),
    "type": ({"text": _text}, {"press_enter": _flag}),
    "key": ({"keys": _keys(1)}, {"repeat": _int(1, 100)}),
    "hold": ({"keys": _keys(1), "duration_ms": _duration}, {}),
    "key_down": ({"key": _key}, {}),
    "key_up": ({"key": _key}, {}),
    "button_down": ({}, {**_XY, "button": _button}),
    "button_up": ({}, {**_XY, "button": _button}),
    "wait": ({"duration_ms": _duration}, {}),
    "screenshot": ({}, {}),
    "done": ({}, {}),
    "fail": ({}, {}),
}
"""op → (required fields, optional fields)."""
