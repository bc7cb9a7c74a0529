"""Anthropic's computer tool: `tool_use` blocks, from `computer_20241022` to `computer_toolset_20260801`.

Read in the computer use tool's page of platform.claude.com (2026-11), the reference implementation of
anthropic-quickstarts (2025-06-04) and `computer-toolset.md` of Anthropic's SDK (2026-11). In the toolset
each action is a tool of its own (`name: left_click`, `toolset_name: computer`); before it, one tool
`computer` has an `action` in its input.

Coordinates are pixels of the screenshot that the model saw; scrolls are in clicks of the wheel; times are
in seconds. `text` of a click, a drag or a scroll are keys to hold; `text` of `key` is xdotool's syntax.
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
from osgym_protocol.grammars.chords import ChordError, split_chords
from osgym_protocol.grammars.objects import DIRECTIONS, Fields, from_json, objects_in, plain, xy
from osgym_protocol.grammars.registry import Evidence, Grammar
from osgym_protocol.grammars.space import Space
from osgym_protocol.limits import MAX_KEY_REPEAT, MAX_SCROLL_CLICKS, PIXELS_PER_SCROLL_CLICK

NAME = "anthropic"
_2024 = (
    "key", "type", "mouse_move", "left_click", "left_click_drag", "right_click", "middle_click",
    "double_click", "screenshot", "cursor_position",
)  # fmt: skip
_2025 = (*_2024, "left_mouse_down", "left_mouse_up", "scroll", "hold_key", "wait", "triple_click")
_ZOOM = (*_2025, "zoom")
MEMBERS: dict[str | None, tuple[str, ...]] = {
    "computer_toolset_20260801": _ZOOM,
    "computer_20251124": _ZOOM,
    "computer_20250124": _2025,
    "computer_20241022": _2024,
    None: _ZOOM,
}
"""Actions of each version; those of the newest when no version is named."""
TOOLSET = "computer_toolset_20260801"
_CLICKS = {
    "left_click": ("left", 1),
    "right_click": ("right", 1),
    "middle_click": ("middle", 1),
    "double_click": ("left", 2),
    "triple_click": ("left", 3),
}
_LOOKS = ("screenshot", "zoom", "cursor_position")
_IGNORED_BLOCKS = ("thinking", "redacted_thinking", "fallback")


def parse(output: Any, context: Context) -> Parsed:
    """Read an output: a message, the list in its `content`, a `tool_use` block, the input of one, or any of
    these as JSON text or as an object of Anthropic's SDK.
    """
    to = Builder(NAME, context)
    given = plain(output, NAME)
    if isinstance(given, str):
        given = from_json(given, NAME)
    path = ""
    if isinstance(given, dict) and "content" in given:
        given, path = given["content"], "content"
        if isinstance(given, str):
            given = [{"type": "text", "text": given}]
    for at, block in objects_in(given, path, "a block", to):
        _block(block, at, to)
    return to.answer("the answer has neither a tool_use block nor text")


def _block(block: Mapping[str, Any], path: str, to: Builder) -> None:
    kind, dot = block.get("type"), f"{path}." if path else ""
    if kind is None and "action" in block:  # the input of a call alone
        _action(block, path, to, "", None)
    elif kind == "text" and isinstance(block.get("text"), str):
        to.texts.append(block["text"])
    elif kind == "tool_use":
        call_id, name, toolset = block.get("id"), block.get("name"), block.get("toolset_name")
        if not isinstance(call_id, str):
            raise to.refuse("it must be text", f"{dot}id", shown(call_id))
        member = None
        if toolset is not None:
            if to.context.version not in (None, TOOLSET):
                raise to.refuse("this version has no toolsets", f"{dot}toolset_name")
            if toolset != "computer" or not isinstance(name, str):
                raise to.refuse("unknown toolset", f"{dot}toolset_name", shown(toolset), "computer")
            member = name
        elif name != "computer":
            raise to.refuse("unknown tool", f"{dot}name", shown(name), "computer")
        _action(block.get("input") or {}, f"{dot}input", to, call_id, member)
    elif kind not in _IGNORED_BLOCKS:
        raise to.refuse("unknown block of an answer", f"{dot}type", shown(kind), "tool_use, text, thinking")


def _action(raw: Any, path: str, to: Builder, call_id: str, member: str | None) -> None:
    members = MEMBERS[to.context.version]
    fields = Fields(raw, path, to, "the input")
    if member is None:
        member = fields.choice("action", members)
        dialect = ""
    else:
        dialect = "toolset"
        if member not in members:
            raise to.refuse("unknown tool", path, shown(member), ", ".join(members))
    first, region = len(to), None
    space = to.context.space()
    made: list[RawAction]
    if member in _CLICKS:
        made = [_click(member, fields, space, to.context.version)]
    elif member == "zoom":
        made, region = [], _region(fields, space)
    else:
        made = _drag(fields, space, to) if member == "left_click_drag" else _READERS[member](fields, space)
    fields.finish()
    to.add(path, *made)
    look = member if member in _LOOKS else ""
    to.call(Call(call_id, member, first, len(to) - first, look, region, dialect=dialect))


def _click(member: str, f: Fields, space: Space, version: str | None) -> RawAction:
    button, count = _CLICKS[member]
    if version == "computer_20241022" and "coordinate" in f:
        raise f.refuse(
            "coordinate", "clicks of this version happen at the pointer's position and take no coordinate"
        )
    at = f.pair("coordinate", space, needed=False)
    return {"op": "click", **xy(at), "button": button, "count": count, "modifiers": _held(f)}


def _held(f: Fields) -> list[str] | None:
    """Return the keys to hold; the reference implementation of 2025-01-24 has them in `key`."""
    if "text" in f and "key" in f:
        raise f.refuse("key", "keys to hold are in 'text' or in 'key', not both")
    return f.modifiers("key") if "key" in f else f.modifiers("text")


def _region(f: Fields, space: Space) -> tuple[int, int, int, int]:
    value = f.take("region")
    region = space.region(*value) if isinstance(value, list) and len(value) == 4 else None
    if region is None:
        raise f.refuse("region", "it must be [left, top, right, bottom] within the image", value)
    return region


def _drag(f: Fields, space: Space, to: Builder) -> list[RawAction]:
    start, end = f.pair("start_coordinate", space, needed=False), f.point("coordinate", space)
    held = {"modifiers": f.modifiers("text")}
    if held["modifiers"] is None:
        return to.drag_to(end, start)
    if start is None and to.pointer() is None:
        raise f.refuse("text", "a drag with keys held needs start_coordinate")
    return to.drag_to(end, start, **held)


def _scroll(f: Fields, space: Space) -> list[RawAction]:
    dx, dy = DIRECTIONS[f.choice("scroll_direction", tuple(DIRECTIONS))]
    amount = f.whole("scroll_amount", 0, MAX_SCROLL_CLICKS)
    at = f.pair("coordinate", space, needed=False)
    return [{"op": "scroll", **xy(at), "dx": dx * amount, "dy": dy * amount, "modifiers": _held(f)}]


def _key(f: Fields, space: Space) -> list[RawAction]:
    """Read xdotool's syntax: chords such as ``ctrl+s``, several of them with blanks between."""
    text = f.text("text")
    try:
        chords = split_chords(text)
    except ChordError as exc:
        raise f.refuse("text", str(exc), text) from None
    repeat = f.whole("repeat", 1, MAX_KEY_REPEAT, 1)
    if len(chords) == 1:
        return [{"op": "key", "keys": chords[0], "repeat": repeat}]
    return [{"op": "key", "keys": keys} for _ in range(repeat) for keys in chords]


