"""UI-TARS: `Thought: …` and `Action: click(start_box='(x,y)')` in text; an empty line between actions.

Read in bytedance/UI-TARS (2025-09-05: `codes/ui_tars/prompt.py`, `action_parser.py`,
`README_coordinates.md`). Points are written `'(x,y)'`, `'<|box_start|>(x,y)<|box_end|>'`, `'<point>x
y</point>'` or as a box of four numbers, whose centre is meant. The text of `type` is between the first
quote and the first one that can close it, so quotes and line breaks in it need no escape; `\\n`, `\\t`,
`\\'`, `\\"` and `\\\\` are escapes.

Coordinates: of UI-TARS 1.0 and of its successors from Doubao, 0 to 1000 from edge to edge; of UI-TARS 1.5,
pixels of the image after the processor has resized it (`smart_resize`). A scroll is 5 clicks, a `wait()` 5
s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from osgym_protocol.grammars.base import (
    MAX_OUTPUT_CHARS,
    UNCLOSED_THOUGHTS,
    Builder,
    CannotRender,
    Context,
    Ending,
    Parsed,
    RawAction,
    after_thinking,
    shown,
)
from osgym_protocol.grammars.chords import ChordError, split_spaced_chord
from osgym_protocol.grammars.objects import DIRECTIONS, plain, xy
from osgym_protocol.grammars.space import Space, smart_resize

NAME = "uitars"
SCROLL_CLICKS = 5
WAIT_MS = 5000
_ACTION = re.compile(r"^[ \t]*Action[ \t]*:", re.MULTILINE)
_CALL = re.compile(r"\s*([a-z_]{1,20})\s*\(\s*")
_NAMED = re.compile(r"([a-z_]{1,20})\s*=\s*(['\"])")
_AFTER = re.compile(r"\s*(?:,\s*(?=[a-z_]{1,20}\s*=\s*['\"])|(\)))")
_BLANK = re.compile(r"\s*")
_NEXT = re.compile(r"(?:Action[ \t]*:)?\s*(?=[a-z_]{1,20}\s*\()")
_NUMBER = r"\s*(-?\d{1,9}(?:\.\d{1,9})?)\s*"
_BOX = re.compile(
    rf"\s*(?:<\|box_start\|>)?\s*(?:<point>|<bbox>)?\s*[\[(]?{_NUMBER}[,\s]{_NUMBER}"
    rf"(?:[,\s]{_NUMBER}[,\s]{_NUMBER})?[\])]?\s*(?:</point>|</bbox>)?\s*(?:<\|box_end\|>)?\s*",
    re.ASCII,
)
_ESCAPE = re.compile(r"\\(r\\n|[nt'\"\\])")
_ESCAPED = {"r\\n": "\n", "n": "\n", "t": "\t", "'": "'", '"': '"', "\\": "\\"}
_SAME = {
    "point": "start_box",
    "start_point": "start_box",
    "end_point": "end_box",
    "hotkey": "key",
    "press": "key",
}
_KEY_NAMES = {"+": "plus", " ": "space", "'": "apostrophe", "\\": "backslash"}
_END_TOKENS = ("[EOS]", "<|im_end|>")


def parse(output: Any, context: Context) -> Parsed:
    """Return what a model said.

    Args:
        output: the text of an answer. Without `Action:` it is all actions.
        context: version `1.5` changes what coordinates are.

    Raises:
        UnreadableAction: it is refused.
    """
    to = Builder(NAME, context)
    text = plain(output, NAME)
    if not isinstance(text, str):
        raise to.refuse("it must be text", read=shown(text))
    if len(text) > MAX_OUTPUT_CHARS:
        raise to.refuse(f"it has {len(text)} characters; at most {MAX_OUTPUT_CHARS} are taken")
    for token in _END_TOKENS:
        text = text.removesuffix(token)
    answer = after_thinking(text)
    if answer is None:
        raise to.refuse(UNCLOSED_THOUGHTS)
    begins = _ACTION.search(text, answer)
    at = begins.end() if begins else answer
    thought = text[: begins.start()].strip() if begins else ""
    while text[at:].strip():
        at = _one(text, at, to)
    if not len(to) and not to.ended:
        raise to.refuse("there is no action in it", allowed=", ".join(NAMES))
    if thought and not to.texts:
        to.texts.append(thought)
    return to.result()


def _one(text: str, at: int, to: Builder) -> int:
    """Read the action that begins at `at`; return where the next one begins."""
    line = text.count("\n", 0, at + len(text[at:]) - len(text[at:].lstrip())) + 1
    position = f"line {line}"
    opened = _CALL.match(text, at)
    if opened is None or opened.group(1) not in NAMES:
        read = opened.group(1) if opened else text[at : at + 60].strip()
        raise to.refuse("an action must be name(...)", position, shown(read), ", ".join(NAMES))
    name, at = opened.group(1), opened.end()
    given: dict[str, str] = {}
    closed = text[at : at + 1] == ")"
    at += closed
    while not closed:
        named = _NAMED.match(text, at)
        if named is None:
            read = shown(text[at : at + 40])
            raise to.refuse(f"an argument of {name} must be name='…'", position, read)
        at, after = _quoted(text, named.end(), named.group(2), name, position, to)
        key = _SAME.get(named.group(1), named.group(1))
        if key in given:
            raise to.refuse(f"the argument {key} is there twice", position)
        given[key] = text[named.end() : at]
        closed, at = after.group(1) is not None, after.end()
    following = _following(text, at)
    if following is None:
        read = shown(text[at : at + 40])
        raise to.refuse("after an action comes the end or, on a line of its own, another", position, read)
    _act(name, given, position, to)
    return following


def _following(text: str, at: int) -> int | None:
    """Return where the next action begins, or the end; None where something else follows."""
    blank = _BLANK.match(text, at)
    end = blank.end() if blank else at
    if end == len(text):
        return end
    begun = _NEXT.match(text, end) if "\n" in text[at:end] else None
    return begun.end() if begun else None


def _quoted(
    text: str, start: int, quote: str, name: str, position: str, to: Builder
) -> tuple[int, re.Match[str]]:
    """Return where the closing quote is, and what follows it.

    It is the first quote that is not escaped and after which the call ends (and the output, or its line),
    or goes on with another argument.
    """
    at = start
    while (at := text.find(quote, at)) != -1:
        after = _AFTER.match(text, at + 1) if not _is_escaped(text, start, at) else None
        if after is not None and (after.group(1) is None or _following(text, after.end()) is not None):
            if _holds_a_call(text[start:at], quote):
                why = f"it is unclear where the text of {name} ends"
                form = f"each action on a line of its own, quotes in a text written \\{quote}"
                raise to.refuse(why, position, shown(text[start - 1 : at + 1]), form)
            return at, after
        at += 1
    raise to.refuse(f"the text of {name} is not closed", position, shown(text[start - 1 : start + 60]))


def _is_escaped(text: str, start: int, at: int) -> bool:
    """Whether an odd number of backslashes stands before a sign, in a text that begins at `start`."""
    first = at
    while first > start and text[first - 1] == "\\":
        first -= 1
    return (at - first) % 2 == 1


def _holds_a_call(text: str, quote: str) -> bool:
    """Whether a text may have ended before: behind a quote and `)` in it come a call or another label.

    Such an answer has several actions, joined in a way that UI-TARS has not: the rest must not be typed.
    """
    at = -1
    while (at := text.find(quote, at + 1)) != -1:
        closed = _CLOSED.match(text, at + 1) if not _is_escaped(text, 0, at) else None
        if closed is not None:
            return _STRAY.search(text, closed.end()) is not None
    return False


def _act(name: str, given: dict[str, str], position: str, to: Builder) -> None:
    space = _space(to.context)
    needed, optional, read = _ACTIONS[name]
    for key in given:
        if key not in needed and key not in optional:
            allowed = ", ".join((*needed, *optional)) or "none"
            raise to.refuse(f"{name} has no argument {key[:40]}", position, allowed=allowed)
    for key in needed:
        if key not in given:
            raise to.refuse(f"{name} needs the argument {key}", position)
    if name == "finished":
        to.end(position, Ending.DONE, _unescaped(given.get("content", "")))
        return
    if name == "call_user":
        to.end(position, Ending.ASK_USER, _unescaped(given.get("content", "")))
        return
    arguments: dict[str, Any] = dict(given)
    for key in ("start_box", "end_box"):
        if key in given:
            arguments[key] = _pixel(given[key], key, position, space, to)
    if "content" in given:
        arguments["content"] = _unescaped(given["content"])
    if "key" in given:
        arguments["key"] = _keys(given["key"], position, to)
    if "direction" in given and given["direction"] not in DIRECTIONS:
        allowed = ", ".join(DIRECTIONS)
        raise to.refuse("it must be one of the directions", position, shown(given["direction"]), allowed)
    to.add(position, *read(arguments))


def _pixel(box: str, key: str, position: str, space: Space, to: Builder) -> tuple[int, int]:
    found = _BOX.fullmatch(" ".join(box.split())) if len(box) <= 200 else None
    if found is None:
        raise to.refuse(f"{key} must be a point", position, shown(box), "'(x,y)', '<point>x y</point>'")
    x1, y1, x2, y2 = found.groups()
    at = (float(x1), float(y1)) if x2 is None else (
        (float(x1) + float(x2)) / 2, (float(y1) + float(y2)) / 2,
    )  # fmt: skip
    pixel = space.pixel(*at)
    if pixel is None:
        why = space.why(*at).replace("the point", key)
        raise to.refuse(why, position, shown(box), space.allowed())
    return pixel


def _keys(text: str, position: str, to: Builder) -> list[str]:
    """Read `ctrl c`; some answers have `ctrl+c`, and more than the prompt's three keys."""
    try:
        return split_spaced_chord(text)
    except ChordError as exc:
        raise to.refuse(f"key: {exc}", position, shown(text), "keys with blanks between: 'ctrl c'") from None


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: _ESCAPED[found.group(1)], text)


