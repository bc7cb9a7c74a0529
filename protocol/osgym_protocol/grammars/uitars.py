"""UI-TARS: `Thought: …` and `Action: click(start_box='(x,y)')` in text; an empty line between actions.

Read in bytedance/UI-TARS (2025-09-05: `codes/ui_tars/prompt.py`, `action_parser.py`,
`README_coordinates.md`). Points are written `'(x,y)'`, `'<|box_start|>(x,y)<|box_end|>'`, `'<point>x
y</point>'` or as a box of four numbers, whose centre is meant (see `named_calls`).

Coordinates: of UI-TARS 1.0 and of its successors from Doubao, 0 to 1000 from edge to edge; of UI-TARS 1.5,
pixels of the image after the processor has resized it (`smart_resize`). A scroll is 5 clicks, a `wait()` 5
s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from osgym_protocol.grammars.base import (
    MAX_OUTPUT_CHARS,
    UNCLOSED_THOUGHTS,
    Builder,
    CannotRender,
    Context,
    Ending,
    Parsed,
    RawAction,
    after_thinking,
    shown,
)
from osgym_protocol.grammars.chords import ChordError, split_spaced_chord
from osgym_protocol.grammars.named_calls import FIRST_ARGUMENT, CallReader, NamedCall, quoted, unescaped
from osgym_protocol.grammars.objects import DIRECTIONS, plain, xy
from osgym_protocol.grammars.registry import Evidence, Grammar
from osgym_protocol.grammars.space import Space, smart_resize

NAME = "uitars"
SCROLL_CLICKS = 5
WAIT_MS = 5000
_ACTION = re.compile(r"^[ \t]*Action[ \t]*:", re.MULTILINE)
_SAME = {
    "point": "start_box",
    "start_point": "start_box",
    "end_point": "end_box",
    "hotkey": "key",
    "press": "key",
}
_KEY_NAMES = {"+": "plus", " ": "space", "'": "apostrophe", "\\": "backslash"}
_END_TOKENS = ("[EOS]", "<|im_end|>")

_ACTION_CALL = re.compile(r"^[ \t]*Action[ \t]*:\s*[a-z_]{1,20}\s*\(", re.MULTILINE)


def parse(output: Any, context: Context) -> Parsed:
    """Read the text of an answer. Without `Action:` the whole text is actions."""
    to = Builder(NAME, context)
    text = plain(output, NAME)
    if not isinstance(text, str):
        raise to.refuse("it must be text", read=shown(text))
    if len(text) > MAX_OUTPUT_CHARS:
        raise to.refuse(f"the output has {len(text)} characters; at most {MAX_OUTPUT_CHARS} are allowed")
    for token in _END_TOKENS:
        text = text.removesuffix(token)
    answer = after_thinking(text)
    if answer is None:
        raise to.refuse(UNCLOSED_THOUGHTS)
    begins = _ACTION.search(text, answer)
    at = begins.end() if begins else answer
    thought = text[: begins.start()].strip() if begins else ""
    reader = CallReader(to, NAMES, _SAME)
    while text[at:].strip():
        call = reader.call(text, at)
        _act(reader, call, to)
        at = call.end
    if not len(to) and not to.ended:
        raise to.refuse("the output has no action", allowed=", ".join(NAMES))
    if thought and not to.texts:
        to.texts.append(thought)
    return to.result()


def _act(reader: CallReader, call: NamedCall, to: Builder) -> None:
    space, position, given = _space(to.context), call.position, call.given
    needed, optional, read = _ACTIONS[call.name]
    reader.arguments(call, needed, optional)
    if call.name == "finished":
        to.end(position, Ending.DONE, unescaped(given.get("content", "")))
        return
    if call.name == "call_user":
        to.end(position, Ending.ASK_USER, unescaped(given.get("content", "")))
        return
    arguments: dict[str, Any] = dict(given)
    for key in ("start_box", "end_box"):
        if key in given:
            arguments[key] = reader.pixel(call, key, space)
    if "content" in given:
        arguments["content"] = unescaped(given["content"])
    if "key" in given:
        arguments["key"] = _keys(given["key"], position, to)
    if "direction" in given and given["direction"] not in DIRECTIONS:
        allowed = ", ".join(DIRECTIONS)
        raise to.refuse("it must be one of the directions", position, shown(given["direction"]), allowed)
    to.add(position, *read(arguments))


def _keys(text: str, position: str, to: Builder) -> list[str]:
    """Read `ctrl c`. Some answers have `ctrl+c`, and more than the prompt's three keys."""
    try:
        return split_spaced_chord(text)
    except ChordError as exc:
        raise to.refuse(f"key: {exc}", position, shown(text), "keys with blanks between: 'ctrl c'") from None


def _space(context: Context) -> Space:
    if context.version == "1.5":
        width, height = context.image or context.screen
        return context.space(smart_resize(width, height, 28, 100 * 28 * 28, 16384 * 28 * 28))
    return context.space("norm1000")


_Read = Callable[[dict[str, Any]], list[RawAction]]