_READERS: dict[str, Callable[[Fields, Space], list[RawAction]]] = {
    "key": _key,
    "type": lambda f, space: [{"op": "type", "text": f.text("text")}],
    "mouse_move": lambda f, space: [{"op": "move", **xy(f.pair("coordinate", space))}],
    "screenshot": lambda f, space: [{"op": "screenshot"}],
    "cursor_position": lambda f, space: [],
    "left_mouse_down": lambda f, space: [{"op": "button_down"}],
    "left_mouse_up": lambda f, space: [{"op": "button_up"}],
    "scroll": _scroll,
    "hold_key": lambda f, space: [
        {"op": "hold", "keys": f.keys("text"), "duration_ms": f.seconds_ms("duration")}
    ],
    "wait": lambda f, space: [{"op": "wait", "duration_ms": f.seconds_ms("duration")}],
}


def render(
    actions: Sequence[Mapping[str, Any]], context: Context, ending: Ending | None = None, text: str = ""
) -> list[dict[str, Any]]:
    """Return the blocks of a message in the context's version."""
    version = context.version or TOOLSET
    blocks: list[dict[str, Any]] = []
    for place, action in enumerate(actions):
        member, given = _rendered(action, context.space())
        if member not in MEMBERS[version]:
            raise CannotRender(f"{version} has no {member}")
        block: dict[str, Any] = {"type": "tool_use", "id": f"toolu_{place + 1}"}
        if version == TOOLSET:
            block |= {"name": member, "toolset_name": "computer", "input": given}
        else:
            block |= {"name": "computer", "input": {"action": member, **given}}
        blocks.append(block)
    if ending is not None:
        if actions or ending is not Ending.ANSWER:
            raise CannotRender(f"a message without a call can only be an answer, not {ending.value}")
        blocks.append({"type": "text", "text": text})
    return blocks