def _space(context: Context) -> Space:
    if context.version == "1.5":
        width, height = context.image or context.screen
        return context.space(smart_resize(width, height, 28, 100 * 28 * 28, 16384 * 28 * 28))
    return context.space("norm1000")


_Read = Callable[[dict[str, Any]], list[RawAction]]


def _click(button: str, count: int) -> tuple[tuple[str, ...], tuple[str, ...], _Read]:
    return ("start_box",), (), lambda given: [
        {"op": "click", **xy(given["start_box"]), "button": button, "count": count}
    ]  # fmt: skip


def _scroll(given: dict[str, Any]) -> list[RawAction]:
    dx, dy = DIRECTIONS[given["direction"]]
    at = xy(given.get("start_box"))
    return [{"op": "scroll", **at, "dx": dx * SCROLL_CLICKS, "dy": dy * SCROLL_CLICKS}]


def _drag(given: dict[str, Any]) -> list[RawAction]:
    return [{"op": "drag", "path": [list(given["start_box"]), list(given["end_box"])]}]


def _key_state(op: str) -> tuple[tuple[str, ...], tuple[str, ...], _Read]:
    return ("key",), (), lambda given: [{"op": op, "key": key} for key in given["key"]]


_MOVE: tuple[tuple[str, ...], tuple[str, ...], _Read] = (
    ("start_box",), (), lambda given: [{"op": "move", **xy(given["start_box"])}],
)  # fmt: skip
_ACTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...], _Read]] = {
    "click": _click("left", 1),
    "left_single": _click("left", 1),
    "left_double": _click("left", 2),
    "right_single": _click("right", 1),
    "hover": _MOVE,
    "drag": (("start_box", "end_box"), (), _drag),
    "select": (("start_box", "end_box"), (), _drag),
    "hotkey": (("key",), (), lambda given: [{"op": "key", "keys": given["key"]}]),
    "press": _key_state("key_down"),
    "keydown": _key_state("key_down"),
    "release": _key_state("key_up"),
    "keyup": _key_state("key_up"),
    "type": (("content",), (), lambda given: [{"op": "type", "text": given["content"]}]),
    "scroll": (("direction",), ("start_box",), _scroll),
    "wait": ((), (), lambda given: [{"op": "wait", "duration_ms": WAIT_MS}]),
    "finished": ((), ("content",), lambda given: []),
    "call_user": ((), ("content",), lambda given: []),
}
NAMES = tuple(_ACTIONS)
_CLOSED = re.compile(r"\s*\)")
_STRAY = re.compile(rf"\b(?:{'|'.join(NAMES)})\s*\(|^[ \t]*(?:Thought|Action|Observation)\w*[ \t]*:", re.M)


