"""pyautogui source, as OSWorld's agents write it: read from its syntax tree, never run.

Read in asweigart/pyautogui (2023-06-07, `pyautogui/__init__.py`) and OSWorld's prompts. Of Python there are
literals, arithmetic on numbers, `+` of texts, names assigned before, `pyautogui.…(…)`, `time.sleep(…)`,
imports of these two, and `with pyautogui.hold(…):`. Everything else is refused with its line. `WAIT` (2 s),
`DONE` and `FAIL` stand alone on a line, as in OSWorld. Code may stand between fences; what is outside is
for the reader.

Coordinates are pixels of the screenshot. Durations, intervals and `PAUSE` are checked and not waited for:
the host waits for the screen instead. Scrolls are clicks of the wheel, positive upwards and to the right.
"""

from __future__ import annotations

import ast
import os
import re
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from osgym_protocol.grammars.base import (
    MAX_OUTPUT_CHARS,
    UNCLOSED_THOUGHTS,
    Builder,
    CannotRender,
    Context,
    Ending,
    Parsed,
    after_thinking,
    shown,
)
from osgym_protocol.grammars.objects import plain
from osgym_protocol.grammars.pyautogui_calls import FUNCTIONS, Calls
from osgym_protocol.grammars.pyautogui_values import Values
from osgym_protocol.grammars.registry import Evidence, Grammar
from osgym_protocol.grammars.space import Space
from osgym_protocol.limits import MAX_KEYS, PIXELS_PER_SCROLL_CLICK

NAME = "pyautogui"
WAIT_MS = 2000
_FENCE = re.compile(r"[ \t]*```[A-Za-z0-9_+-]*[ \t]*")
_FENCED_LINE = re.compile(r"\s*```(?:python[ \t]+)?([^`\n]*)```\s*")
_MAX_STATEMENTS = 512
_MAX_WITH_DEPTH = 4
_WORDS = ("WAIT", "DONE", "FAIL")
_SETTINGS = ("FAILSAFE", "PAUSE", "MINIMUM_DURATION", "MINIMUM_SLEEP")
_MODULES = ("pyautogui", "time")
_WARNINGS = threading.Lock()

_SOURCE = re.compile(
    r"(?:^|[^\w.])pyautogui\s*\.|(?:^|[^\w.])time\s*\.\s*sleep\s*\("
    r"|^[ \t]*(?:import|from)[ \t]+(?:pyautogui|time)\b",
    re.MULTILINE,
)
COMPUTER_CALL = re.compile(
    r"^[ \t]*computer\s*\.\s*(?:triple_click|tripleClick|wait|terminate)\s*\(", re.MULTILINE
)
"""A call that OpenCUA adds to pyautogui's."""


def parse(output: Any, context: Context) -> Parsed:
    """Read source, or an answer with source between fences; the position of an error is its line."""
    return read_source(output, Builder(NAME, context), computer=False)


def read_source(output: Any, to: Builder, computer: bool) -> Parsed:
    """Read source into `to`.

    Args:
        output: Output as for :func:`parse`.
        to: Empty builder of the grammar that is read.
        computer: OpenCUA's `computer.…` is allowed.
    """
    text = plain(output, to.grammar)
    if not isinstance(text, str):
        raise to.refuse("it must be text", read=shown(text))
    if len(text) > MAX_OUTPUT_CHARS:
        raise to.refuse(f"the output has {len(text)} characters; at most {MAX_OUTPUT_CHARS} are allowed")
    answer = after_thinking(text)
    if answer is None:
        raise to.refuse(UNCLOSED_THOUGHTS)
    text = "\n" * text.count("\n", 0, answer) + text[answer:]
    reader = _Reader(to, computer)
    reader.block(_tree(_code(text, to), to).body, 0)
    if not len(to) and not to.ended:
        where = "between the fences (```)" if "```" in text else "in it"
        raise to.refuse(f"the output has no action {where}")
    return to.result()


