"""GLM-4.5V and later on a desktop: `left_click(start_box='[x,y]', element_info='…')` in text.

Read in zai-org/GLM-V (2025-08-27: `examples/gui-agent/glm-45v/agent.md` and `gui_agent_45v.py`). The action
stands between `<|begin_of_box|>` and `<|end_of_box|>`, or without them behind the explanation; behind it
comes `Memory:`, which is for the reader. An answer has one action.

Coordinates are 0 to 999 from edge to edge. Texts and quotes are read as UI-TARS' (see `named_calls`). A
scroll is 5 clicks unless `step` says otherwise, `WAIT()` 5 s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
from osgym_protocol.grammars.chords import ChordError, split_chord
from osgym_protocol.grammars.named_calls import CallReader, NamedCall, quoted, unescaped
from osgym_protocol.grammars.objects import plain, xy
from osgym_protocol.grammars.registry import Evidence, Grammar
from osgym_protocol.grammars.space import Space
from osgym_protocol.limits import MAX_SCROLL_CLICKS

NAME = "glm"
SCROLL_CLICKS = 5
WAIT_MS = 5000
_OPEN, _CLOSE = "<|begin_of_box|>", "<|end_of_box|>"
_MEMORY = re.compile(r"^[ \t]*Memory[ \t]*:", re.MULTILINE)
_CLICKS = {
    "left_click": ("left", 1),
    "right_click": ("right", 1),
    "middle_click": ("middle", 1),
    "left_double_click": ("left", 2),
}
_DIRECTIONS = {"up": -1, "down": 1}
_ARGUMENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys((*_CLICKS, "hover"), (("start_box",), ("element_info",))),
    "left_drag": (("start_box", "end_box"), ("element_info",)),
    "key": (("keys",), ()),
    "type": (("content",), ()),
    "scroll": (("start_box", "direction"), ("step", "element_info")),
    **dict.fromkeys(("WAIT", "DONE", "FAIL"), ((), ())),
}
"""Arguments that each action must and may have."""
NAMES = tuple(_ARGUMENTS)
_BEGIN = re.compile(rf"(?<![\w.])(?:{'|'.join(NAMES)})\s*\(\s*(?:[a-z_]{{1,20}}\s*=|\))")

_OWN_CALL = re.compile(
    r"(?<![\w.])(?:(?:left|right|middle)_click|left_double_click|left_drag)\s*\(\s*start_box\s*="
    r"|(?<![\w.])key\s*\(\s*keys\s*=\s*['\"]|<\|begin_of_box\|>|(?<![\w.])(?:WAIT|DONE|FAIL)\(\)"
)


def parse(output: Any, context: Context) -> Parsed:
    """Read the text of an answer."""
    to = Builder(NAME, context)
    text = plain(output, NAME)
    if not isinstance(text, str):
        raise to.refuse("it must be text", read=shown(text))
    if len(text) > MAX_OUTPUT_CHARS:
        raise to.refuse(f"the output has {len(text)} characters; at most {MAX_OUTPUT_CHARS} are allowed")
    start, end = _where(text, to)
    reader = CallReader(to, NAMES, {}, number="step")
    call = reader.call(text[:end], start)
    if call.end != end:
        raise to.refuse(
            "an answer must have exactly one action", call.position, shown(text[call.end : end].strip()[:60])
        )
    reader.arguments(call, *_ARGUMENTS[call.name])
    said = text[:start].replace(_OPEN, "").rpartition("</think>")[2].strip()
    if said:
        to.texts.append(said)
    if call.name in ("DONE", "FAIL"):
        to.end(call.position, Ending(call.name.lower()))
    else:
        to.add(call.position, _read(reader, call, to))
    return to.result()


def _where(text: str, to: Builder) -> tuple[int, int]:
    """Return the start of the action, and the end of what may follow it.

    Raises:
        UnreadableAction: There is no action, more than one box, or one that is not closed.
    """
    answer = after_thinking(text)
    if answer is None:
        raise to.refuse(UNCLOSED_THOUGHTS)
    opened = text.find(_OPEN, answer)
    if opened != -1:
        closed = text.find(_CLOSE, opened)
        if closed == -1 or text.find(_OPEN, opened + 1) != -1:
            raise to.refuse(f"one action must stand between {_OPEN} and {_CLOSE}", read=shown(text[opened:]))
        return opened + len(_OPEN), closed
    memories = [found.start() for found in _MEMORY.finditer(text, answer)]
    end = memories[-1] if memories else len(text)  # the last one: a text may hold another
    begun = _BEGIN.search(text, answer, end)
    if begun is None:
        raise to.refuse("the output has no action", allowed=", ".join(NAMES))
    return begun.start(), end


def _read(reader: CallReader, call: NamedCall, to: Builder) -> RawAction:
    given, space = call.given, to.context.space("norm1000")
    at = {key: reader.pixel(call, key, space) for key in ("start_box", "end_box") if key in given}
    match call.name:
        case "hover":
            return {"op": "move", **xy(at["start_box"])}
        case "left_drag":
            return {"op": "drag", "path": [list(at["start_box"]), list(at["end_box"])]}
        case "key":
            return {"op": "key", "keys": _keys(call, to)}
        case "type":
            return {"op": "type", "text": unescaped(given["content"])}
        case "scroll":
            return {"op": "scroll", **xy(at["start_box"]), "dy": _clicks(call, to)}
        case "WAIT":
            return {"op": "wait", "duration_ms": WAIT_MS}
        case name:
            button, count = _CLICKS[name]
            return {"op": "click", **xy(at["start_box"]), "button": button, "count": count}


def _keys(call: NamedCall, to: Builder) -> list[str]:
    text = call.given["keys"]
    try:
        return split_chord(text)
    except ChordError as exc:
        raise to.refuse(f"keys: {exc}", call.position, shown(text), "keys joined by +: 'ctrl+c'") from None


def _clicks(call: NamedCall, to: Builder) -> int:
    """Return the wheel clicks of a scroll, positive downwards."""
    direction, step = call.given["direction"], call.given.get("step", str(SCROLL_CLICKS))
    if direction not in _DIRECTIONS:
        allowed = ", ".join(_DIRECTIONS)
        raise to.refuse("it must be one of the directions", call.position, shown(direction), allowed)
    if not (step.isascii() and step.isdigit() and len(step) <= 9 and int(step) <= MAX_SCROLL_CLICKS):
        why = f"step must be a whole number from 0 to {MAX_SCROLL_CLICKS}"
        raise to.refuse(why, call.position, shown(step))
    return _DIRECTIONS[direction] * int(step)


def render(
    actions: Sequence[Mapping[str, Any]], context: Context, ending: Ending | None = None, text: str = ""
) -> str:
    """Return the text of an answer, without the model's thoughts."""
    said = [_rendered(action, context.space("norm1000")) for action in actions]
    if ending is not None:
        if ending not in (Ending.DONE, Ending.FAIL) or text:
            raise CannotRender("GLM's words for an end are DONE() and FAIL(), without a text")
        said.append(f"{ending.name}()")
    if len(said) != 1:
        raise CannotRender(f"an answer of GLM must have one action, not {len(said)}")
    return f"{_OPEN}{said[0]}{_CLOSE}\nMemory:\n[]"


