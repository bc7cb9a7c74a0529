"""Action grammar of models that say xdotool commands, one a line: `xdotool mousemove 10 20 click 1`.

It reads `mousemove X Y`, `click BUTTON` and `key CHORD`, and `exit 0` or `exit 1` as the end. Coordinates are
pixels of the image that the model saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from osgym_protocol.grammars import CannotRender, Context, Ending, Evidence, Grammar, Parsed
from osgym_protocol.grammars.base import Builder, shown
from osgym_protocol.grammars.chords import ChordError, split_chord

NAME = "xdotool"
_BUTTONS = {"1": "left", "2": "middle", "3": "right"}
_ENDINGS = {"exit 0": Ending.DONE, "exit 1": Ending.FAIL}


def parse(output: Any, context: Context) -> Parsed:
    """Read the lines of a text."""
    to = Builder(NAME, context)
    if not isinstance(output, str):
        raise to.refuse("it must be text", read=shown(output))
    for number, line in enumerate(output.strip().splitlines(), 1):
        position, words = f"line {number}", line.split()
        if line.strip() in _ENDINGS:
            to.end(position, _ENDINGS[line.strip()])
        elif words[:1] == [NAME]:
            to.add(position, *_actions(words[1:], position, to))
        else:
            raise to.refuse("this is no command of xdotool", position, shown(line))
    return to.result()


def _actions(words: Sequence[str], position: str, to: Builder) -> Iterator[dict[str, Any]]:
    left = list(words)
    while left:
        match left:
            case ["mousemove", x, y, *left] if x.isdecimal() and y.isdecimal():
                pixel = to.context.space().pixel(int(x), int(y))
                if pixel is None:
                    raise to.refuse(to.context.space().why(int(x), int(y)), position, f"{x} {y}")
                yield {"op": "move", "x": pixel[0], "y": pixel[1]}
            case ["click", button, *left] if button in _BUTTONS:
                yield {"op": "click", "button": _BUTTONS[button]}
            case ["key", chord, *left]:
                try:
                    yield {"op": "key", "keys": split_chord(chord)}
                except ChordError as exc:
                    raise to.refuse(str(exc), position, shown(chord)) from None
            case _:
                allowed = "mousemove X Y, click 1 to 3, key CHORD"
                raise to.refuse("this is no action", position, shown(" ".join(left)), allowed)


def render(
    actions: Sequence[Mapping[str, Any]], context: Context, ending: Ending | None = None, text: str = ""
) -> str:
    """Return the lines; xdotool has no words for an answer or a question."""
    lines = [f"{NAME} {_words(action, context)}" for action in actions]
    lines += [line for line, each in _ENDINGS.items() if each is ending]
    if text or (ending is not None and ending not in _ENDINGS.values()):
        raise CannotRender("xdotool answers and asks nothing")
    return "\n".join(lines)


def _words(action: Mapping[str, Any], context: Context) -> str:
    match action:
        case {"op": "move", "x": x, "y": y}:
            column, row = context.space().point(x, y)
            return f"mousemove {column:g} {row:g}"
        case {"op": "click", "button": button, **more} if not more:
            number = next((number for number, name in _BUTTONS.items() if name == button), None)
            if number is not None:
                return f"click {number}"
        case {"op": "key", "keys": keys, **more} if not more:
            return f"key {'+'.join(keys)}"
    raise CannotRender(f"xdotool has no words for {dict(action)!r:.200}")


def in_text(text: str) -> Evidence:
    """Return whether a text begins with the name of the program."""
    return Evidence.MARK if text.lstrip().startswith(f"{NAME} ") else Evidence.NONE


GRAMMAR = Grammar(NAME, (), "image", parse, render, in_text)
