"""OpenAI's computer tool: `computer_call` items of the Responses API, one `action` or several `actions`.

Read in openai-python of 2026-08-21 (`types/responses/computer_action.py`,
`response_computer_tool_call.py`): the tool `computer`, and before it `computer_use_preview`, whose calls
have one action and no `keys`.

Coordinates are pixels of the screenshot that the model saw. `scroll_x` and `scroll_y` are pixels, positive
to the right and down. A `wait` has no time; it is 2 s, as in OpenAI's samples.
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
from osgym_protocol.grammars.objects import Fields, from_json, plain, xy
from osgym_protocol.grammars.registry import Evidence, Grammar
from osgym_protocol.grammars.space import Space
from osgym_protocol.limits import MAX_PATH_POINTS, MAX_SCROLL_CLICKS, PIXELS_PER_SCROLL_CLICK

NAME = "openai"
WAIT_MS = 2000
ACTION_TYPES = (
    "click", "double_click", "drag", "keypress", "move", "screenshot", "scroll", "type", "wait",
)  # fmt: skip
_BUTTONS = {"left": "left", "right": "right", "wheel": "middle", "back": "back", "forward": "forward"}
_IGNORED_ITEMS = ("reasoning", "computer_call_output", "compaction")
_SCROLL_PX = MAX_SCROLL_CLICKS * PIXELS_PER_SCROLL_CLICK


def parse(output: Any, context: Context) -> Parsed:
    """Read an output: a response, the list in its `output`, a `computer_call`, an action, a list of actions,
    or any of these as JSON text or as an object of OpenAI's SDK.
    """
    to = Builder(NAME, context)
    for path, item in _items(output, to):
        kind = item.get("type")
        if kind == "computer_call":
            _call(item, path, to)
        elif kind in ACTION_TYPES:
            _action(item, path, to)
        elif kind == "message":
            to.texts += _texts(item)
        elif kind not in _IGNORED_ITEMS:
            what = ", ".join(("computer_call", "message", *ACTION_TYPES))
            raise to.refuse("this is not a computer call", f"{path}.type".lstrip("."), shown(kind), what)
    return to.answer("the answer has neither a computer call nor a message")


def _items(output: Any, to: Builder) -> list[tuple[str, Mapping[str, Any]]]:
    given = plain(output, NAME)
    if isinstance(given, str):
        given = from_json(given, NAME)
    path = ""
    if isinstance(given, dict) and "output" in given and "type" not in given:
        given, path = given["output"], "output"
    listed = given if isinstance(given, list) else [given]
    items: list[tuple[str, Mapping[str, Any]]] = []
    for place, item in enumerate(listed):
        at = f"{path}[{place}]" if isinstance(given, list) else path
        if not isinstance(item, dict):
            raise to.refuse("an item of the output must be an object", at, shown(item))
        items.append((at, item))
    return items


def _texts(item: Mapping[str, Any]) -> list[str]:
    content = item.get("content")
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _call(item: Mapping[str, Any], path: str, to: Builder) -> None:
    dot = f"{path}." if path else ""
    first, action, actions = len(to), item.get("action"), item.get("actions")
    if actions is not None and action is not None and actions != [action]:
        raise to.refuse("a call must have either 'action' or 'actions', not both", path)
    if actions is not None and to.context.version == "computer_use_preview":
        raise to.refuse("a call of this version must have one 'action'", f"{dot}actions")
    if actions is None:
        _action(action, f"{dot}action", to)
    elif isinstance(actions, list):
        for place, one in enumerate(actions):
            _action(one, f"{dot}actions[{place}]", to)
    else:
        raise to.refuse("it must be a list of actions", f"{dot}actions", shown(actions))
    call_id = item.get("call_id") or ""
    if not isinstance(call_id, str):
        raise to.refuse("it must be text", f"{dot}call_id", shown(call_id))
    checks = item.get("pending_safety_checks") or []
    if not isinstance(checks, list) or not all(isinstance(check, dict) for check in checks):
        raise to.refuse("it must be a list of objects", f"{dot}pending_safety_checks", shown(checks))
    looks = [
        raw for raw in (actions or [action]) if isinstance(raw, dict) and raw.get("type") == "screenshot"
    ]
    to.call(
        Call(
            call_id,
            "computer",
            first,
            len(to) - first,
            look="screenshot" if looks else "",
            safety=tuple(checks),
        )
    )


def _action(raw: Any, path: str, to: Builder) -> None:
    fields = Fields(raw, path, to)
    kind = fields.choice("type", ACTION_TYPES)
    made = _READERS[kind](fields, to.context.space())
    if kind in ("click", "double_click", "drag", "scroll", "move"):
        held = fields.modifiers("keys")
        if held and to.context.version == "computer_use_preview":
            raise fields.refuse("keys", "this version cannot hold keys")
        if held and kind == "move":  # a pointer that moves while a key is held: the key is pressed around it
            fields.finish()
            down: list[RawAction] = [{"op": "key_down", "key": key} for key in held]
            up: list[RawAction] = [{"op": "key_up", "key": key} for key in reversed(held)]
            to.add(path, *down, made, *up)
            return
        if held:
            made["modifiers"] = held
    fields.finish()
    to.add(path, made)


def _click(f: Fields, space: Space) -> RawAction:
    button = _BUTTONS[f.choice("button", tuple(_BUTTONS), "left")]
    return {"op": "click", **xy(f.pixel(space)), "button": button}


def _scroll(f: Fields, space: Space) -> RawAction:
    at = xy(f.pixel(space))
    dx = f.number("scroll_x", -_SCROLL_PX, _SCROLL_PX, 0)
    dy = f.number("scroll_y", -_SCROLL_PX, _SCROLL_PX, 0)
    return {"op": "scroll", **at, "dx": dx, "dy": dy, "unit": "px"}


_READERS: dict[str, Callable[[Fields, Space], RawAction]] = {
    "click": _click,
    "double_click": lambda f, space: {"op": "click", **xy(f.pixel(space)), "count": 2},
    "drag": lambda f, space: {"op": "drag", "path": f.points("path", space, MAX_PATH_POINTS)},
    "keypress": lambda f, space: {"op": "key", "keys": f.keys("keys")},
    "move": lambda f, space: {"op": "move", **xy(f.pixel(space))},
    "screenshot": lambda f, space: {"op": "screenshot"},
    "scroll": _scroll,
    "type": lambda f, space: {"op": "type", "text": f.text("text")},
    "wait": lambda f, space: {"op": "wait", "duration_ms": WAIT_MS},
}


def render(
    actions: Sequence[Mapping[str, Any]], context: Context, ending: Ending | None = None, text: str = ""
) -> list[dict[str, Any]]:
    """Return output items: a `computer_call`, and a message where the model ends."""
    items: list[dict[str, Any]] = []
    if actions:
        rendered = [_rendered(action, context.space()) for action in actions]
        items.append(
            {"type": "computer_call", "call_id": "call_1", "status": "completed", "actions": rendered}
        )
    if ending is not None:
        if actions or ending is not Ending.ANSWER:
            raise CannotRender(f"a message without a call can only be an answer, not {ending.value}")
        content = [{"type": "output_text", "text": text}]
        items.append({"type": "message", "role": "assistant", "content": content})
    return items


def _rendered(action: Mapping[str, Any], space: Space) -> dict[str, Any]:
    at = _at(action, space)
    keys = {"keys": list(action["modifiers"])} if action.get("modifiers") else {}
    match action["op"]:
        case "click" if at and action.get("count", 1) == 1:
            names = {ours: theirs for theirs, ours in _BUTTONS.items()}
            return {"type": "click", "button": names[action.get("button", "left")], **at, **keys}
        case "click" if at and action.get("count") == 2 and action.get("button", "left") == "left":
            return {"type": "double_click", **at, **keys}
        case "move":
            return {"type": "move", **at}
        case "drag" if action.get("button", "left") == "left":
            path = [dict(zip("xy", space.point(*point), strict=True)) for point in action["path"]]
            return {"type": "drag", "path": path, **keys}
        case "scroll" if at:
            unit = 1 if action.get("unit") == "px" else PIXELS_PER_SCROLL_CLICK
            dx, dy = action.get("dx", 0) * unit, action.get("dy", 0) * unit
            return {"type": "scroll", **at, "scroll_x": dx, "scroll_y": dy, **keys}
        case "type" if not action.get("press_enter"):
            return {"type": "type", "text": action["text"]}
        case "key" if action.get("repeat", 1) == 1:
            return {"type": "keypress", "keys": list(action["keys"])}
        case "wait" if action["duration_ms"] == WAIT_MS:
            return {"type": "wait"}
        case "screenshot":
            return {"type": "screenshot"}
    raise CannotRender(f"OpenAI's computer tool has no action for {dict(action)!r:.200}")


def _at(action: Mapping[str, Any], space: Space) -> dict[str, float]:
    return dict(zip("xy", space.point(action["x"], action["y"]), strict=True)) if "x" in action else {}


def _in_object(item: Mapping[str, Any]) -> Evidence:
    kind, content = item.get("type"), item.get("content")
    if "role" in item or kind == "message":
        parts = content if isinstance(content, list) else []
        kinds = [part.get("type") for part in parts if isinstance(part, Mapping)]
        own = "role" not in item or "output_text" in kinds or "refusal" in kinds
        return Evidence.MARK if own else Evidence.NONE
    if kind in ("computer_call", "reasoning"):
        return Evidence.MARK
    if item.get("object") == "response" or ("output" in item and kind is None):
        return Evidence.MARK
    return Evidence.CALL if isinstance(kind, str) and kind in ACTION_TYPES else Evidence.NONE


GRAMMAR = Grammar(NAME, ("computer", "computer_use_preview"), "image", parse, render, in_object=_in_object)
