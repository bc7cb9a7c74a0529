"""OSGym's action strings and internal actions, as a model's output.

Read in agiopen-org/osgym (473ce36: its server, README and `examples/osgym.py`). Coordinates of strings are
pixels unless the context says otherwise; those of internal actions always are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from osgym_protocol.grammars.base import (
    Builder,
    CannotRender,
    Context,
    Ending,
    Parsed,
    RawAction,
    UnreadableAction,
    shown,
)
from osgym_protocol.grammars.named_calls import FIRST_ARGUMENT
from osgym_protocol.grammars.objects import plain
from osgym_protocol.grammars.osgym_strings import WAIT_MS, parse_string
from osgym_protocol.grammars.registry import Evidence, Grammar

NAME = "osgym"
_ENDINGS = {"done": Ending.DONE, "fail": Ending.FAIL}

_CALL = re.compile(
    r"\s*(click|left_double|right_single|move|drag|scroll|type|press|hotkey|wait|call_user|finish)\s*\("
)


def parse(output: Any, context: Context) -> Parsed:
    """Read an output: an action string, an internal action, or a list of these."""
    to = Builder(NAME, context)
    given = plain(output, NAME)
    listed = given if isinstance(given, list) else [given]
    for place, item in enumerate(listed):
        at = f"[{place}]" if isinstance(given, list) else ""
        if isinstance(item, str):
            try:
                made = [_scaled(action, to, at) for action in parse_string(item, words=True)]
            except UnreadableAction as error:
                raise to.refuse(error.why, error.position or at, error.read, error.allowed) from None
        elif isinstance(item, Mapping) and isinstance(item.get("op"), str):
            made = [dict(item)]
        else:
            raise to.refuse("it must be text, or an object with the field op", at, shown(item))
        for action in made:
            if action["op"] in _ENDINGS:
                if len(action) > 1:
                    raise to.refuse(f"{action['op']} has no fields", at)
                to.end(at, _ENDINGS[action["op"]])
            else:
                to.add(at, action)
    if not len(to) and not to.ended:
        raise to.refuse("the output has no action")
    return to.result()


def _scaled(action: RawAction, to: Builder, position: str) -> RawAction:
    """Return an action with its points in pixels; those of the screen are left to the last check."""
    space = to.context.space("pixel")
    if space.size == space.screen and not space.closed:
        return action
    points = action.get("path") or ([[action["x"], action["y"]]] if "x" in action else [])
    pixels = []
    for x, y in points:
        pixel = space.pixel(x, y)
        if pixel is None:
            raise to.refuse(space.why(x, y), position, f"({x}, {y})", space.allowed())
        pixels.append(list(pixel))
    if "path" in action:
        return {**action, "path": pixels}
    return {**action, "x": pixels[0][0], "y": pixels[0][1]} if pixels else action


def render(
    actions: Sequence[Mapping[str, Any]], context: Context, ending: Ending | None = None, text: str = ""
) -> str:
    calls = [_rendered(action, context) for action in actions]
    if ending in (Ending.DONE, Ending.FAIL) and not text:
        calls.append("finish()" if ending is Ending.DONE else "call_user()")
    elif ending is not None:
        raise CannotRender("OSGym's words for an end are finish() and call_user(), without a text")
    made = " & ".join(calls)
    try:
        again = parse(made, context)
    except UnreadableAction as exc:
        raise CannotRender(f"it would not be read: {exc.why}") from None
    if len(again.actions) != len(actions):
        raise CannotRender("a typed text would be read as further calls")
    return made


def _rendered(action: Mapping[str, Any], context: Context) -> str:
    space = context.space("pixel")

    def point(x: int, y: int) -> str:
        px, py = space.point(x, y)
        return f"{px:g},{py:g}"

    at = point(action["x"], action["y"]) if "x" in action else ""
    bare = not action.get("modifiers")
    match action["op"]:
        case "click" if bare and at:
            of = {("left", 1): "click", ("left", 2): "left_double", ("right", 1): "right_single"}
            name = of.get((action.get("button", "left"), action.get("count", 1)))
            if name is not None:
                return f"{name}({at})"
        case "move":
            return f"move({at})"
        case "drag" if bare and action.get("button", "left") == "left" and len(action["path"]) == 2:
            return f"drag({point(*action['path'][0])},{point(*action['path'][1])})"
        case "scroll" if bare and at and not action.get("dx") and action.get("unit") != "px":
            return f"scroll({at},{-action.get('dy', 0)})"
        case "type" if not action.get("press_enter"):
            return f"type({action['text']})"
        case "key" if action.get("repeat", 1) == 1:
            keys = [action["keys"]] if isinstance(action["keys"], str) else action["keys"]
            if not any(sign in key for key in keys for sign in " ,)"):
                return f"press({keys[0]})" if len(keys) == 1 else f"hotkey({', '.join(keys)})"
        case "wait" if action["duration_ms"] == WAIT_MS:
            return "wait()"
    raise CannotRender(f"OSGym's strings have no call for {dict(action)!r:.200}")


def _in_text(text: str) -> Evidence:
    if text.strip().startswith(("<|think_start|>", "<|action_start|>")):
        return Evidence.WHOLE
    call = _CALL.match(text)
    if call is None:
        return Evidence.NONE
    if call.group(1) == "type":
        return Evidence.FREE_TEXT
    return Evidence.NONE if FIRST_ARGUMENT.match(text) else Evidence.CALL


def _in_object(item: Mapping[str, Any]) -> Evidence:
    return Evidence.MARK if "op" in item else Evidence.NONE


GRAMMAR = Grammar(NAME, (), "pixel", parse, render, _in_text, _in_object)