def _code(text: str, to: Builder) -> str:
    """Return the source with the answer's line numbers: lines outside of fences become empty."""
    lines = text.split("\n")
    fences = [number for number, line in enumerate(lines) if _FENCE.fullmatch(line)]
    if not fences:
        alone = _FENCED_LINE.fullmatch(text)
        return alone.group(1) if alone else text
    if len(fences) % 2:
        raise to.refuse("a fence (```) is not closed", f"line {fences[-1] + 1}")
    marks, made, inside = set(fences), [], False
    for number, line in enumerate(lines):
        if number in marks:
            inside = not inside
            made.append("")
        else:
            made.append(line if inside else "")
    return "\n".join(made)


def _tree(source: str, to: Builder) -> ast.Module:
    try:
        with _WARNINGS, warnings.catch_warnings():  # "\d" in a text is worth no warning here
            warnings.simplefilter("ignore")
            # The file is what Python would open to show the line of an error.
            return ast.parse(source, os.devnull)
    except SyntaxError as exc:
        line = f"line {exc.lineno}" if exc.lineno else ""
        raise to.refuse(
            f"it is not Python ({str(exc.msg)[:100]})", line, shown((exc.text or "").strip())
        ) from None
    except (ValueError, RecursionError, MemoryError, OverflowError):
        raise to.refuse("it is not Python, or nested too deep") from None


class _Reader:
    """Reads statements one after the other."""

    def __init__(self, to: Builder, computer: bool) -> None:
        self._to = to
        self._values = Values(to)
        self._calls = Calls(to, self._values, computer)
        self._left = _MAX_STATEMENTS

    def block(self, body: Sequence[ast.stmt], depth: int) -> None:
        """Read statements. Raises UnreadableAction if one of them is not allowed."""
        for node in body:
            self._left -= 1
            if self._left < 0:
                raise self._refuse(node, f"there are more than {_MAX_STATEMENTS} statements")
            match node:
                case ast.Expr(ast.Constant(str())) | ast.Pass():
                    pass
                case ast.Expr(ast.Name(word)) if word in _WORDS:
                    self._word(node, word)
                case ast.Expr(ast.Call() as call):
                    self._calls.call(call)
                case ast.Import(names):
                    for alias in names:
                        if alias.name not in _MODULES:
                            raise self._refuse(
                                node, f"{alias.name[:40]} cannot be imported", "pyautogui, time"
                            )
                        self._values.modules[alias.asname or alias.name] = alias.name
                case ast.ImportFrom(module, names, 0) if module in _MODULES:
                    for alias in names:
                        self._values.functions[alias.asname or alias.name] = f"{module}.{alias.name}"
                case ast.Assign([target], value):
                    self._assign(node, target, value)
                case ast.With([ast.withitem(ast.Call() as call, None)], inner):
                    if depth >= _MAX_WITH_DEPTH:
                        raise self._refuse(node, "with statements are nested too deep")
                    self._hold(call, inner, depth)
                case _:
                    what = type(node.value if isinstance(node, ast.Expr) else node).__name__
                    allowed = "calls of pyautogui and time.sleep, assignments, imports of these two"
                    raise self._refuse(node, f"{what} is not supported", allowed)

    def _refuse(self, node: ast.AST, why: str, allowed: str = "") -> Exception:
        return self._to.refuse(why, f"line {getattr(node, 'lineno', 0)}", allowed=allowed)

    def _word(self, node: ast.stmt, word: str) -> None:
        position = f"line {node.lineno}"
        if word == "WAIT":
            self._to.add(position, {"op": "wait", "duration_ms": WAIT_MS})
        else:
            self._to.end(position, Ending.DONE if word == "DONE" else Ending.FAIL)

    def _assign(self, node: ast.stmt, target: ast.expr, value: ast.expr) -> None:
        given = self._values.of(value)
        match target:
            case ast.Name(name):
                self._values.names[name] = given
            case ast.Tuple(targets) | ast.List(targets) if isinstance(given, (tuple, list)):
                if len(targets) != len(given) or not all(isinstance(one, ast.Name) for one in targets):
                    raise self._refuse(node, "an assignment must have as many names as values")
                for one, part in zip(targets, given, strict=True):
                    assert isinstance(one, ast.Name)
                    self._values.names[one.id] = part
            case ast.Attribute(ast.Name(module), name) if self._values.modules.get(module) == "pyautogui":
                if name not in _SETTINGS:
                    raise self._refuse(node, f"pyautogui.{name[:40]} cannot be set", ", ".join(_SETTINGS))
            case _:
                raise self._refuse(node, "only names can be assigned")

    def _hold(self, call: ast.Call, body: Sequence[ast.stmt], depth: int) -> None:
        """Read `with pyautogui.hold(keys):`."""
        position = f"line {call.lineno}"
        if self._calls.name(call) != "pyautogui.hold":
            raise self._refuse(call, "only pyautogui.hold(...) can follow with")
        keys = self._calls.keys_of(call, self._calls.arguments(call, FUNCTIONS["pyautogui.hold"]))
        for key in keys:
            self._to.add(position, {"op": "key_down", "key": key})
        self.block(body, depth + 1)
        for key in reversed(keys):
            self._to.add(position, {"op": "key_up", "key": key})


