"""OSWorld's computer_13: `{"action_type", "parameters"}` or flat, and the bare words WAIT, DONE, FAIL.

Read in xlang-ai/OSWorld (`desktop_env/actions.py`, as in desktop-env 1.0.2). Coordinates are pixels.
Answers of models have the object in a fence (```json), which is read too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from osgym_protocol.grammars.base import (
    UNCLOSED_THOUGHTS,
    Builder,
    CannotRender,
    Context,
    Ending,
    Parsed,
    RawAction,
    UnreadableAction,
    after_thinking,
    shown,
)
from osgym_protocol.grammars.chords import ChordError, listed_chord, split_chord
from osgym_protocol.grammars.objects import from_json, plain
from osgym_protocol.grammars.registry import Evidence, Grammar

NAME = "computer13"
WAIT_MS = 2000
"""Duration of WAIT: OSWorld's pause of a step."""
WORDS: dict[str, RawAction] = {
    "WAIT": {"op": "wait", "duration_ms": WAIT_MS},
    "DONE": {"op": "done"},
    "FAIL": {"op": "fail"},
}
_FIELDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "MOVE_TO": (frozenset("xy"), frozenset()),
    "CLICK": (frozenset(), frozenset(("button", "x", "y", "num_clicks"))),
    "MOUSE_DOWN": (frozenset(), frozenset(("button",))),
    "MOUSE_UP": (frozenset(), frozenset(("button",))),
    "RIGHT_CLICK": (frozenset(), frozenset("xy")),
    "DOUBLE_CLICK": (frozenset(), frozenset("xy")),
    "DRAG_TO": (frozenset("xy"), frozenset()),
    "SCROLL": (frozenset(), frozenset(("dx", "dy"))),
    "TYPING": (frozenset(("text",)), frozenset()),
    "PRESS": (frozenset(("key",)), frozenset()),
    "KEY_DOWN": (frozenset(("key",)), frozenset()),
    "KEY_UP": (frozenset(("key",)), frozenset()),
    "HOTKEY": (frozenset(("keys",)), frozenset()),
    **{word: (frozenset(), frozenset()) for word in WORDS},
}


_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)


def _refused(why: str) -> UnreadableAction:
    return UnreadableAction(NAME, why)


def parse(output: Any, context: Context) -> Parsed:
    """Read an output: an object, a word, a list of these, or an answer with such an object in a fence."""
    to = Builder(NAME, context)
    given = plain(output, NAME)
    if isinstance(given, str):
        given = _of_text(given, to)
    for place, item in enumerate(given if isinstance(given, list) else [given]):
        at = f"[{place}]" if isinstance(given, list) else ""
        item = {"action_type": item} if isinstance(item, str) and item in WORDS else item
        if not isinstance(item, dict):
            raise to.refuse("an action must be an object with action_type", at, shown(item))
        try:
            made = parse_computer13(_scaled(item, to, at))
        except UnreadableAction as error:
            raise to.refuse(error.why, error.position or at, error.read, error.allowed) from None
        if item["action_type"] == "DRAG_TO":
            made = to.drag_to((made[1]["x"], made[1]["y"]))
        for action in made:
            if action["op"] in ("done", "fail"):
                to.end(at, Ending(action["op"]))
            else:
                to.add(at, action)
    if not len(to) and not to.ended:
        raise to.refuse("the output has no action")
    return to.result()


def _of_text(text: str, to: Builder) -> Any:
    """Return the objects of an answer: of its fences, or of the whole text."""
    answer = after_thinking(text)
    if answer is None:
        raise to.refuse(UNCLOSED_THOUGHTS)
    text = text[answer:]
    fenced = [found.group(1).strip() for found in _FENCED.finditer(text)]
    made: list[Any] = []
    for body in fenced or [text.strip()]:
        one = body if body in WORDS else from_json(body, NAME)
        made += one if isinstance(one, list) else [one]
    return made


def _scaled(item: dict[str, Any], to: Builder, position: str) -> dict[str, Any]:
    """Return the object with pixels for its x and y, of which it must have both or none."""
    nested = item.get("parameters")
    given = nested if isinstance(nested, dict) else item
    if "x" not in given and "y" not in given:
        return item
    space = to.context.space()
    x, y = given.get("x"), given.get("y")
    pixel = space.pixel(x, y)
    if pixel is None:
        read = f"({shown(x)}, {shown(y)})"
        raise to.refuse(space.why(x, y), position, read, space.allowed())
    scaled = {**given, "x": pixel[0], "y": pixel[1]}
    return {**item, "parameters": scaled} if given is nested else scaled


