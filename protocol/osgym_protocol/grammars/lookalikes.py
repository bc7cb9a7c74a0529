"""Hints about actions of other grammars, for the messages of refusals.

Nothing is understood, and nothing refused, because of a hint. The exceptions are `keyword_style` and
`stray_call`: texts that OSGym's grammar would type although another grammar meant a call. All of it is linear
in the length of the input.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Any

_HEAD_CHARS = 2000
"""Length of the part of a text that is searched."""
_LOOKS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"\bpyautogui\b|^\s*(?:import|from)\s+\w+|\btime\.sleep\("),
        "a pyautogui program: a client reads it with actions=",
    ),
    (re.compile(r"\"action_type\"|'action_type'"), "computer_13 as text: send the object itself"),
    (
        re.compile(r"['\"]action['\"]\s*:|['\"]coordinate['\"]\s*:"),
        "Anthropic's or Qwen's computer tool: a client reads it with actions=",
    ),
    (re.compile(r"^\s*(?:```|<tool_call>|\{|\[)"), "JSON, code or a tool call as text: send only the action"),
    (re.compile(r"\bagent\.\w+\("), "Agent S's grammar"),
    (
        re.compile(
            r"\b(?:start_box|end_box|point|start_point|end_point|content|direction|key)\s*=|<point>|<\|box_start\|>"
            r"|\bfinished\("
        ),
        "UI-TARS's grammar (name='value'): a client reads it with actions=",
    ),
    (re.compile(r"\b(?:x|y|text|button|clicks|keys|interval)\s*="), "a call with keywords (name=value)"),
    (
        re.compile(r"^\s*scroll\([^()]*,\s*(?:up|down|left|right)\s*\)"),
        "the form of OSGym's models before its client scales it: dy is a number of wheel clicks, + is up",
    ),
    (
        re.compile(r"^\s*\w+\(\s*(?:0?\.\d+|[01]\.0+)\s*,"),
        "coordinates from 0 to 1: multiply by the screen's size",
    ),
    (re.compile(r"\b(?:Thought|Action|Observation)\s*:"), "a model's whole answer: send only the action"),
)
_SAME: Mapping[str, str] = {
    "double_click": "left_double",
    "doubleclick": "left_double",
    "left_click": "click",
    "left_single": "click",
    "right_click": "right_single",
    "rightclick": "right_single",
    "finished": "finish",
    "done": "finish",
    "fail": "call_user",
    "write": "type",
    "typewrite": "type",
    "input": "type",
    "key": "press",
    "keypress": "press",
    "key_press": "press",
    "moveto": "move",
    "move_to": "move",
    "mouse_move": "move",
    "dragto": "drag",
    "sleep": "wait",
}
"""Names of other grammars, and OSGym's names for the same action."""
_TEXT_KEYWORDS = (
    "content|text|txt|value|message|msg|string|str|input|input_text|text_to_type"
    "|keys|keystrokes|chars|characters|words"
)
_KEYWORD = re.compile(rf"\s*(?:(?:{_TEXT_KEYWORDS})\s*=\s*(?:[rbfu]?['\"])|content\s*=)", re.IGNORECASE)
_TRAILING_KEYWORD = re.compile(
    r"\s*(?:'[^']*'|\"[^\"]*\")\s*,\s*(?:press_enter|enter|interval|clear|overwrite|submit|delay|x|y)\s*="
)
_GAP = re.compile(r"\s+|[&;,|]+|<\|\w{1,40}\|>|(?:and|then)\b")
_NEXT_CALL = re.compile(r"([A-Za-z_]\w{0,60})(?:\.\w{1,60}){0,3}\(", re.ASCII)


def grammar_of(text: str) -> str | None:
    """Return what a refused text looks like, or None."""
    head = text[:_HEAD_CHARS]
    return next((name for pattern, name in _LOOKS if pattern.search(head)), None)


def grammar_of_object(action: Mapping[str, Any]) -> str | None:
    """Return what a refused object looks like, or None."""
    if "action" in action or "coordinate" in action:
        return "Anthropic's computer tool"
    if "type" in action or "scroll_x" in action:
        return "OpenAI's computer tool"
    if "name" in action and ("arguments" in action or "parameters" in action):
        return "a tool call: send only its action"
    return None


def similar(name: str, known: Collection[str]) -> str | None:
    """Return the known name that was probably meant."""
    lower = name[:40].lower()
    same = _SAME.get(lower)
    if same in known:
        return same
    near = difflib.get_close_matches(lower, sorted(known), n=1, cutoff=0.6)
    return near[0] if near else None


def keyword_style(text: str) -> bool:
    """Return whether the argument of `type(...)` is written as in Python: `content='hello'`, `'a',
    enter=True`.

    OSGym's text is raw: it would be typed, quotes and all.
    """
    return _KEYWORD.match(text) is not None or _TRAILING_KEYWORD.match(text) is not None


def stray_call(text: str, known: Collection[str]) -> str | None:
    """Return the call behind a `)` without a `(` of its own, in an argument that is read as text.

    `type(hello); press(enter)` is no text `hello); press(enter`: two actions were meant that are joined
    otherwise than by ` & `, or of which the second does not exist. Behind mere blanks and words only the
    names of actions count, since `1) see f(x)` may well be typed.
    """
    depth = 0
    for found in re.finditer(r"[()]", text):
        if found.group() == "(":
            depth += 1
            continue
        if depth > 0:
            depth -= 1
            continue
        at, joined = found.end(), False
        while (gap := _GAP.match(text, at)) is not None:
            joined = joined or (gap.group() not in ("and", "then") and gap.group().strip(" \t") != "")
            at = gap.end()
        call = _NEXT_CALL.match(text, at)
        if call is not None and (joined or call.group(1) in known):
            return call.group(1)
    return None
