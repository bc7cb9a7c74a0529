"""Calls in text with quoted arguments by name: `click(start_box='(x,y)')`, as UI-TARS and GLM write them.

The text of an argument is between the first quote and the first one that can close it, so quotes and line
breaks in it need no escape; `\\n`, `\\r\\n`, `\\t`, `\\'`, `\\"` and `\\\\` are escapes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from osgym_protocol.grammars.base import Builder, shown
from osgym_protocol.grammars.space import Space

_CALL = re.compile(r"\s*([A-Za-z_]{1,20})\s*\(\s*")
_NAMED = re.compile(r"([a-z_]{1,20})\s*=\s*(['\"])")
_NEVER = "(?!)"
_BLANK = re.compile(r"\s*")
_NEXT = re.compile(r"(?:Action[ \t]*:)?\s*(?=[A-Za-z_]{1,20}\s*\()")
_CLOSED = re.compile(r"\s*\)")
_NUMBER = r"\s*(-?\d{1,9}(?:\.\d{1,9})?)\s*"
_BOX = re.compile(
    rf"\s*(?:<\|box_start\|>)?\s*(?:<point>|<bbox>)?\s*[\[(]?{_NUMBER}[,\s]{_NUMBER}"
    rf"(?:[,\s]{_NUMBER}[,\s]{_NUMBER})?[\])]?\s*(?:</point>|</bbox>)?\s*(?:<\|box_end\|>)?\s*",
    re.ASCII,
)
FIRST_ARGUMENT = re.compile(r"\s*[a-z_]{1,20}\s*\(\s*(start_box|point|start_point|content|key)\s*=\s*['\"]")
"""A call of UI-TARS up to the quote of its first argument."""
_ESCAPE = re.compile(r"\\(r\\n|[nt'\"\\])")
_ESCAPED = {"r\\n": "\n", "n": "\n", "t": "\t", "'": "'", '"': '"', "\\": "\\"}


@dataclass(frozen=True, slots=True)
class NamedCall:
    """One call in a text.

    Attributes:
        name: Name of the action.
        given: Arguments as they are written, with escapes.
        position: Position in the output, for errors.
        end: Start of the next call, or end of the text.
    """

    name: str
    given: dict[str, str]
    position: str
    end: int


class CallReader:
    """Reads the calls of an output that has nothing but calls.

    Args:
        to: Builder, whose grammar errors name.
        names: Names of all actions.
        same: Other names of arguments, and those that they stand for.
        number: Argument that may be a number without quotes, if there is one.
    """

    def __init__(
        self, to: Builder, names: Sequence[str], same: Mapping[str, str], number: str = _NEVER
    ) -> None:
        self._to, self._names, self._same = to, names, same
        self._number = re.compile(rf"({number})\s*=\s*(-?\d{{1,9}})\s*(?:,\s*|(\)))")
        self._after = re.compile(rf"\s*(?:,\s*(?=[a-z_]{{1,20}}\s*=\s*['\"]|{number}\s*=\s*-?\d)|(\)))")
        self._stray = re.compile(
            rf"\b(?:{'|'.join(names)})\s*\(|^[ \t]*(?:Thought|Action|Observation)\w*[ \t]*:", re.MULTILINE
        )

    def call(self, text: str, at: int) -> NamedCall:
        """Return the call that begins at an offset.

        Raises:
            UnreadableAction: No call begins there, it is not closed, or something else follows it.
        """
        to = self._to
        line = text.count("\n", 0, at + len(text[at:]) - len(text[at:].lstrip())) + 1
        position = f"line {line}"
        opened = _CALL.match(text, at)
        if opened is None or opened.group(1) not in self._names:
            read = opened.group(1) if opened else text[at : at + 60].strip()
            raise to.refuse("an action must be name(...)", position, shown(read), ", ".join(self._names))
        name, at = opened.group(1), opened.end()
        given: dict[str, str] = {}
        closed = text[at : at + 1] == ")"
        at += closed
        while not closed:
            named = _NAMED.match(text, at) or self._number.match(text, at)
            if named is None:
                read = shown(text[at : at + 40])
                raise to.refuse(f"an argument of {name} must be name='…'", position, read)
            key = self._same.get(named.group(1), named.group(1))
            if key in given:
                raise to.refuse(f"the argument {key} is given twice", position)
            if named.re is self._number:
                given[key], closed, at = named.group(2), named.group(3) is not None, named.end()
                continue
            at, after = self._quoted(text, named.end(), named.group(2), name, position)
            given[key] = text[named.end() : at]
            closed, at = after.group(1) is not None, after.end()
        following = _following(text, at)
        if following is None:
            read = shown(text[at : at + 40])
            raise to.refuse(
                "an action must be followed by the end of the output or by another "
                "action on a line of its own",
                position,
                read,
            )
        return NamedCall(name, given, position, following)

    def arguments(self, call: NamedCall, needed: Sequence[str], optional: Sequence[str]) -> None:
        """Check that a call has the required arguments, and no unknown one.

        Raises:
            UnreadableAction: One is missing or unknown.
        """
        allowed = ", ".join((*needed, *optional)) or "none"
        for key in call.given:
            if key not in needed and key not in optional:
                why = f"{call.name} has no argument {key[:40]}"
                raise self._to.refuse(why, call.position, allowed=allowed)
        for key in needed:
            if key not in call.given:
                raise self._to.refuse(f"{call.name} needs the argument {key}", call.position)

    def pixel(self, call: NamedCall, key: str, space: Space) -> tuple[int, int]:
        """Return the pixel of a point, or of the centre of a box.

        Raises:
            UnreadableAction: It is none, or lies outside.
        """
        box = call.given[key]
        found = _BOX.fullmatch(" ".join(box.split())) if len(box) <= 200 else None
        if found is None:
            forms = "'(x,y)', '<point>x y</point>'"
            raise self._to.refuse(f"{key} must be a point", call.position, shown(box), forms)
        x1, y1, x2, y2 = found.groups()
        at = (float(x1), float(y1)) if x2 is None else (
            (float(x1) + float(x2)) / 2, (float(y1) + float(y2)) / 2,
        )  # fmt: skip
        pixel = space.pixel(*at)
        if pixel is None:
            why = space.why(*at).replace("the point", key)
            raise self._to.refuse(why, call.position, shown(box), space.allowed())
        return pixel

    def _quoted(
        self, text: str, start: int, quote: str, name: str, position: str
    ) -> tuple[int, re.Match[str]]:
        """Return the offset of the closing quote, and the match of what follows it.

        It is the first quote that is not escaped and after which the call ends (and the output, or its line),
        or continues with another argument.
        """
        at = start
        while (at := text.find(quote, at)) != -1:
            after = self._after.match(text, at + 1) if not _is_escaped(text, start, at) else None
            if after is not None and (after.group(1) is None or _following(text, after.end()) is not None):
                if self._holds_a_call(text[start:at], quote):
                    why = f"it is unclear where the text of {name} ends"
                    form = f"put each action on a line of its own, and write quotes in a text as \\{quote}"
                    raise self._to.refuse(why, position, shown(text[start - 1 : at + 1]), form)
                return at, after
            at += 1
        read = shown(text[start - 1 : start + 60])
        raise self._to.refuse(f"the text of {name} is not closed", position, read)

    def _holds_a_call(self, text: str, quote: str) -> bool:
        """Return whether a text may have ended earlier: it has a quote and `)`, followed by a call or a
        label.

        Such an answer has several actions, joined in an unknown way: the rest must not be typed.
        """
        at = -1
        while (at := text.find(quote, at + 1)) != -1:
            closed = _CLOSED.match(text, at + 1) if not _is_escaped(text, 0, at) else None
            if closed is not None:
                return self._stray.search(text, closed.end()) is not None
        return False


def unescaped(text: str) -> str:
    """Return the text of an argument without its escapes."""
    return _ESCAPE.sub(lambda found: _ESCAPED[found.group(1)], text)


def quoted(text: str) -> str:
    """Return a text as an argument, for data sets."""
    for plain_sign, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\t", "\\t")):
        text = text.replace(plain_sign, escaped)
    return f"'{text}'"


def _following(text: str, at: int) -> int | None:
    """Return the start of the next action, or the end; None where something else follows."""
    blank = _BLANK.match(text, at)
    end = blank.end() if blank else at
    if end == len(text):
        return end
    begun = _NEXT.match(text, end) if "\n" in text[at:end] else None
    return begun.end() if begun else None


def _is_escaped(text: str, start: int, at: int) -> bool:
    """Return whether an odd number of backslashes stands before an offset."""
    first = at
    while first > start and text[first - 1] == "\\":
        first -= 1
    return (at - first) % 2 == 1
