"""Gemini's computer use: function calls of `generateContent` and of the Interactions API.

Read in ai.google.dev and docs.cloud.google.com, "Computer use" (2026-11), and google-gemini's
computer-use-preview (2026-06-24). Gemini 3.5 and later have `click`, `type`, `hotkey`, …; Gemini 2.5 and 3
Flash `click_at`, `type_text_at`, `key_combination`, …. Functions that only a browser or a telephone has
(`navigate`, `open_app`, …) are refused: exclude them with `excluded_predefined_functions`.

Coordinates are 0 to 999 from edge to edge. Each call has an `intent`, which is text for the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from osgym_protocol.grammars.base import (
    Builder,
    Call,
    CannotRender,
    Context,
    Ending,
    Parsed,
    RawAction,
    shown,
)
from osgym_protocol.grammars.objects import DIRECTIONS, Fields, from_json, objects_in, plain, xy
from osgym_protocol.grammars.registry import Evidence, Grammar
from osgym_protocol.grammars.space import Space
from osgym_protocol.limits import MAX_SCROLL_CLICKS, PIXELS_PER_SCROLL_CLICK

NAME = "gemini"
_SCROLL_PX = MAX_SCROLL_CLICKS * PIXELS_PER_SCROLL_CLICK
NOT_A_DESKTOPS = (
    "open_web_browser", "go_back", "go_forward", "search", "navigate",
    "open_app", "list_apps", "long_press",
)  # fmt: skip
"""Functions of a browser's or a telephone's environment that have no desktop action."""
_IGNORED_STEPS = ("thought", "function_result")
_STEPS = ("model_output", "function_call", "thought")
_CONTAINERS = ("function_call", "functionCall", "candidates", "parts", "steps")


def parse(output: Any, context: Context) -> Parsed:
    """Read an output: a response, a candidate, its content, the list of its parts, the steps of an
    interaction, a function call, or any of these as JSON text or as an object of Google's SDK.
    """
    to = Builder(NAME, context)
    given = plain(output, NAME)
    if isinstance(given, str):
        given = from_json(given, NAME)
    given, path = _unwrapped(given, to)
    for at, part in objects_in(given, path, "a part", to):
        _part(part, at, to)
    return to.answer("the answer has neither a function call nor text")


def _unwrapped(given: Any, to: Builder) -> tuple[Any, str]:
    """Return the parts of a response, and their position in it."""
    path = ""
    if isinstance(given, dict) and isinstance(given.get("candidates"), list):
        if len(given["candidates"]) != 1:
            raise to.refuse("a response must have one candidate", "candidates", shown(given["candidates"]))
        given, path = given["candidates"][0], "candidates[0]"
    for name in ("content", "parts", "steps"):
        if isinstance(given, dict) and name in given and "type" not in given:
            given, path = given[name], f"{path}.{name}".lstrip(".")
    return given, path


def _part(part: Mapping[str, Any], path: str, to: Builder) -> None:
    dot, kind = f"{path}." if path else "", part.get("type")
    for name in ("function_call", "functionCall"):
        if isinstance(part.get(name), dict):
            _call(part[name], f"{dot}{name}", to, "")
            return
    if kind == "function_call":
        _call(part, path, to, "interactions")
    elif kind == "model_output" and isinstance(part.get("content"), list):
        for place, inner in enumerate(part["content"]):
            if isinstance(inner, dict):
                _part(inner, f"{dot}content[{place}]", to)
    elif isinstance(part.get("text"), str) and kind in (None, "text"):
        if not part.get("thought"):
            to.texts.append(part["text"])
    elif kind is None and "name" in part:
        _call(part, path, to, "")
    elif kind not in _IGNORED_STEPS and not ("thought_signature" in part or "thoughtSignature" in part):
        raise to.refuse("unknown part of an answer", path, allowed="function_call, text")


def _call(raw: Mapping[str, Any], path: str, to: Builder, dialect: str) -> None:
    dot = f"{path}." if path else ""
    args, name = raw.get("args", raw.get("arguments")), raw.get("name")
    if isinstance(args, str):
        args = from_json(args, NAME, f"{dot}arguments")
    if name in NOT_A_DESKTOPS:
        why = "this desktop has no such function; exclude it with excluded_predefined_functions"
        raise to.refuse(why, f"{dot}name", shown(name))
    readers = _readers(to.context.version)
    if not isinstance(name, str) or name not in readers:
        raise to.refuse("unknown function", f"{dot}name", shown(name), ", ".join(readers))
    fields = Fields(args or {}, f"{dot}args", to, "the arguments")
    fields.take("intent", None)
    decision = fields.take("safety_decision", None)
    if decision is not None and not isinstance(decision, dict):
        raise fields.refuse("safety_decision", "it must be an object", decision)
    first = len(to)
    made = readers[name](fields, to.context.space("norm1000"))
    fields.finish()
    to.add(path, *made)
    call_id = raw.get("id") or raw.get("call_id") or ""
    to.call(
        Call(
            call_id if isinstance(call_id, str) else "",
            name,
            first,
            len(to) - first,
            look="screenshot" if name == "take_screenshot" else "",
            safety=checks_of(decision),
            dialect=dialect,
        )
    )


def checks_of(decision: Any) -> tuple[dict[str, Any], ...]:
    """Return a call's safety decision where it asks for something; many say that all is well."""
    if not isinstance(decision, dict) or decision.get("decision") in ("regular", "allowed"):
        return ()
    return (decision,)