def _rendered(action: Mapping[str, Any], space: Space) -> tuple[str, dict[str, Any]]:
    at = {"coordinate": list(space.point(action["x"], action["y"]))} if "x" in action else {}
    held = {"text": "+".join(action["modifiers"])} if action.get("modifiers") else {}
    plain_button = action.get("button", "left") == "left"
    match action["op"]:
        case "click":
            of = {what: member for member, what in _CLICKS.items()}
            member = of.get((action.get("button", "left"), action.get("count", 1)))
            if member is not None:
                return member, {**at, **held}
        case "move":
            return "mouse_move", at
        case "drag" if plain_button and len(action["path"]) == 2:
            start, end = (list(space.point(*point)) for point in action["path"])
            return "left_click_drag", {"start_coordinate": start, "coordinate": end, **held}
        case "scroll":
            return "scroll", {**at, **held, **_clicks(action)}
        case "type" if not action.get("press_enter"):
            return "type", {"text": action["text"]}
        case "key":
            repeat = {"repeat": action["repeat"]} if action.get("repeat", 1) != 1 else {}
            return "key", {"text": joined(action["keys"]), **repeat}
        case "hold":
            return "hold_key", {"text": joined(action["keys"]), "duration": action["duration_ms"] / 1000}
        case "button_down" | "button_up" if plain_button and not at:
            return f"left_mouse_{action['op'].removeprefix('button_')}", {}
        case "wait":
            return "wait", {"duration": action["duration_ms"] / 1000}
        case "screenshot":
            return "screenshot", {}
    raise CannotRender(f"Anthropic's computer tool has no action for {dict(action)!r:.200}")


def _clicks(action: Mapping[str, Any]) -> dict[str, Any]:
    unit = PIXELS_PER_SCROLL_CLICK if action.get("unit") == "px" else 1
    dx, dy = action.get("dx", 0), action.get("dy", 0)
    if (dx and dy) or dx % unit or dy % unit:
        raise CannotRender("a scroll goes one way, in whole clicks")
    direction = ("right" if dx > 0 else "left") if dx else ("up" if dy < 0 else "down")
    return {"scroll_direction": direction, "scroll_amount": int(abs(dx or dy) // unit)}


def joined(keys: Sequence[str] | str) -> str:
    """Return a chord as ``ctrl+s``; keys of one sign that would be read otherwise get their names."""
    names = [keys] if isinstance(keys, str) else list(keys)
    return "+".join({"+": "plus", " ": "space"}.get(name, name) for name in names)


def _in_object(item: Mapping[str, Any]) -> Evidence:
    content = item.get("content")
    if item.get("type") in ("tool_use", "thinking", "redacted_thinking") or "toolset_name" in item:
        return Evidence.MARK
    if isinstance(content, list) and ("role" in item or item.get("type") == "message"):
        kinds = [part.get("type") for part in content if isinstance(part, Mapping)]
        return Evidence.MARK if "tool_use" in kinds else Evidence.NONE
    return Evidence.CALL if "action" in item else Evidence.NONE


GRAMMAR = Grammar(NAME, tuple(name for name in MEMBERS if name), "image", parse, render, in_object=_in_object)
