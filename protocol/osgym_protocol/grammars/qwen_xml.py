"""Tool calls of Qwen3.5 and later in text: `<function=NAME>` with a `<parameter=NAME>` for each argument.

Read on 2026-11-26 in the chat template of Qwen3.5, which is that of Qwen3-Coder. A value stands between line
breaks, of which one at each end belongs to the form. Values are text or JSON, as the tool's schema has them.
"""

from __future__ import annotations

import re
from typing import Any

from osgym_protocol.grammars.base import Builder, shown
from osgym_protocol.grammars.objects import from_json

OPENING = "<function="
_FUNCTION = re.compile(r"\s*<function=([^<>\n]{1,60})>")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]{1,60})>")
_PARAMETER_END = re.compile(r"</parameter>\s*(?=<parameter=[^<>\n]{1,60}>|</function>)")
_FUNCTION_END = re.compile(r"\s*</function>\s*")
_FORM = "<function=NAME><parameter=NAME>VALUE</parameter></function>"


def read_call(text: str, tool: str, texts: frozenset[str], position: str, to: Builder) -> dict[str, Any]:
    """Return a call as `{"name", "arguments"}`.

    Args:
        text: Content of `<tool_call>`.
        tool: Name of the only tool.
        texts: Names of the parameters that are text; the others are JSON.
        position: Position of the call, for the error.
        to: Builder, whose grammar the error names.

    Raises:
        UnreadableAction: It is no call of the tool, is cut off, or names a parameter twice.
    """
    opened = _FUNCTION.match(text)
    if opened is None:
        raise to.refuse("a call must begin with <function=NAME>", position, shown(text[:60]), _FORM)
    if opened.group(1).strip() != tool:
        raise to.refuse("unknown tool", position, shown(opened.group(1)), tool)
    arguments: dict[str, Any] = {}
    at = opened.end()
    while (named := _PARAMETER.match(text, at)) is not None:
        name = named.group(1).strip()
        closed = _PARAMETER_END.search(text, named.end())
        if closed is None:
            why = f"the parameter {shown(name)} is not closed"
            raise to.refuse(why, position, shown(text[named.start() :].strip()[:60]), _FORM)
        if name in arguments:
            raise to.refuse(f"the parameter {shown(name)} is given twice", position)
        value = text[named.end() : closed.start()]
        arguments[name] = (
            value.removeprefix("\n").removesuffix("\n")
            if name in texts
            else from_json(value.strip(), to.grammar, f"{position}.{name}")
        )
        at = closed.end()
    if _FUNCTION_END.fullmatch(text, at) is None:
        rest = shown(text[at:].strip()[:60])
        raise to.refuse("</function> must follow the parameters", position, rest, _FORM)
    return {"name": tool, "arguments": arguments}
