"""OSGym's action strings: `click(x,y)`, `type(text)`, …, several joined by ` & `.

The wrapped form is `<|think_start|>…<|think_end|><|action_start|>…<|action_end|>`.

The text of `type(...)` is raw: no quoting, no escapes, any characters. It ends at the first `)` after which
the string is over, or continues with ` & ` and valid calls. (A text that would be cut by this rule can be
sent as a dictionary or as an internal action.)

A call of another grammar is refused rather than typed: arguments with keywords (`type(content='hello')`), and
a text in which a `)` without its `(` is followed by another call (`type(hello); press(enter)`). Such a text
is typed in two parts: `type(hello)) & type(; press(enter))`.
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any

from osgym_protocol.grammars.base import RawAction, UnreadableAction
from osgym_protocol.grammars.chords import ChordError, check_chord
from osgym_protocol.grammars.lookalikes import grammar_of, keyword_style, similar, stray_call
from osgym_protocol.limits import MAX_ACTIONS, MAX_KEYS, MAX_TEXT_CHARS

WAIT_MS = 2000
"""Duration of `wait()`: OSGym's fixed pause of a step."""

_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\(", re.ASCII)
_JOIN = re.compile(r"\s*&")
_INT = re.compile(r"[+-]?\d{1,9}", re.ASCII)
_THINK = re.compile(r"\s*<\|think_start\|>.*?<\|think_end\|>", re.DOTALL)
_WRAPPED = re.compile(r"\s*<\|action_start\|>(.*)<\|action_end\|>\s*", re.DOTALL)


def _refused(why: str) -> UnreadableAction:
    return UnreadableAction("osgym", why)


def parse_string(text: str, *, words: bool = False) -> list[RawAction]:
    """Return the internal actions of an OSGym action string; never empty.

    Args:
        text: String, whose points are left as they are.
        words: A scroll may say `up` or `down`, as in OSGym's example client.

    Raises:
        UnreadableAction: The text is not such a string; the message has the position.
    """
    if len(text) > MAX_TEXT_CHARS:
        raise _refused(f"it has {len(text)} characters; at most {MAX_TEXT_CHARS} are allowed")
    try:
        return _parse(text, words)
    except UnreadableAction as error:
        looks = grammar_of(text)
        if looks is None:
            raise
        raise _refused(f"{error.why}; it looks like {looks}") from None


def _parse(text: str, words: bool) -> list[RawAction]:
    body = _unwrap(text)
    if not body.strip():
        raise _refused("it is empty")
    calls = _split(body)
    actions: list[RawAction] = []
    for name, args in calls:
        actions.extend(_call(name, args, words))
    return actions


def _unwrap(text: str) -> str:
    if not text.lstrip().startswith("<|"):
        return text
    think = _THINK.match(text)
    rest = text[think.end() :] if think else text
    wrapped = _WRAPPED.fullmatch(rest)
    if wrapped is None:
        raise _refused("the wrapped form needs <|action_start|>…<|action_end|> and nothing after it")
    return wrapped.group(1)


def _split(body: str) -> list[tuple[str, str]]:
    """Split `body` into (name, raw arguments)."""
    joins = _valid_joins(body)
    calls: list[tuple[str, str]] = []
    at = 0
    while True:
        opened = _CALL.match(body, at)
        if opened is None:
            raise _refused(f"expected name(...) at {body[at : at + 30]!r}")
        name, start = opened.group(1), opened.end()
        if name not in _NAMES:
            raise _refused(_no_action(name))
        end = _close(body, name, start, joins)
        if end is None:
            raise _refused(f"{name}(...) is not closed")
        calls.append((name, body[start:end]))
        if len(calls) > MAX_ACTIONS:
            raise _refused(f"the string has too many calls; at most {MAX_ACTIONS} are allowed")
        if _is_blank(body, end + 1):
            return calls
        joined = _JOIN.match(body, end + 1)
        if joined is None:
            raise _refused(f"expected the end or ' & ' at {body[end + 1 : end + 31]!r}")
        at = joined.end()


_SOMETHING = re.compile(r"\s*\S")


def _is_blank(body: str, at: int) -> bool:
    return _SOMETHING.match(body, at) is None


def _close(body: str, name: str, start: int, joins: Set[int]) -> int | None:
    """Return the offset of the `)` that closes the call whose arguments start at `start`."""
    end = body.find(")", start)
    if name != "type":
        return None if end == -1 else end
    last = end
    while end != -1:
        if _goes_on(body, end + 1, joins):
            return end
        last = end
        end = body.find(")", end + 1)
    return last if last != -1 else None


def _goes_on(body: str, at: int, joins: Set[int]) -> bool:
    """Return whether the string ends at `at`, or continues with a valid join."""
    if body[at : at + 1] not in ("", "&") and not body[at].isspace():
        return False
    joined = _JOIN.match(body, at)
    if joined is not None:
        return joined.end() - 1 in joins
    return _is_blank(body, at)


def _valid_joins(body: str) -> Set[int]:
    """Return the positions of each `&` after which the rest of `body` is calls to its end.

    Computed from the right: a typed text can always reach to the last `)`, any other call ends at its first
    one. Each `)` is examined once, so that the time is linear.
    """
    stripped = body.rstrip()
    last_close = len(stripped) - 1 if stripped.endswith(")") else -1
    valid: set[int] = set()
    close, goes_on = -1, False
    at = body.rfind("&")
    seen = len(body)
    while at != -1:
        first = body.find(")", at, seen)  # from the right, the first `)` behind `at` moves to the left
        if first != -1:
            close, goes_on = first, _goes_on(body, first + 1, valid)
        seen = at
        opened = _CALL.match(body, at + 1)
        known = opened is not None and opened.group(1) in _NAMES and opened.end() <= last_close
        if opened is not None and known and (opened.group(1) == "type" or (close != -1 and goes_on)):
            valid.add(at)
        at = body.rfind("&", 0, at)
    return frozenset(valid)


def _call(name: str, args: str, words: bool) -> list[RawAction]:
    if name == "type":
        return [{"op": "type", "text": _text(args)}]
    parts = [part.strip() for part in args.split(",")] if args.strip() else []
    match name:
        case "click":
            return [_click(name, parts)]
        case "left_double":
            return [_click(name, parts, count=2)]
        case "right_single":
            return [_click(name, parts, button="right")]
        case "move":
            x, y = _ints(name, parts, 2)
            return [{"op": "move", "x": x, "y": y}]
        case "drag":
            x1, y1, x2, y2 = _ints(name, parts, 4)
            return [{"op": "drag", "path": [[x1, y1], [x2, y2]]}]
        case "scroll":
            if words and len(parts) == 3 and parts[2] in _SCROLL_WORDS:
                parts = [*parts[:2], str(_SCROLL_WORDS[parts[2]])]
            x, y, up = _ints(name, parts, 3)
            return [{"op": "scroll", "x": x, "y": y, "dy": -up}]
        case "press":
            return [{"op": "key", "keys": _keys(name, parts, 1)}]
        case "hotkey":
            return [{"op": "key", "keys": _keys(name, parts, MAX_KEYS)}]
    if parts:
        raise _refused(f"{name}() takes no arguments")
    return [dict(_NO_ARGS[name])]


_SCROLL_WORDS = {"up": 50, "down": -50}
_NO_ARGS: dict[str, RawAction] = {
    "wait": {"op": "wait", "duration_ms": WAIT_MS},
    "call_user": {"op": "fail"},
    "finish": {"op": "done"},
}
_NAMES = frozenset(
    ("click", "left_double", "right_single", "move", "drag", "scroll", "type", "press", "hotkey")
) | frozenset(_NO_ARGS)


def _no_action(name: str) -> str:
    meant = similar(name, _NAMES)
    hint = f"; did you mean {meant!r}" if meant is not None else ""
    return f"unknown action {name[:60]!r}; valid actions: {', '.join(sorted(_NAMES))}{hint}"


def _text(args: str) -> str:
    """Return the text to type, unless it is a call of another grammar."""
    if keyword_style(args):
        raise _refused("type(...) takes the bare text, without a name, quotes or further arguments")
    call = stray_call(args, _NAMES)
    if call is not None:
        why = f"after ')' comes {call}(...), so it is unclear where the text of type(...) ends; "
        if call not in _NAMES:
            raise _refused(why + _no_action(call))
        raise _refused(why + "actions are joined by ' & ', and a text with such a ')' is typed in two parts")
    return args


def _click(name: str, parts: list[str], **more: Any) -> RawAction:
    x, y = _ints(name, parts, 2)
    return {"op": "click", "x": x, "y": y, **more}


def _ints(name: str, parts: list[str], count: int) -> list[int]:
    if len(parts) != count:
        raise _refused(f"{name}(...) takes {count} whole numbers, got {len(parts)} arguments")
    for part in parts:
        if _INT.fullmatch(part) is None:
            raise _refused(f"{name}(...) takes whole numbers of pixels, got {part[:30]!r}")
    return [int(part) for part in parts]


def _keys(name: str, parts: list[str], most: int) -> list[str]:
    if not 1 <= len(parts) <= most or not all(parts):
        takes = "one key; hotkey(...) takes several" if most == 1 else f"1 to {most} keys joined by commas"
        raise _refused(f"{name}(...) takes {takes}")
    try:
        return check_chord(parts)
    except ChordError as exc:
        raise _refused(f"{name}(...): {exc}") from None