def parse_computer13(action: Mapping[str, Any]) -> list[RawAction]:
    """Return the internal actions (not checked yet) of a computer_13 dictionary.

    `DRAG_TO` starts where the pointer is: button down, move, button up.

    Raises:
        UnreadableAction: Unknown type, unknown or missing parameter.
    """
    kind = action.get("action_type")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise _refused(f"unknown action_type {shown(kind)}; valid types: {', '.join(_FIELDS)}")
    beside = [name for name in action if name not in ("action_type", "parameters")]
    if "parameters" in action and beside:
        raise _refused(f"{beside[0]!r:.60} stands beside 'parameters'; put it into 'parameters'")
    given = (
        action["parameters"]
        if "parameters" in action
        else {name: value for name, value in action.items() if name != "action_type"}
    )
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise _refused("parameters must be an object")
    required, optional = _FIELDS[kind]
    for name in given:
        if name not in required and name not in optional:
            raise _refused(f"{kind} has no parameter {shown(name)}")
    for name in sorted(required):
        if name not in given:
            raise _refused(f"{kind} needs the parameter {name!r}")
    if kind == "SCROLL" and not given:
        raise _refused("SCROLL needs dx or dy")
    return _translate(kind, dict(given))


def _translate(kind: str, given: dict[str, Any]) -> list[RawAction]:
    if kind in WORDS:
        return [dict(WORDS[kind])]
    at: RawAction = {name: given[name] for name in ("x", "y") if name in given}
    button = {"button": given["button"]} if "button" in given else {}
    match kind:
        case "MOVE_TO":
            return [{"op": "move", **at}]
        case "CLICK":
            count = {"count": given["num_clicks"]} if "num_clicks" in given else {}
            return [{"op": "click", **at, **button, **count}]
        case "RIGHT_CLICK":
            return [{"op": "click", **at, "button": "right"}]
        case "DOUBLE_CLICK":
            return [{"op": "click", **at, "count": 2}]
        case "MOUSE_DOWN":
            return [{"op": "button_down", **button}]
        case "MOUSE_UP":
            return [{"op": "button_up", **button}]
        case "DRAG_TO":
            return [{"op": "button_down"}, {"op": "move", **at}, {"op": "button_up"}]
        case "SCROLL":
            return [_scroll(given)]
        case "TYPING":
            return [{"op": "type", "text": given["text"]}]
        case "PRESS":
            return [{"op": "key", "keys": [given["key"]]}]
        case "HOTKEY":
            return [{"op": "key", "keys": _chord(given["keys"])}]
        case _:
            return [{"op": kind.lower(), "key": given["key"]}]


def _chord(keys: Any) -> list[str]:
    if not isinstance(keys, (str, list)):
        raise _refused(f"keys must be a list of names of keys, not {shown(keys)}")
    try:
        return split_chord(keys) if isinstance(keys, str) else listed_chord(keys)
    except ChordError as exc:
        raise _refused(f"keys: {exc}") from None


def _scroll(given: dict[str, Any]) -> RawAction:
    up = given.get("dy", 0)
    if isinstance(up, bool) or not isinstance(up, int):
        raise _refused("dy must be a whole number")
    return {"op": "scroll", "dx": given.get("dx", 0), "dy": -up}


def render(
    actions: Sequence[Mapping[str, Any]], context: Context, ending: Ending | None = None, text: str = ""
) -> list[dict[str, Any]]:
    made = []
    for action in actions:
        kind, parameters = _rendered(action, context)
        made.append({"action_type": kind, "parameters": parameters})
    if ending in (Ending.DONE, Ending.FAIL) and not text:
        made.append({"action_type": ending.name, "parameters": {}})
    elif ending is not None:
        raise CannotRender("computer_13 ends with DONE or FAIL, without a text")
    return made


def _rendered(action: Mapping[str, Any], context: Context) -> tuple[str, dict[str, Any]]:
    space = context.space()
    at = dict(zip("xy", space.point(action["x"], action["y"]), strict=True)) if "x" in action else {}
    bare = not action.get("modifiers")
    match action["op"]:
        case "click" if bare:
            count = {"num_clicks": action["count"]} if action.get("count", 1) != 1 else {}
            return "CLICK", {**at, "button": action.get("button", "left"), **count}
        case "move":
            return "MOVE_TO", at
        case "button_down" | "button_up" if not at:
            return f"MOUSE_{action['op'].removeprefix('button_').upper()}", {
                "button": action.get("button", "left")
            }
        case "scroll" if bare and not at and action.get("unit") != "px":
            return "SCROLL", {"dx": action.get("dx", 0), "dy": -action.get("dy", 0)}
        case "type" if not action.get("press_enter"):
            return "TYPING", {"text": action["text"]}
        case "key" if action.get("repeat", 1) == 1:
            keys = [action["keys"]] if isinstance(action["keys"], str) else list(action["keys"])
            return ("PRESS", {"key": keys[0]}) if len(keys) == 1 else ("HOTKEY", {"keys": keys})
        case "key_down" | "key_up":
            return action["op"].upper(), {"key": action["key"]}
        case "wait" if action["duration_ms"] == WAIT_MS:
            return "WAIT", {}
    raise CannotRender(f"computer_13 has no action for {dict(action)!r:.200}")


def _in_text(text: str) -> Evidence:
    if text.strip() in WORDS:
        return Evidence.WHOLE
    return Evidence.EMBEDDED if "```json" in text and '"action_type"' in text else Evidence.NONE


def _in_object(item: Mapping[str, Any]) -> Evidence:
    return Evidence.MARK if "action_type" in item else Evidence.NONE


GRAMMAR = Grammar(NAME, (), "image", parse, render, _in_text, _in_object)
