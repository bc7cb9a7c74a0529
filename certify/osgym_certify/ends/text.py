"""Other contents of a text file: notes, lists, scripts, and the text of tables (see `csv_table`)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from string import ascii_lowercase, digits

from osgym_certify.ends.base import Content, GoldenFile, Must, distinct
from osgym_certify.ends.draw import by_name, few
from osgym_certify.ends.lines import BYTE_ORDER_MARK, Lines, Text, differences, read

MAX_PUT_BACK = 6
"""Number of changed places of a file that are put back, each in a content of its own."""
_SHELL_FILES = (".sh", ".bash", ".bashrc", ".profile", ".bash_aliases", ".bash_profile")
_SOURCES = (".py", ".js", ".pl", ".rb", ".c", ".h", ".cpp", ".java", ".go", ".rs", ".css")
_ADDED_LINE = "another line"
_DIGIT = re.compile(r"[0-9]")
_LETTER = re.compile(r"[A-Za-z]")
_WORD = re.compile(r"[^\W\d_]{2,}")
_INNER_SPACE = re.compile(r"(?<=\S) (?=\S)")
_INNER_PLACE = re.compile(r"(?<=\S)(?=\S)")

Mutator = Callable[[Text, random.Random], Iterable[Lines | str]]


def mutations(golden: GoldenFile, dice: random.Random) -> Iterator[Content]:
    """Yield texts in which a line, word, letter or the encoding is wrong."""
    text = read(golden)
    if text is None:
        return
    if is_program(golden):
        text = replace(text, changed=_without_comments(text))
    drawn = by_name(dice)
    made = [
        Content(name, Must.EARN_NOTHING, text.encode(changed))
        for name, mutate in _MUTATORS.items()
        if not (is_program(golden) and name in _HARMLESS_IN_PROGRAMS)
        for changed in mutate(text, drawn(name))
    ]
    made += [Content(name, Must.EARN_NOTHING, data) for name, data in _encodings(golden, str(text.lines))]
    yield from distinct(golden, made)


def equivalents(golden: GoldenFile, dice: random.Random) -> Iterator[Content]:
    """Yield the same text as editors save it: last newline, line ends, byte order mark.

    A script keeps its line ends and gets no mark: it would not run.
    """
    text = read(golden)
    if text is None or not str(text.lines).strip():
        return
    yield from distinct(
        golden, [Content(name, Must.EARN_ALL, data) for name, data in _saved_by_editors(golden, text)]
    )


def is_script(golden: GoldenFile) -> bool:
    """Return whether a shell runs the file, which reads a CR or a mark as a part of a word."""
    return golden.data.startswith(b"#!") or golden.path.endswith(_SHELL_FILES)


def is_program(golden: GoldenFile) -> bool:
    """Return whether the file is the source of a program, in which comments and most spaces do nothing."""
    return is_script(golden) or golden.path.endswith(_SOURCES)


def _without_comments(text: Text) -> tuple[int, ...]:
    """Return the numbers of the changed lines that do something, or all changed lines if none does."""
    bodies = text.lines.bodies
    own = [number for number in text.changed if not bodies[number].lstrip().startswith(("#", "//"))]
    return tuple(own or text.changed)


def _saved_by_editors(golden: GoldenFile, text: Text) -> Iterator[tuple[str, bytes]]:
    lines = text.lines
    if lines.final and lines.bodies[-1]:
        yield "last newline removed", text.encode(Lines(lines.bodies, lines.separators, ""))
    if not lines.final:
        yield "last newline added", text.encode(f"{lines}{lines.newline}")
    if is_script(golden):
        return
    kinds = {*lines.separators, *filter(None, [lines.final])}
    if kinds == {"\n"}:
        yield "line ends changed to CRLF", text.encode(_with_ends(lines, "\r\n"))
    elif kinds == {"\r\n"}:
        yield "line ends changed to LF", text.encode(_with_ends(lines, "\n"))
    if text.mark:
        yield "byte order mark removed", golden.data.removeprefix(BYTE_ORDER_MARK)
    else:
        yield "byte order mark added", BYTE_ORDER_MARK + golden.data


def _with_ends(lines: Lines, newline: str) -> Lines:
    return Lines(lines.bodies, (newline,) * len(lines.separators), newline if lines.final else "")


def _encodings(golden: GoldenFile, text: str) -> Iterator[tuple[str, bytes]]:
    if text:
        yield "saved as UTF-16", b"\xff\xfe" + text.encode("utf-16-le")
        yield "NUL bytes appended", golden.data + bytes(16)
    if not text.isascii():
        yield "characters beyond ASCII replaced by question marks", text.encode("ascii", errors="replace")
        yield "saved as Latin-1", text.encode("latin-1", errors="replace")


def _changes_put_back(text: Text, dice: random.Random) -> Iterator[Lines]:
    if text.before is None:
        return
    places = differences(text.before.bodies, text.lines.bodies)
    if len(places) < 2:  # the only change put back is the file before
        return
    for old, new in few(places, dice, MAX_PUT_BACK):
        yield text.lines.splice(new.start, new.stop, text.before.bodies[old.start : old.stop])


def _line_removed(text: Text, dice: random.Random) -> Iterator[Lines]:
    for number in few(text.filled, dice):
        yield text.lines.splice(number, number + 1, ())


def _last_line_removed(text: Text, dice: random.Random) -> Iterator[Lines]:
    last = len(text.lines.bodies) - 1
    if text.lines.bodies[last].strip():
        yield text.lines.splice(last, last + 1, ())


def _line_doubled(text: Text, dice: random.Random) -> Iterator[Lines]:
    for number in few(text.filled, dice):
        yield text.lines.splice(number, number, (text.lines.bodies[number],))


def _lines_exchanged(text: Text, dice: random.Random) -> Iterator[Lines]:
    bodies = text.lines.bodies
    pairs = [one for one in range(len(bodies) - 1) if bodies[one] != bodies[one + 1]]
    filled = frozenset(text.filled)
    for one in few([one for one in pairs if one in filled] or pairs, dice):
        yield text.lines.splice(one, one + 2, (bodies[one + 1], bodies[one]))


def _line_added(text: Text, dice: random.Random) -> Iterator[Lines]:
    bodies = text.lines.bodies
    yield text.lines.splice(0 if bodies == ("",) else len(bodies), len(bodies), (_ADDED_LINE,))


def _empty_line_at_start(text: Text, dice: random.Random) -> Iterator[Lines]:
    yield text.lines.splice(0, 0, ("",))


def _lines_reversed(text: Text, dice: random.Random) -> Iterator[Lines]:
    bodies = text.lines.bodies
    if bodies != bodies[::-1]:
        yield text.lines.splice(0, len(bodies), bodies[::-1])


def _lines_joined(text: Text, dice: random.Random) -> Iterator[Lines]:
    bodies = text.lines.bodies
    if len(bodies) > 1:
        yield text.lines.splice(0, len(bodies), (" ".join(bodies),))


def _upper_case(text: Text, dice: random.Random) -> Iterator[str]:
    yield str(text.lines).upper()


def _digit_changed(text: Text, dice: random.Random) -> Iterator[Lines]:
    yield from _replaced(text, dice, _DIGIT, lambda digit: dice.choice(digits.replace(digit, "")))


def _letter_changed(text: Text, dice: random.Random) -> Iterator[Lines]:
    def other(letter: str) -> str:
        replacement = dice.choice(ascii_lowercase.replace(letter.lower(), ""))
        return replacement if letter.islower() else replacement.upper()

    yield from _replaced(text, dice, _LETTER, other)


def _word_case_changed(text: Text, dice: random.Random) -> Iterator[Lines]:
    yield from _replaced(text, dice, _WORD, str.swapcase)


def _word_removed(text: Text, dice: random.Random) -> Iterator[Lines]:
    yield from _replaced(text, dice, _WORD, lambda word: "")


def _space_added(text: Text, dice: random.Random) -> Iterator[Lines]:
    made = list(_replaced(text, dice, _INNER_SPACE, lambda space: "  "))
    yield from made or _replaced(text, dice, _INNER_PLACE, lambda nothing: " ")


def _replaced(
    text: Text, dice: random.Random, pattern: re.Pattern[str], other: Callable[[str], str]
) -> Iterator[Lines]:
    """Yield the text with one match of a pattern replaced, if possible in a line that the oracle changed."""
    bodies = text.lines.bodies
    preferred = [number for number in text.filled if pattern.search(bodies[number])]
    anywhere = [number for number, body in enumerate(bodies) if pattern.search(body)]
    for number in few(preferred or anywhere, dice):
        match = dice.choice(list(pattern.finditer(bodies[number])))
        body = f"{match.string[: match.start()]}{other(match[0])}{match.string[match.end() :]}"
        yield text.lines.splice(number, number + 1, (body,))


_MUTATORS: Mapping[str, Mutator] = {
    "one change put back": _changes_put_back,
    "one line removed": _line_removed,
    "last line removed": _last_line_removed,
    "one line doubled": _line_doubled,
    "one line exchanged with the next": _lines_exchanged,
    "one line added at the end": _line_added,
    "empty line added at the start": _empty_line_at_start,
    "order of lines reversed": _lines_reversed,
    "all lines joined": _lines_joined,
    "all letters made capital": _upper_case,
    "one digit changed": _digit_changed,
    "one letter changed": _letter_changed,
    "one word written in the other case": _word_case_changed,
    "one word removed": _word_removed,
    "one space added inside a line": _space_added,
}
_HARMLESS_IN_PROGRAMS = frozenset(
    {"one line doubled", "empty line added at the start", "one space added inside a line"}
)
"""Mutations that a program may still run with the right result."""