def _click(button: str, count: int) -> tuple[tuple[str, ...], tuple[str, ...], _Read]:
    return ("start_box",), (), lambda given: [
        {"op": "click", **xy(given["start_box"]), "button": button, "count": count}
    ]  # fmt: skip


def _scroll(given: dict[str, Any]) -> list[RawAction]:
    dx, dy = DIRECTIONS[given["direction"]]
    at = xy(given.get("start_box"))
    return [{"op": "scroll", **at, "dx": dx * SCROLL_CLICKS, "dy": dy * SCROLL_CLICKS}]


def _drag(given: dict[str, Any]) -> list[RawAction]:
    return [{"op": "drag", "path": [list(given["start_box"]), list(given["end_box"])]}]


def _key_state(op: str) -> tuple[tuple[str, ...], tuple[str, ...], _Read]:
    return ("key",), (), lambda given: [{"op": op, "key": key} for key in given["key"]]


_MOVE: tuple[tuple[str, ...], tuple[str, ...], _Read] = (
    ("start_box",), (), lambda given: [{"op": "move", **xy(given["start_box"])}],
)  # fmt: skip
_ACTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...], _Read]] = {
    "click": _click("left", 1),
    "left_single": _click("left", 1),
    "left_double": _click("left", 2),
    "right_single": _click("right", 1),
    "hover": _MOVE,
    "drag": (("start_box", "end_box"), (), _drag),
    "select": (("start_box", "end_box"), (), _drag),
    "hotkey": (("key",), (), lambda given: [{"op": "key", "keys": given["key"]}]),
    "press": _key_state("key_down"),
    "keydown": _key_state("key_down"),
    "release": _key_state("key_up"),
    "keyup": _key_state("key_up"),
    "type": (("content",), (), lambda given: [{"op": "type", "text": given["content"]}]),
    "scroll": (("direction",), ("start_box",), _scroll),
    "wait": ((), (), lambda given: [{"op": "wait", "duration_ms": WAIT_MS}]),
    "finished": ((), ("content",), lambda given: []),
    "call_user": ((), ("content",), lambda given: []),
}
NAMES = tuple(_ACTIONS)


def render(
    actions: Sequence[Mapping[str, Any]], context: Context, ending: Ending | None = None, text: str = ""
) -> str:
    """Return the text of an answer, without the model's thoughts."""
    lines = [_rendered(action, _space(context)) for action in actions]
    if ending is not None:
        name = "call_user" if ending is Ending.ASK_USER else "finished"
        if ending is Ending.FAIL:
            raise CannotRender("UI-TARS can only give up by call_user")
        lines.append(f"{name}(content={quoted(text)})" if text else f"{name}()")
    return "Action: " + "\n\n".join(lines)


def _rendered(action: Mapping[str, Any], space: Space) -> str:
    def box(x: int, y: int) -> str:
        at = [f"{value:g}" if isinstance(value, float) else str(value) for value in space.point(x, y)]
        return f"'({at[0]},{at[1]})'"

    at = box(action["x"], action["y"]) if "x" in action else ""
    bare = not action.get("modifiers")
    match action["op"]:
        case "click" if bare and at:
            of = {("left", 1): "click", ("left", 2): "left_double", ("right", 1): "right_single"}
            name = of.get((action.get("button", "left"), action.get("count", 1)))
            if name is not None:
                return f"{name}(start_box={at})"
        case "move":
            return f"hover(start_box={at})"
        case "drag" if bare and action.get("button", "left") == "left" and len(action["path"]) == 2:
            start, end = action["path"]
            return f"drag(start_box={box(*start)}, end_box={box(*end)})"
        case "scroll" if bare:
            moved = (action.get("dx", 0), action.get("dy", 0))
            for direction, (dx, dy) in DIRECTIONS.items():
                if action.get("unit") != "px" and moved == (dx * SCROLL_CLICKS, dy * SCROLL_CLICKS):
                    return f"scroll(start_box={at}, direction='{direction}')" if at else (
                        f"scroll(direction='{direction}')"
                    )  # fmt: skip
        case "type" if not action.get("press_enter"):
            return f"type(content={quoted(action['text'])})"
        case "key" if action.get("repeat", 1) == 1:
            keys = action["keys"] if isinstance(action["keys"], list) else [action["keys"]]
            names: list[str] = [str(_KEY_NAMES.get(key, key)) for key in keys]
            return f"hotkey(key='{' '.join(names)}')"
        case "key_down" | "key_up":
            key = action["key"]
            if len(key) > 1 or key.isalnum():
                return f"{'press' if action['op'] == 'key_down' else 'release'}(key='{key}')"
        case "wait" if action["duration_ms"] == WAIT_MS:
            return "wait()"
    raise CannotRender(f"UI-TARS has no action for {dict(action)!r:.200}")


def _in_text(text: str) -> Evidence:
    if _ACTION_CALL.search(text):
        return Evidence.MARK
    return Evidence.CALL if FIRST_ARGUMENT.match(text) else Evidence.NONE


GRAMMAR = Grammar(NAME, ("1.5", "1.0"), "norm1000", parse, render, _in_text)