_Reader = Callable[[Fields, Space], list[RawAction]]


def _click(button: str, count: int) -> _Reader:
    return lambda f, space: [{"op": "click", **xy(f.pixel(space)), "button": button, "count": count}]


def _drag(end_x: str, end_y: str, x: str, y: str) -> _Reader:
    def read(f: Fields, space: Space) -> list[RawAction]:
        start, end = f.pixel(space, x, y), f.pixel(space, end_x, end_y)
        return [{"op": "drag", "path": [list(start or ()), list(end or ())]}]

    return read


def _scroll(f: Fields, space: Space) -> list[RawAction]:
    at = xy(f.pixel(space))
    dx, dy = DIRECTIONS[f.choice("direction", tuple(DIRECTIONS))]
    if "magnitude_in_wheel_clicks" in f:  # what the desktop environment really sends
        clicks = f.whole("magnitude_in_wheel_clicks", 0, MAX_SCROLL_CLICKS)
        return [{"op": "scroll", **at, "dx": dx * clicks, "dy": dy * clicks}]
    pixels = f.number("magnitude_in_pixels", 0, _SCROLL_PX, 300)
    return [{"op": "scroll", **at, "dx": dx * pixels, "dy": dy * pixels, "unit": "px"}]


def _scroll_at(f: Fields, space: Space) -> list[RawAction]:
    at = xy(f.pixel(space))
    dx, dy = DIRECTIONS[f.choice("direction", tuple(DIRECTIONS))]
    size = space.length_px(f.number("magnitude", 0, 1000, 800), 0 if dx else 1)
    return [{"op": "scroll", **at, "dx": dx * size, "dy": dy * size, "unit": "px"}]


def _scroll_document(f: Fields, space: Space) -> list[RawAction]:
    direction = f.choice("direction", tuple(DIRECTIONS))
    if direction in ("up", "down"):
        return [{"op": "key", "keys": ["Page_Up" if direction == "up" else "Page_Down"]}]
    size = space.screen[0] // 2
    return [{"op": "scroll", "dx": size if direction == "right" else -size, "unit": "px"}]


def _type_text_at(f: Fields, space: Space) -> list[RawAction]:
    made: list[RawAction] = [{"op": "click", **xy(f.pixel(space))}]
    text = f.text("text")
    if f.flag("clear_before_typing", True):
        made += [{"op": "key", "keys": ["ctrl", "a"]}, {"op": "key", "keys": ["BackSpace"]}]
    return [*made, _typed(text, f.flag("press_enter", True))]


def _typed(text: str, press_enter: bool) -> RawAction:
    """Return the action that types a text. A text that ends in a line break presses Enter already."""
    return {"op": "type", "text": text, "press_enter": press_enter and not text.endswith(("\n", "\r"))}


def _hotkey(f: Fields, space: Space) -> list[RawAction]:
    return [{"op": "key", "keys": f.keys("keys")}]


_NEW: dict[str, _Reader] = {
    "click": _click("left", 1),
    "double_click": _click("left", 2),
    "triple_click": _click("left", 3),
    "middle_click": _click("middle", 1),
    "right_click": _click("right", 1),
    "mouse_down": lambda f, space: [{"op": "button_down", **xy(f.pixel(space, needed=False))}],
    "mouse_up": lambda f, space: [{"op": "button_up", **xy(f.pixel(space, needed=False))}],
    "move": lambda f, space: [{"op": "move", **xy(f.pixel(space))}],
    "type": lambda f, space: [_typed(f.text("text"), f.flag("press_enter", False))],
    "wait": lambda f, space: [{"op": "wait", "duration_ms": f.seconds_ms("seconds", 1)}],
    "press_key": lambda f, space: [{"op": "key", "keys": f.keys("key")}],
    "key_down": lambda f, space: [{"op": "key_down", "key": f.text("key")}],
    "key_up": lambda f, space: [{"op": "key_up", "key": f.text("key")}],
    "hotkey": _hotkey,
    "take_screenshot": lambda f, space: [{"op": "screenshot"}],
    "scroll": _scroll,
    "drag_and_drop": _drag("end_x", "end_y", "start_x", "start_y"),
}
_OLD: dict[str, _Reader] = {
    "wait_5_seconds": lambda f, space: [{"op": "wait", "duration_ms": 5000}],
    "click_at": _click("left", 1),
    "hover_at": lambda f, space: [{"op": "move", **xy(f.pixel(space))}],
    "type_text_at": _type_text_at,
    "key_combination": _hotkey,
    "scroll_document": _scroll_document,
    "scroll_at": _scroll_at,
    "drag_and_drop": _drag("destination_x", "destination_y", "x", "y"),
}


