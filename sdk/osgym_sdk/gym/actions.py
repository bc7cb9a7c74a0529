"""Action spaces, and what their samples are as actions of OSGym. Pure."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from osgym_protocol.limits import MAX_TEXT_CHARS
from osgym_sdk._exceptions import ConfigError
from osgym_sdk._inputs.actions import Actions

Size = tuple[int, int]
"""Width and height in pixels."""

KEYS: tuple[tuple[str, ...], ...] = (
    ("enter",), ("tab",), ("escape",), ("backspace",), ("delete",), ("space",),
    ("up",), ("down",), ("left",), ("right",), ("home",), ("end",), ("page_up",), ("page_down",),
    ("ctrl", "a"), ("ctrl", "c"), ("ctrl", "x"), ("ctrl", "v"), ("ctrl", "z"), ("ctrl", "s"),
    ("ctrl", "f"), ("ctrl", "n"), ("ctrl", "o"), ("ctrl", "w"), ("alt", "tab"), ("alt", "f4"),
    ("shift", "tab"), ("f1",), ("f2",), ("f5",), ("f10",), ("super",),
)  # fmt: skip
"""The chords that the dict form and the discrete form can press; any other is for the text form."""

OPS = (
    "wait", "move", "click", "double_click", "triple_click", "right_click", "middle_click",
    "drag", "scroll", "type", "key", "finish", "fail",
)  # fmt: skip
"""Operations of the dict form, by the number ``op``."""

MAX_SCROLL_CLICKS = 10
MAX_TYPED_CHARS = 64
"""Length of the text of one ``type`` of the dict form."""
WAIT_MS = 500
_CHARS = string.ascii_letters + string.digits + string.punctuation + " \n"
_CLICKS: dict[str, dict[str, Any]] = {
    "click": {},
    "double_click": {"count": 2},
    "triple_click": {"count": 3},
    "right_click": {"button": "right"},
    "middle_click": {"button": "middle"},
}


class ActionForm(Protocol):
    """A space, and how what is in it is done."""

    @property
    def space(self) -> spaces.Space[Any]:
        """The space of one environment's actions."""

    def actions(self, value: Any, screen: Size) -> Actions:
        """Return what is sent to the host for one action; ``screen`` is the real screen's size.

        Raises:
            ValueError: the value is not of the space.
        """


def on_screen(at: Any, image: Size, screen: Size) -> Size:
    """Return the middle of an image's pixel on the screen."""
    x, y = (int((int(at[side]) + 0.5) * screen[side] / image[side]) for side in (0, 1))
    return min(x, screen[0] - 1), min(y, screen[1] - 1)


class DictActions:
    """``Dict``: an operation, and the fields that it may need; the others are not looked at.

    ``op`` counts :data:`OPS`; ``at`` and ``to`` (of a drag) are pixels of the observation, ``(x, y)``;
    ``scroll`` is wheel clicks down; ``key`` counts :data:`KEYS`; ``text`` is what ``type`` types.
    """

    def __init__(self, image: Size) -> None:
        self._image = image
        self.space: spaces.Space[Any] = spaces.Dict(
            {
                "op": spaces.Discrete(len(OPS)),
                "at": spaces.MultiDiscrete(list(image)),
                "to": spaces.MultiDiscrete(list(image)),
                "scroll": spaces.Discrete(2 * MAX_SCROLL_CLICKS + 1, start=-MAX_SCROLL_CLICKS),
                "key": spaces.Discrete(len(KEYS)),
                "text": spaces.Text(MAX_TYPED_CHARS, min_length=0, charset=_CHARS),
            }
        )

    def actions(self, value: Any, screen: Size) -> Actions:
        """See :class:`ActionForm`."""
        if not isinstance(value, Mapping) or not 0 <= int(value["op"]) < len(OPS):
            raise ValueError(f"not an action of {self.space}: {value!r}"[:300])
        op = OPS[int(value["op"])]
        x, y = on_screen(value["at"], self._image, screen)
        match op:
            case "wait":
                return {"op": "wait", "duration_ms": WAIT_MS}
            case "move":
                return {"op": "move", "x": x, "y": y}
            case "drag":
                return {"op": "drag", "path": [[x, y], list(on_screen(value["to"], self._image, screen))]}
            case "scroll":
                return {"op": "scroll", "x": x, "y": y, "dy": int(value["scroll"])}
            case "type":
                return {"op": "type", "text": str(value["text"])}
            case "key":
                return {"op": "key", "keys": list(KEYS[int(value["key"])])}
            case "finish":
                return {"op": "done"}
            case "fail":
                return {"op": "fail"}
            case _:
                return {"op": "click", "x": x, "y": y, **_CLICKS[op]}


