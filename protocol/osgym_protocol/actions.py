"""Internal actions: from JSON to checked values.

Pure. No action is executed before the whole list is valid.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from osgym_protocol.codes import TextEnum
from osgym_protocol.keysyms import KEYSYMS, MODIFIERS, char_keysym, key_keysym
from osgym_protocol.limits import (
    MAX_ACTIONS,
    MAX_CLICK_COUNT,
    MAX_DURATION_MS,
    MAX_KEY_REPEAT,
    MAX_KEYS,
    MAX_PATH_POINTS,
    MAX_SCROLL_CLICKS,
    MAX_STEP_ACTIONS_BYTES,
    MAX_TEXT_CHARS,
    MAX_WHY_CHARS,
    PIXELS_PER_SCROLL_CLICK,
)

BUTTONS = {"left": 1, "middle": 2, "right": 3, "back": 8, "forward": 9}

_MODIFIER_KEYSYMS = frozenset(KEYSYMS[name] for name in MODIFIERS)


class Op(TextEnum):
    """Names of the internal actions that a guest executes."""

    CLICK = "click"
    MOVE = "move"
    DRAG = "drag"
    SCROLL = "scroll"
    TYPE = "type"
    KEY = "key"
    HOLD = "hold"
    KEY_DOWN = "key_down"
    KEY_UP = "key_up"
    BUTTON_DOWN = "button_down"
    BUTTON_UP = "button_up"
    WAIT = "wait"
    SCREENSHOT = "screenshot"


class InvalidAction(ValueError):
    """An action that is refused.

    Attributes:
        index: Place of the action in the list.
        message: Reason; shortened where it cites the input.
    """

    def __init__(self, message: str, index: int = 0) -> None:
        message = message if len(message) <= MAX_WHY_CHARS else message[: MAX_WHY_CHARS - 3] + "..."
        super().__init__(message)
        self.index = index
        self.message = message


Point = tuple[int, int]


@dataclass(frozen=True)
class Click:
    """Press and release a button `count` times, at `at` or where the pointer is."""

    at: Point | None
    button: int
    count: int
    modifiers: tuple[int, ...]


@dataclass(frozen=True)
class Move:
    """Move the pointer to a point."""

    at: Point


@dataclass(frozen=True)
class Drag:
    """Press at the first point, move through all, release at the last."""

    path: tuple[Point, ...]
    button: int
    modifiers: tuple[int, ...]


@dataclass(frozen=True)
class Scroll:
    """Turn the wheel: `dx` clicks to the right, `dy` clicks down."""

    at: Point | None
    dx: int
    dy: int
    modifiers: tuple[int, ...]


@dataclass(frozen=True)
class Type:
    """Type a text exactly."""

    text: str


@dataclass(frozen=True)
class Key:
    """Press a chord of keysyms `repeat` times."""

    keysyms: tuple[int, ...]
    repeat: int


@dataclass(frozen=True)
class Hold:
    """Hold a chord for a time."""

    keysyms: tuple[int, ...]
    duration_ms: float


@dataclass(frozen=True)
class KeyState:
    """Press or release one key and leave it so."""

    keysym: int
    down: bool


@dataclass(frozen=True)
class ButtonState:
    """Press or release one button and leave it so."""

    at: Point | None
    button: int
    down: bool


@dataclass(frozen=True)
class Wait:
    """Do nothing for a time."""

    duration_ms: float


@dataclass(frozen=True)
class Screenshot:
    """Do nothing: the observation is the answer."""


Action = Click | Move | Drag | Scroll | Type | Key | Hold | KeyState | ButtonState | Wait | Screenshot


_OPS: Mapping[type[Action], Op] = {
    Click: Op.CLICK,
    Move: Op.MOVE,
    Drag: Op.DRAG,
    Scroll: Op.SCROLL,
    Type: Op.TYPE,
    Key: Op.KEY,
    Hold: Op.HOLD,
    Wait: Op.WAIT,
    Screenshot: Op.SCREENSHOT,
}


def points_of(action: Action) -> tuple[Point, ...]:
    """Return the points of the screen that an action names."""
    if isinstance(action, Drag):
        return action.path
    at = action.at if isinstance(action, (Click, Move, Scroll, ButtonState)) else None
    return () if at is None else (at,)


def op_of(action: Action) -> Op:
    """Return the name of an action."""
    match action:
        case KeyState():
            return Op.KEY_DOWN if action.down else Op.KEY_UP
        case ButtonState():
            return Op.BUTTON_DOWN if action.down else Op.BUTTON_UP
    return _OPS[type(action)]


class _Fields:
    """Fields of one action; a field that nothing takes is refused at the end."""

    def __init__(self, raw: Mapping[str, Any], screen: Point) -> None:
        self._raw = dict(raw)
        self._screen = screen
        self._raw.pop("op")

    def take(self, name: str, default: Any = None) -> Any:
        value = self._raw.pop(name, None)
        return default if value is None else value

    def finish(self) -> None:
        if self._raw:
            raise InvalidAction(f"unknown field {sorted(self._raw)[0]!r}")

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise InvalidAction(f"{name} must be a number from {low:g} to {high:g}, not {value!r}")
        return float(value)

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        value = self.take(name, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InvalidAction(f"{name} must be a whole number from {low} to {high}, not {value!r}")
        return value

    def point(self) -> Point | None:
        x, y = self.take("x"), self.take("y")
        return None if x is None and y is None else self.on_screen(x, y)

    def on_screen(self, x: Any, y: Any) -> Point:
        for value in (x, y):
            if isinstance(value, bool) or not isinstance(value, int):
                raise InvalidAction(f"coordinates must be whole pixels, not ({x!r}, {y!r})")
        width, height = self._screen
        if not (0 <= x < width and 0 <= y < height):
            raise InvalidAction(f"({x}, {y}) lies outside the screen of {width}x{height}")
        return x, y

    def path(self) -> tuple[Point, ...]:
        value = self.take("path")
        if not isinstance(value, list) or not 2 <= len(value) <= MAX_PATH_POINTS:
            raise InvalidAction("path must be a list of at least two points")
        for point in value:
            if not isinstance(point, (list, tuple)) or len(point) != 2:
                raise InvalidAction(f"a point of the path must be [x, y], not {point!r}")
        return tuple(self.on_screen(x, y) for x, y in value)

    def button(self) -> int:
        name = self.take("button", "left")
        if not isinstance(name, str) or name.lower() not in BUTTONS:
            raise InvalidAction(f"button must be one of {', '.join(BUTTONS)}, not {name!r}")
        return BUTTONS[name.lower()]

    def modifiers(self) -> tuple[int, ...]:
        names = self.take("modifiers", [])
        if not isinstance(names, list) or len(names) > MAX_KEYS:
            raise InvalidAction("modifiers must be a list of key names")
        keysyms = tuple(_keysym(name) for name in names)
        for name, keysym in zip(names, keysyms):  # noqa: B905 - same length by construction
            if keysym not in _MODIFIER_KEYSYMS:
                raise InvalidAction(f"{name!r} is not a modifier")
        return keysyms

    def keys(self) -> tuple[int, ...]:
        names = self.take("keys")
        if isinstance(names, str):
            names = [names]
        if not isinstance(names, list) or not 1 <= len(names) <= MAX_KEYS:
            raise InvalidAction(f"keys must be a list of one to {MAX_KEYS} key names")
        if len(names) > 1:  # in a chord a letter names its key: Ctrl and "S" is not Ctrl+Shift+S
            names = [n.lower() if isinstance(n, str) and len(n) == 1 else n for n in names]
        return tuple(_keysym(name) for name in names)

    def key(self) -> int:
        return _keysym(self.take("key"))

    def text(self) -> str:
        value = self.take("text")
        if not isinstance(value, str) or len(value) > MAX_TEXT_CHARS:
            raise InvalidAction(f"text must be a string of at most {MAX_TEXT_CHARS} characters")
        value = value.replace("\r\n", "\n")
        for char in set(value):
            try:
                char_keysym(char)
            except KeyError as exc:
                raise InvalidAction(str(exc.args[0])) from exc
        return value

    def flag(self, name: str) -> bool:
        value = self.take(name, False)
        if not isinstance(value, bool):
            raise InvalidAction(f"{name} must be true or false")
        return value

    def scroll(self) -> tuple[int, int]:
        unit = self.take("unit", "clicks")
        if unit == "clicks":
            limit = MAX_SCROLL_CLICKS
            return self.integer("dx", -limit, limit, 0), self.integer("dy", -limit, limit, 0)
        if unit != "px":
            raise InvalidAction(f"unit must be clicks or px, not {unit!r}")
        limit = MAX_SCROLL_CLICKS * PIXELS_PER_SCROLL_CLICK
        return _clicks(self.number("dx", -limit, limit, 0)), _clicks(self.number("dy", -limit, limit, 0))


def _clicks(pixels: float) -> int:
    """Return the wheel clicks nearest to a distance; any distance is at least one."""
    if pixels == 0:
        return 0
    clicks = max(1, int(abs(pixels) / PIXELS_PER_SCROLL_CLICK + 0.5))
    return clicks if pixels > 0 else -clicks


def _keysym(name: Any) -> int:
    if not isinstance(name, str) or not name:
        raise InvalidAction(f"a key name must be a string, not {name!r}")
    try:
        return key_keysym(name)
    except KeyError as exc:
        raise InvalidAction(str(exc.args[0])) from exc


def _click(f: _Fields) -> Click:
    return Click(f.point(), f.button(), f.integer("count", 1, MAX_CLICK_COUNT, 1), f.modifiers())


def _scroll(f: _Fields) -> Scroll:
    dx, dy = f.scroll()
    return Scroll(f.point(), dx, dy, f.modifiers())


def _type(f: _Fields) -> Type:
    return Type(f.text() + ("\n" if f.flag("press_enter") else ""))


_PARSERS: dict[str, Callable[[_Fields], Action]] = {
    Op.CLICK.value: _click,
    Op.MOVE.value: lambda f: Move(f.on_screen(f.take("x"), f.take("y"))),
    Op.DRAG.value: lambda f: Drag(f.path(), f.button(), f.modifiers()),
    Op.SCROLL.value: _scroll,
    Op.TYPE.value: _type,
    Op.KEY.value: lambda f: Key(f.keys(), f.integer("repeat", 1, MAX_KEY_REPEAT, 1)),
    Op.HOLD.value: lambda f: Hold(f.keys(), f.number("duration_ms", 0, MAX_DURATION_MS)),
    Op.KEY_DOWN.value: lambda f: KeyState(f.key(), True),
    Op.KEY_UP.value: lambda f: KeyState(f.key(), False),
    Op.BUTTON_DOWN.value: lambda f: ButtonState(f.point(), f.button(), True),
    Op.BUTTON_UP.value: lambda f: ButtonState(f.point(), f.button(), False),
    Op.WAIT.value: lambda f: Wait(f.number("duration_ms", 0, MAX_DURATION_MS)),
    Op.SCREENSHOT.value: lambda f: Screenshot(),
}


def parse_action(raw: Any, screen: Point) -> Action:
    """Parse one action.

    Args:
        raw: JSON object.
        screen: Width and height in pixels.

    Raises:
        InvalidAction: It is refused; the message has the reason.
    """
    if not isinstance(raw, dict) or not isinstance(raw.get("op"), str):
        raise InvalidAction("an action must be an object with the field op")
    parser = _PARSERS.get(raw["op"])
    if parser is None:
        raise InvalidAction(f"unknown action {raw['op']!r}")
    fields = _Fields(raw, screen)
    action = parser(fields)
    fields.finish()
    return action


def parse_actions(raw: Any, screen: Point) -> list[Action]:
    """Parse all actions of a step.

    Raises:
        InvalidAction: The first action that is refused; none has been executed.
    """
    if not isinstance(raw, list) or len(raw) > MAX_ACTIONS:
        raise InvalidAction(f"actions must be a list of at most {MAX_ACTIONS}")
    actions: list[Action] = []
    total_ms = 0.0
    for index, item in enumerate(raw):
        try:
            action = parse_action(item, screen)
        except InvalidAction as exc:
            raise InvalidAction(exc.message, index) from exc
        total_ms += getattr(action, "duration_ms", 0.0)
        if total_ms > MAX_DURATION_MS:
            raise InvalidAction(f"the waits of a step must take at most {MAX_DURATION_MS} ms in all", index)
        actions.append(action)
    return actions


def check_encoded_size(raw: Sequence[Mapping[str, Any]]) -> None:
    """Check that a guest accepts the size of a step's actions, encoded together in UTF-8 without blanks.

    Raises:
        InvalidAction: They are too large; the index is that of the longest action.
    """
    sizes = [len(json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode()) + 1 for item in raw]
    if sum(sizes) > MAX_STEP_ACTIONS_BYTES:
        message = (
            f"a step's actions have {sum(sizes)} bytes as JSON; at most {MAX_STEP_ACTIONS_BYTES} are allowed"
        )
        raise InvalidAction(message, sizes.index(max(sizes)))