def _either_drag(f: Fields, space: Space) -> list[RawAction]:
    return (_NEW if "start_x" in f else _OLD)["drag_and_drop"](f, space)


_ANY: dict[str, _Reader] = {**_OLD, **_NEW, "drag_and_drop": _either_drag}


def _readers(version: str | None) -> dict[str, _Reader]:
    return {"3.5": _NEW, "2.5": _OLD}.get(version or "", _ANY)


FUNCTIONS = frozenset(_ANY) | frozenset(NOT_A_DESKTOPS)
"""Names of all functions that Gemini may call."""


def render(
    actions: Sequence[Mapping[str, Any]], context: Context, ending: Ending | None = None, text: str = ""
) -> list[dict[str, Any]]:
    """Return the parts of a content, with the functions of Gemini 3.5."""
    space = context.space("norm1000")
    parts: list[dict[str, Any]] = []
    for action in actions:
        name, args = _rendered(action, space)
        parts.append({"function_call": {"name": name, "args": {**args, "intent": ""}}})
    if ending is not None:
        if actions or ending is not Ending.ANSWER:
            raise CannotRender(f"a text without a call can only be an answer, not {ending.value}")
        parts.append({"text": text})
    return parts


def _rendered(action: Mapping[str, Any], space: Space) -> tuple[str, dict[str, Any]]:
    at = dict(zip("xy", space.point(action["x"], action["y"]), strict=True)) if "x" in action else {}
    plain_left = action.get("button", "left") == "left" and not action.get("modifiers")
    match action["op"]:
        case "click" if at and not action.get("modifiers"):
            of = {("left", 1): "click", ("left", 2): "double_click", ("left", 3): "triple_click"}
            of |= {("middle", 1): "middle_click", ("right", 1): "right_click"}
            name = of.get((action.get("button", "left"), action.get("count", 1)))
            if name is not None:
                return name, at
        case "move":
            return "move", at
        case "drag" if plain_left and len(action["path"]) == 2:
            start, end = (space.point(*point) for point in action["path"])
            return "drag_and_drop", {
                "start_x": start[0], "start_y": start[1], "end_x": end[0], "end_y": end[1],
            }  # fmt: skip
        case "scroll" if at and not action.get("modifiers"):
            dx, dy = action.get("dx", 0), action.get("dy", 0)
            if not (dx and dy):
                unit = "magnitude_in_pixels" if action.get("unit") == "px" else "magnitude_in_wheel_clicks"
                direction = ("right" if dx > 0 else "left") if dx else ("up" if dy < 0 else "down")
                return "scroll", {**at, "direction": direction, unit: abs(dx or dy)}
        case "type":
            text, enter = action["text"], bool(action.get("press_enter"))
            if enter and text.endswith(("\n", "\r")):  # read as one Enter: the second one is written out
                text, enter = text + "\n", False
            return "type", {"text": text, **({"press_enter": True} if enter else {})}
        case "key" if action.get("repeat", 1) == 1:
            return "hotkey", {"keys": list(action["keys"])}
        case "key_down" | "key_up":
            return action["op"], {"key": action["key"]}
        case "button_down" | "button_up" if plain_left:
            return f"mouse_{action['op'].removeprefix('button_')}", at
        case "wait":
            return "wait", {"seconds": action["duration_ms"] / 1000}
        case "screenshot":
            return "take_screenshot", {}
    raise CannotRender(f"Gemini has no function for {dict(action)!r:.200}")


def _in_object(item: Mapping[str, Any]) -> Evidence:
    if "role" in item or item.get("type") == "message":
        return Evidence.MARK if "parts" in item else Evidence.NONE
    if item.get("type") in _STEPS or any(name in item for name in _CONTAINERS):
        return Evidence.MARK
    named = isinstance(item.get("name"), str) and isinstance(item.get("args"), Mapping)
    return Evidence.CALL if named else Evidence.NONE


GRAMMAR = Grammar(NAME, ("3.5", "2.5"), "norm1000", parse, render, in_object=_in_object)
