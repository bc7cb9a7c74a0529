"""Qwen's `computer_use` tool: `<tool_call>{"name": "computer_use", "arguments": {...}}</tool_call>` in text.

Read in the Qwen3-VL cookbook of QwenLM (2026-01-30, `cookbooks/utils/agent_function_call.py`) and the same
file for Qwen2.5-VL. Qwen3.5 and later write the call as `<function=computer_use>` (see `qwen_xml`). Servers
that take the calls out of the text (vLLM's hermes parser) send them as `tool_calls` of a chat message, which
is read too.

Coordinates: Qwen3-VL's are 0 to 1000 from edge to edge; Qwen2.5-VL's are pixels of the image after the
processor has resized it (`smart_resize`). `pixels` of a scroll are positive upwards; of `hscroll`, to the
right.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from osgym_protocol.grammars import qwen_xml
from osgym_protocol.grammars.base import (
    MAX_OUTPUT_CHARS,
    UNCLOSED_THOUGHTS,
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
from osgym_protocol.grammars.space import Space, smart_resize
from osgym_protocol.limits import MAX_SCROLL_CLICKS, PIXELS_PER_SCROLL_CLICK

NAME = "qwen"
TOOL = "computer_use"
_SCROLL_PX = MAX_SCROLL_CLICKS * PIXELS_PER_SCROLL_CLICK
_OPEN, _CLOSE, _THOUGHT, _THINK = "<tool_call>", "</tool_call>", "</think>", "<think>"
_TEXTS = frozenset(("action", "text", "status"))
"""Arguments that are text; the others are JSON."""
_CLICKS = {
    "left_click": ("left", 1),
    "right_click": ("right", 1),
    "middle_click": ("middle", 1),
    "double_click": ("left", 2),
    "triple_click": ("left", 3),
}


def parse(output: Any, context: Context) -> Parsed:
    """Read an output: the text of an answer, a chat message (with `content` and `tool_calls`), a response
    with one choice, a call, a list of calls, or the arguments of one.
    """
    to = Builder(NAME, context)
    given = plain(output, NAME)
    if isinstance(given, str) and given.lstrip().startswith(("{", "[{")):
        given = from_json(given.strip(), NAME)
    if isinstance(given, dict) and isinstance(given.get("choices"), list):
        if len(given["choices"]) != 1 or not isinstance(given["choices"][0], dict):
            raise to.refuse("a response must have one choice", "choices", shown(given["choices"]))
        given = given["choices"][0].get("message")
    if isinstance(given, dict) and ("tool_calls" in given or isinstance(given.get("content"), str)):
        given = given.get("tool_calls") or given.get("content")
    if isinstance(given, str):
        _text(given, to)
    else:
        for place, call in enumerate(given if isinstance(given, list) else [given]):
            _call(call, f"[{place}]" if isinstance(given, list) else "", to)
    if not to.calls:
        raise to.refuse(f"the output has no {_OPEN}")
    return to.result()


def _text(text: str, to: Builder) -> None:
    """Read the calls in a text, and collect the text around them."""
    if len(text) > MAX_OUTPUT_CHARS:
        raise to.refuse(f"the output has {len(text)} characters; at most {MAX_OUTPUT_CHARS} are allowed")
    around: list[str] = []
    if text.lstrip().startswith(_THINK) and _THOUGHT not in text:
        raise to.refuse(UNCLOSED_THOUGHTS)
    at = _after_thinking(text)
    while (start := text.find(_OPEN, at)) != -1:
        around.append(text[at:start])
        position = f"line {text.count(chr(10), 0, start) + 1}"
        body = start + len(_OPEN)
        end = text.find(_CLOSE, body)
        stop = text.find(_OPEN, body)
        if end == -1 and stop == -1:  # a server may cut the last token off, which is the closing tag
            end, at = len(text), len(text)
        elif end == -1 or (stop != -1 and stop < end):
            raise to.refuse(f"{_OPEN} is not closed", position, shown(text[start : start + 60]))
        else:
            at = end + len(_CLOSE)
        inside = text[body:end].strip()
        if inside.startswith(qwen_xml.OPENING):
            _call(qwen_xml.read_call(inside, TOOL, _TEXTS, position, to), position, to)
        else:
            _call(from_json(inside, NAME, position), position, to)
    if _CLOSE in text[at:]:
        raise to.refuse(f"{_CLOSE} without {_OPEN}")
    said = "\n".join(part.strip() for part in [*around, text[at:]] if part.strip())
    if said and not to.texts:
        to.texts.append(said)


def _after_thinking(text: str) -> int:
    """Return the start of the answer; a call inside the thoughts is no call."""
    end, first = text.find(_THOUGHT), text.find(_OPEN)
    if end != -1 and (text.lstrip().startswith("<think>") or first == -1 or end < first):
        return end + len(_THOUGHT)
    return 0


def _call(call: Any, path: str, to: Builder) -> None:
    if not isinstance(call, dict):
        raise to.refuse("a call must be an object", path, shown(call))
    call_id = call.get("id") if isinstance(call.get("id"), str) else ""
    if isinstance(call.get("function"), dict):
        call = call["function"]
    dot = f"{path}." if path else ""
    if "action" in call and "name" not in call:
        arguments = call
    else:
        if call.get("name") != TOOL:
            raise to.refuse("unknown tool", f"{dot}name", shown(call.get("name")), TOOL)
        arguments = call.get("arguments")
        if isinstance(arguments, str):
            arguments = from_json(arguments, NAME, f"{dot}arguments")
    fields = Fields(arguments, f"{dot}arguments", to, "the arguments")
    member, first = fields.choice("action", ACTIONS), len(to)
    space = _space(to.context)
    if member == "terminate":
        status = fields.choice("status", ("success", "failure"))
        fields.take("text", None)
        fields.finish()
        to.end(path, Ending.DONE if status == "success" else Ending.FAIL)
    elif member == "answer":
        answer = fields.text("text")
        fields.finish()
        to.texts.clear()
        to.end(path, Ending.ANSWER, answer)
    else:
        if member == "left_click_drag":  # the tool has no start: a drag begins where the pointer is
            end = fields.point("coordinate", space)
            made = to.drag_to(end, fields.pair("start_coordinate", space, needed=False))
        else:
            made = _READERS[member](fields, space)
        fields.finish()
        to.add(path, *made)
    to.call(Call(str(call_id), member, first, len(to) - first))


def _space(context: Context) -> Space:
    if context.version == "qwen2.5-vl":
        return context.space(smart_resize(*(context.image or context.screen)))
    return context.space("norm1000")


def _click(member: str) -> Callable[[Fields, Space], list[RawAction]]:
    button, count = _CLICKS[member]
    return lambda f, space: [
        {"op": "click", **xy(f.pair("coordinate", space, needed=False)), "button": button, "count": count}
    ]


def _scroll(f: Fields, space: Space) -> list[RawAction]:
    at = xy(f.pair("coordinate", space, needed=False))
    return [{"op": "scroll", **at, "dy": -f.number("pixels", -_SCROLL_PX, _SCROLL_PX), "unit": "px"}]


def _hscroll(f: Fields, space: Space) -> list[RawAction]:
    at = xy(f.pair("coordinate", space, needed=False))
    return [{"op": "scroll", **at, "dx": f.number("pixels", -_SCROLL_PX, _SCROLL_PX), "unit": "px"}]


_READERS: dict[str, Callable[[Fields, Space], list[RawAction]]] = {
    "key": lambda f, space: [{"op": "key", "keys": f.keys("keys")}],
    "type": lambda f, space: [{"op": "type", "text": f.text("text")}],
    "mouse_move": lambda f, space: [{"op": "move", **xy(f.pair("coordinate", space))}],
    "scroll": _scroll,
    "hscroll": _hscroll,
    "wait": lambda f, space: [{"op": "wait", "duration_ms": f.seconds_ms("time")}],
    **{member: _click(member) for member in _CLICKS},
}
ACTIONS = (*_READERS, "left_click_drag", "terminate", "answer")


def render(
    actions: Sequence[Mapping[str, Any]], context: Context, ending: Ending | None = None, text: str = ""
) -> str:
    space = _space(context)
    calls = [given for action in actions for given in _rendered(action, space)]
    match ending:
        case Ending.DONE | Ending.FAIL:
            calls.append({"action": "terminate", "status": "success" if ending is Ending.DONE else "failure"})
        case Ending.ANSWER:
            calls.append({"action": "answer", "text": text})
        case Ending.ASK_USER:
            raise CannotRender("computer_use cannot ask a user")
    lines = [json.dumps({"name": TOOL, "arguments": given}, ensure_ascii=False) for given in calls]
    return "\n".join(f"{_OPEN}\n{line}\n{_CLOSE}" for line in lines)


def _rendered(action: Mapping[str, Any], space: Space) -> list[dict[str, Any]]:
    at = {"coordinate": list(space.point(action["x"], action["y"]))} if "x" in action else {}
    bare = not action.get("modifiers")
    match action["op"]:
        case "click" if bare:
            of = {what: member for member, what in _CLICKS.items()}
            member = of.get((action.get("button", "left"), action.get("count", 1)))
            if member is not None:
                return [{"action": member, **at}]
        case "move":
            return [{"action": "mouse_move", **at}]
        case "drag" if bare and action.get("button", "left") == "left" and len(action["path"]) == 2:
            start, end = (list(space.point(*point)) for point in action["path"])
            return [{"action": "left_click_drag", "start_coordinate": start, "coordinate": end}]
        case "scroll" if bare and not (action.get("dx") and action.get("dy")):
            unit = 1 if action.get("unit") == "px" else PIXELS_PER_SCROLL_CLICK
            if action.get("dx"):
                return [{"action": "hscroll", **at, "pixels": action["dx"] * unit}]
            return [{"action": "scroll", **at, "pixels": -action.get("dy", 0) * unit}]
        case "type" if not action.get("press_enter"):
            return [{"action": "type", "text": action["text"]}]
        case "key":
            keys = action["keys"] if isinstance(action["keys"], list) else [action["keys"]]
            return [{"action": "key", "keys": list(keys)}] * action.get("repeat", 1)
        case "wait":
            return [{"action": "wait", "time": action["duration_ms"] / 1000}]
    raise CannotRender(f"computer_use has no action for {dict(action)!r:.200}")


def _in_text(text: str) -> Evidence:
    return Evidence.MARK if _OPEN in text else Evidence.NONE


def _in_object(item: Mapping[str, Any]) -> Evidence:
    if "role" in item or item.get("type") == "message":
        return Evidence.MARK if item.get("tool_calls") else Evidence.NONE
    function = item.get("function")
    named = item.get("name") == TOOL and item.get("type") != "tool_use"
    if named or isinstance(item.get("choices"), list):
        return Evidence.MARK
    if isinstance(function, Mapping) and function.get("name") == TOOL:
        return Evidence.MARK
    return Evidence.CALL if "action" in item else Evidence.NONE


GRAMMAR = Grammar(NAME, ("qwen3-vl", "qwen2.5-vl"), "norm1000", parse, render, _in_text, _in_object)