class DiscreteActions:
    """``Discrete``: clicks into a grid of cells, then double clicks, scrolls, :data:`KEYS`, wait, finish.

    ``meanings`` says what each number is.
    """

    def __init__(self, columns: int, rows: int) -> None:
        """Take the grid. Raises ConfigError if it has no cells."""
        if columns < 1 or rows < 1:
            raise ConfigError("grid must have at least one column and one row")
        self._grid = (columns, rows)
        cells = [(x, y) for y in range(rows) for x in range(columns)]
        self._made: list[tuple[str, Any]] = [("click", cell) for cell in cells]
        self._made += [("double_click", cell) for cell in cells]
        self._made += [("scroll", -5), ("scroll", 5), *(("key", keys) for keys in KEYS)]
        self._made += [("wait", None), ("finish", None)]
        self.meanings = tuple(op if of is None else f"{op} {_shown(of)}" for op, of in self._made)
        self.space: spaces.Space[Any] = spaces.Discrete(len(self._made))

    def actions(self, value: Any, screen: Size) -> Actions:
        """See :class:`ActionForm`."""
        if not 0 <= int(value) < len(self._made):
            raise ValueError(f"not an action of {self.space}: {value!r}"[:300])
        op, of = self._made[int(value)]
        match op:
            case "scroll":
                return {"op": "scroll", "x": screen[0] // 2, "y": screen[1] // 2, "dy": of}
            case "key":
                return {"op": "key", "keys": list(of)}
            case "wait":
                return {"op": "wait", "duration_ms": WAIT_MS}
            case "finish":
                return {"op": "done"}
            case _:
                x, y = on_screen(of, self._grid, screen)
                return {"op": "click", "x": x, "y": y, **_CLICKS[op]}


class Utterance(spaces.Text):
    """Any text of at most ``max_length`` characters; samples are actions in OSGym's grammar."""

    def contains(self, x: Any) -> bool:
        """Tell a text that is not too long, whatever its characters."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a click, or a look; coordinates are such that any screen has them."""
        x, y = self.np_random.integers(0, 400, 2)
        return f"click({x},{y})" if self.np_random.random() < 0.8 else "wait()"


class TextActions:
    """``Text``: what a model said, in OSGym's grammar or the one of ``grammar=``.

    A step also takes what the space does not say: actions as objects, and lists of actions.
    """

    def __init__(self) -> None:
        self.space: spaces.Space[Any] = Utterance(MAX_TEXT_CHARS, min_length=0)

    def actions(self, value: Any, screen: Size) -> Actions:
        """See :class:`ActionForm`; whatever cannot be sent is refused when it is sent."""
        return str(value) if isinstance(value, np.str_) else value


def make_form(form: str, image: Size, grid: tuple[int, int]) -> ActionForm:
    """Return an action form by its name.

    Raises:
        ConfigError: there is none of that name.
    """
    match form:
        case "dict":
            return DictActions(image)
        case "discrete":
            return DiscreteActions(*grid)
        case "text":
            return TextActions()
    raise ConfigError(f"action_form must be dict, discrete or text, not {form!r}")


def _shown(of: Any) -> str:
    if isinstance(of, tuple) and isinstance(of[0], str):
        return "+".join(of)
    return str(of)