def render(
    actions: Sequence[Mapping[str, Any]], context: Context, ending: Ending | None = None, text: str = ""
) -> str:
    """Return the text of an answer that says the same; what the model thinks is left to the caller.

    Raises:
        CannotRender: UI-TARS has no words for one of them.
    """
    lines = [_rendered(action, _space(context)) for action in actions]
    if ending is not None:
        name = "call_user" if ending is Ending.ASK_USER else "finished"
        if ending is Ending.FAIL:
            raise CannotRender("UI-TARS has no word for giving up but call_user")
        lines.append(f"{name}(content={_quote(text)})" if text else f"{name}()")
    return "Action: " + "\n\n".join(lines)


def _rendered(action: Mapping[str, Any], space: Space) -> str:
    def box(x: int, y: int) -> str:
        at = [f"{value:g}" if isinstance(value, float) else str(value) for value in space.point(x, y)]
        return f"'({at[0]},{at[1]})'"

    at = box(action["x"], action["y"]) if "x" in action else ""
    bare = not action.get("modifiers")
    match action["op"]:
        case "click" if bare and at:
            of = {("left", 1): "click", ("left", 2): "left_double", ("right", 1): "right_single"}
            name = of.get((action.get("button", "left"), action.get("count", 1)))
            if name is not None:
                return f"{name}(start_box={at})"
        case "move":
            return f"hover(start_box={at})"
        case "drag" if bare and action.get("button", "left") == "left" and len(action["path"]) == 2:
            start, end = action["path"]
            return f"drag(start_box={box(*start)}, end_box={box(*end)})"
        case "scroll" if bare:
            moved = (action.get("dx", 0), action.get("dy", 0))
            for direction, (dx, dy) in DIRECTIONS.items():
                if action.get("unit") != "px" and moved == (dx * SCROLL_CLICKS, dy * SCROLL_CLICKS):
                    return f"scroll(start_box={at}, direction='{direction}')" if at else (
                        f"scroll(direction='{direction}')"
                    )  # fmt: skip
        case "type" if not action.get("press_enter"):
            return f"type(content={_quote(action['text'])})"
        case "key" if action.get("repeat", 1) == 1:
            keys = action["keys"] if isinstance(action["keys"], list) else [action["keys"]]
            names: list[str] = [str(_KEY_NAMES.get(key, key)) for key in keys]
            return f"hotkey(key='{' '.join(names)}')"
        case "key_down" | "key_up":
            key = action["key"]
            if len(key) > 1 or key.isalnum():
                return f"{'press' if action['op'] == 'key_down' else 'release'}(key='{key}')"
        case "wait" if action["duration_ms"] == WAIT_MS:
            return "wait()"
    raise CannotRender(f"UI-TARS has no action for {dict(action)!r:.200}")


def _quote(text: str) -> str:
    for plain_sign, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\t", "\\t")):
        text = text.replace(plain_sign, escaped)
    return f"'{text}'"