def render(
    actions: Sequence[Mapping[str, Any]], context: Context, ending: Ending | None = None, text: str = ""
) -> str:
    space = context.space()
    lines = [line for action in actions for line in rendered(action, space)]
    if ending is not None:
        if ending not in (Ending.DONE, Ending.FAIL) or text:
            raise CannotRender("OSWorld's words are DONE and FAIL, without a text")
        lines.append(ending.name)
    return "\n".join(lines)


def rendered(action: Mapping[str, Any], space: Space) -> list[str]:
    """Return the lines for one action."""
    at = _at(space, action["x"], action["y"]) if "x" in action else ""
    button = action.get("button", "left")
    named = f", button={button!r}" if button != "left" else ""
    bare = not action.get("modifiers") and button in ("left", "middle", "right")
    match action["op"]:
        case "click" if bare:
            clicks = f", clicks={action['count']}" if action.get("count", 1) != 1 else ""
            return [f"pyautogui.click({(at + clicks + named).removeprefix(', ')})"]
        case "move":
            return [f"pyautogui.moveTo({at})"]
        case "drag" if bare and len(action["path"]) == 2:
            start, end = (_at(space, *point) for point in action["path"])
            return [f"pyautogui.moveTo({start})", f"pyautogui.dragTo({end}, button={button!r})"]
        case "scroll" if not action.get("modifiers"):
            return _scrolled(action, f", {at}" if at else "")
        case "type" if not action.get("press_enter"):
            return [f"pyautogui.write({action['text']!r})"]
        case "key":
            keys = action["keys"] if isinstance(action["keys"], list) else [action["keys"]]
            repeat = action.get("repeat", 1)
            if len(keys) == 1:
                more = f", presses={repeat}" if repeat != 1 else ""
                return [f"pyautogui.press({keys[0]!r}{more})"]
            if repeat == 1 and len(keys) <= MAX_KEYS:
                return [f"pyautogui.hotkey({', '.join(map(repr, keys))})"]
        case "key_down" | "key_up":
            return [f"pyautogui.key{action['op'].removeprefix('key_').title()}({action['key']!r})"]
        case "button_down" | "button_up" if bare:
            given = (at + named).removeprefix(", ")
            return [f"pyautogui.mouse{action['op'].removeprefix('button_').title()}({given})"]
        case "wait":
            return [f"time.sleep({action['duration_ms'] / 1000!r})"]
        case "screenshot":
            return ["pyautogui.screenshot()"]
    raise CannotRender(f"pyautogui has no call for {dict(action)!r:.200}")


def _at(space: Space, x: int, y: int) -> str:
    px, py = space.point(x, y)
    return f"{px!r}, {py!r}"


def _scrolled(action: Mapping[str, Any], at: str) -> list[str]:
    unit = PIXELS_PER_SCROLL_CLICK if action.get("unit") == "px" else 1
    dx, dy = action.get("dx", 0), action.get("dy", 0)
    if (dx and dy) or dx % unit or dy % unit:
        raise CannotRender("a scroll goes one way, in whole clicks")
    call, clicks = ("hscroll", dx) if dx else ("scroll", -dy)
    return [f"pyautogui.{call}({clicks // unit}{at})"]


def _in_text(text: str) -> Evidence:
    own = _SOURCE.search(text) and not COMPUTER_CALL.search(text)
    return Evidence.MARK if own else Evidence.NONE


GRAMMAR = Grammar(NAME, (), "image", parse, render, _in_text)
