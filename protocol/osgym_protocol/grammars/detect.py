"""Which grammar an output is in, told by its shape alone: by names and marks that only one grammar has.

Never by numbers: the same point means different pixels in two grammars, so what could be either is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from osgym_protocol.grammars.base import MAX_OUTPUT_CHARS, UnreadableAction, shown
from osgym_protocol.grammars.objects import from_json, plain

_REMEDY = "name the grammar"
_OPENAI_TYPES = frozenset(
    ("click", "double_click", "drag", "keypress", "move", "screenshot", "scroll", "type", "wait")
)
_GEMINI_STEPS = ("model_output", "function_call", "thought")
_UITARS_ACTION = re.compile(r"^[ \t]*Action[ \t]*:\s*[a-z_]{1,20}\s*\(", re.MULTILINE)
_UITARS_CALL = re.compile(r"\s*[a-z_]{1,20}\s*\(\s*(start_box|point|start_point|content|key)\s*=\s*['\"]")
_GLM_CALL = re.compile(
    r"(?<![\w.])(?:(?:left|right|middle)_click|left_double_click|left_drag)\s*\(\s*start_box\s*="
    r"|(?<![\w.])key\s*\(\s*keys\s*=\s*['\"]|<\|begin_of_box\|>|(?<![\w.])(?:WAIT|DONE|FAIL)\(\)"
)
_OSGYM_CALL = re.compile(
    r"\s*(click|left_double|right_single|move|drag|scroll|type|press|hotkey|wait|call_user|finish)\s*\("
)
_PYAUTOGUI = re.compile(
    r"(?:^|[^\w.])pyautogui\s*\.|(?:^|[^\w.])time\s*\.\s*sleep\s*\("
    r"|^[ \t]*(?:import|from)[ \t]+(?:pyautogui|time)\b",
    re.M,
)
_COMPUTER = re.compile(r"^[ \t]*computer\s*\.\s*(?:triple_click|tripleClick|wait|terminate)\s*\(", re.M)
_WORDS = ("WAIT", "DONE", "FAIL")


def detect(output: Any) -> str:
    """Return the name of the one grammar that the output can be in.

    Raises:
        UnreadableAction: there is none, or more than one.
    """
    given = plain(output, "auto")
    if isinstance(given, str):
        return _of_text(given)
    if isinstance(given, Mapping):
        return _of_object(given)
    if isinstance(given, list):
        return _of_list(given)
    raise UnreadableAction("auto", "an output is text, an object or a list", read=shown(given))


def _unknown(what: object) -> UnreadableAction:
    return UnreadableAction("auto", f"no grammar is told by this; {_REMEDY}", read=shown(what))


def _ambiguous(names: str, what: object) -> UnreadableAction:
    return UnreadableAction("auto", f"it can be {names}; {_REMEDY}", read=shown(what))


def _of_list(items: list[Any]) -> str:
    found = {_of_text(item) if isinstance(item, str) else _of_item(item) for item in items} - {""}
    if len(found) > 1:
        raise _ambiguous(" and ".join(sorted(found)), items)
    if not found:
        raise _unknown(items)
    return found.pop()


def _of_item(item: Any) -> str:
    """Return the grammar of one item of a list; empty where it is in several lists."""
    if not isinstance(item, Mapping):
        raise _unknown(item)
    if item.get("type") == "text" or ("text" in item and "type" not in item and "op" not in item):
        return ""
    return _of_object(item)


def _of_object(item: Mapping[str, Any]) -> str:
    kind = item.get("type")
    if "op" in item:
        return "osgym"
    if "action_type" in item:
        return "computer13"
    if kind in ("tool_use", "thinking", "redacted_thinking"):
        return "anthropic"
    if kind in ("computer_call", "reasoning", "message") and "role" not in item:
        return "openai"
    if "toolset_name" in item:
        return "anthropic"
    if kind == "message" or "role" in item:
        return _of_message(item)
    if item.get("object") == "response" or ("output" in item and kind is None):
        return "openai"
    if kind in _GEMINI_STEPS or any(
        name in item for name in ("function_call", "functionCall", "candidates", "parts", "steps")
    ):
        return "gemini"
    if isinstance(item.get("choices"), list):
        return "qwen"
    return _of_call(item, kind)


def _of_message(item: Mapping[str, Any]) -> str:
    content = item.get("content")
    if "parts" in item:
        return "gemini"
    if item.get("tool_calls"):
        return "qwen"
    if isinstance(content, str):
        return _of_text(content)
    if isinstance(content, list):
        kinds = [part.get("type") for part in content if isinstance(part, Mapping)]
        if "output_text" in kinds or "refusal" in kinds:
            return "openai"
        if "tool_use" in kinds:
            return "anthropic"
    raise _unknown(item)


def _of_call(item: Mapping[str, Any], kind: Any) -> str:
    function = item.get("function")
    if item.get("name") == "computer_use" or (
        isinstance(function, Mapping) and function.get("name") == "computer_use"
    ):
        return "qwen"
    if isinstance(item.get("name"), str) and isinstance(item.get("args"), Mapping):
        return "gemini"
    if isinstance(kind, str) and kind in _OPENAI_TYPES:
        return "openai"
    if "action" in item:
        raise _ambiguous("anthropic or qwen, whose coordinates differ", item)
    raise _unknown(item)


def _of_text(text: str) -> str:
    if len(text) > MAX_OUTPUT_CHARS:
        why = f"it has {len(text)} characters; at most {MAX_OUTPUT_CHARS} are taken"
        raise UnreadableAction("auto", why)
    stripped = text.strip()
    if stripped.startswith(("<|think_start|>", "<|action_start|>")):
        return "osgym"
    if stripped in _WORDS:
        return "computer13"
    if stripped.startswith(("{", "[")):
        return _of_json(stripped)
    found = []
    if "<tool_call>" in text:
        found.append("qwen")
    if _UITARS_ACTION.search(text):
        found.append("uitars")
    if _COMPUTER.search(text):
        found.append("opencua")
    elif _PYAUTOGUI.search(text):
        found.append("pyautogui")
    if not found and _GLM_CALL.search(text):
        found.append("glm")
    call = _OSGYM_CALL.match(text)
    if call is not None and not found:
        if call.group(1) == "type" and _UITARS_CALL.match(text):
            found += ["osgym", "uitars"]
        elif not _UITARS_CALL.match(text):
            found.append("osgym")
    if not found and _UITARS_CALL.match(text):
        found.append("uitars")
    if not found and "```json" in text and '"action_type"' in text:
        found.append("computer13")
    if call is not None and call.group(1) == "type" and found and "osgym" not in found:
        found.append("osgym")  # what is typed may be anything, another grammar's words too
    if len(found) == 1:
        return found[0]
    raise _ambiguous(" or ".join(found), text) if found else _unknown(text)


def _of_json(text: str) -> str:
    given = from_json(text, "auto")
    if isinstance(given, Mapping):
        return _of_object(given)
    if isinstance(given, list):
        return _of_list([item for item in given if not isinstance(item, str)] or [None])
    raise _unknown(text)