def _rendered(action: Mapping[str, Any], space: Space) -> str:
    def box(x: int, y: int) -> str:
        at = [f"{value:g}" if isinstance(value, float) else str(value) for value in space.point(x, y)]
        return f"'[{at[0]},{at[1]}]'"

    at = f"start_box={box(action['x'], action['y'])}" if "x" in action else ""
    bare = not action.get("modifiers")
    match action["op"]:
        case "click" if bare and at:
            of = {what: name for name, what in _CLICKS.items()}
            name = of.get((action.get("button", "left"), action.get("count", 1)))
            if name is not None:
                return f"{name}({at}, element_info='')"
        case "move":
            return f"hover({at}, element_info='')"
        case "drag" if bare and action.get("button", "left") == "left" and len(action["path"]) == 2:
            start, end = (box(*point) for point in action["path"])
            return f"left_drag(start_box={start}, end_box={end}, element_info='')"
        case "scroll" if bare and at and not action.get("dx") and action.get("unit") != "px":
            clicks = action.get("dy", 0)
            direction = "up" if clicks < 0 else "down"
            return f"scroll({at}, direction='{direction}', step={abs(clicks)}, element_info='')"
        case "type" if not action.get("press_enter"):
            return f"type(content={quoted(action['text'])})"
        case "key" if action.get("repeat", 1) == 1:
            keys = [action["keys"]] if isinstance(action["keys"], str) else action["keys"]
            names = {"+": "plus", " ": "space", "'": "apostrophe", "\\": "backslash", "-": "minus"}
            return f"key(keys='{'+'.join(names.get(key, key) for key in keys)}')"
        case "wait" if action["duration_ms"] == WAIT_MS:
            return "WAIT()"
    raise CannotRender(f"GLM has no action for {dict(action)!r:.200}")


def _in_text(text: str) -> Evidence:
    return Evidence.OWN_CALL if _OWN_CALL.search(text) else Evidence.NONE


GRAMMAR = Grammar(NAME, (), "norm1000", parse, render, _in_text)
