"""Tool calls of an output without their actions, which must be answered when the output is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osgym_protocol.grammars.base import MAX_CALLS, Call
from osgym_protocol.grammars.gemini import checks_of
from osgym_protocol.grammars.objects import from_json, plain


def calls_of(output: Any) -> tuple[Call, ...]:
    """Return the calls of OpenAI's, Anthropic's, Gemini's or a chat server's output, in order.

    Raises:
        UnreadableAction: It is neither JSON nor made of objects.
    """
    found: list[Call] = []
    given = plain(output, "auto")
    if isinstance(given, str) and given.lstrip().startswith(("{", "[")):
        given = from_json(given, "auto")
    _walk(given, found)
    return tuple(found[:MAX_CALLS])


def _walk(item: Any, found: list[Call]) -> None:
    if isinstance(item, list):
        for inner in item:
            _walk(inner, found)
    elif isinstance(item, Mapping):
        call = _call(item)
        if call is not None:
            found.append(call)
            return
        for name, inner in item.items():
            if name not in ("input", "args", "arguments"):
                _walk(inner, found)


def _call(item: Mapping[str, Any]) -> Call | None:
    kind, function = item.get("type"), item.get("function")
    if kind == "computer_call":
        checks = item.get("pending_safety_checks")
        safety = (
            tuple(check for check in checks if isinstance(check, dict)) if isinstance(checks, list) else ()
        )
        return Call(_text(item, "call_id"), "computer", safety=safety)
    if kind == "tool_use":
        dialect = "toolset" if item.get("toolset_name") is not None else ""
        return Call(_text(item, "id"), _text(item, "name"), dialect=dialect)
    if isinstance(function, Mapping):
        return Call(_text(item, "id"), _text(function, "name"))
    for name in ("function_call", "functionCall"):
        if isinstance(item.get(name), Mapping):
            return _gemini(item[name], "")
    if kind == "function_call":
        return _gemini(item, "interactions")
    if kind is None and "name" in item and ("args" in item or "arguments" in item):
        return _gemini(item, "")
    return None


def _gemini(call: Mapping[str, Any], dialect: str) -> Call:
    args = call.get("args", call.get("arguments"))
    decision = args.get("safety_decision") if isinstance(args, Mapping) else None
    call_id = _text(call, "id") or _text(call, "call_id")
    return Call(call_id, _text(call, "name"), safety=checks_of(decision), dialect=dialect)


def _text(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) else ""
