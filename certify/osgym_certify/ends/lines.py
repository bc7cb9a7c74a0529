"""Text as lines, of which some are replaced while the others keep their ends, and differences of texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from osgym_certify.ends.base import GoldenFile

MAX_TEXT_BYTES = 2 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_COMPARED = 300
"""Number of lines, after equal ones at both ends, above which a difference is not divided: the comparison of
lines that often repeat takes quadratic time."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of a text. Texts have one line at least, which may be empty.

    Attributes:
        bodies: Lines without their ends.
        separators: Line ends between the lines.
        final: Line end after the last line, or an empty text.
    """

    bodies: tuple[str, ...]
    separators: tuple[str, ...]
    final: str

    @classmethod
    def parse(cls, text: str) -> Lines:
        """Split a text at LF, CRLF and CR."""
        pieces = re.split(r"(\r\n|\n|\r)", text)
        bodies, separators = pieces[::2], pieces[1::2]
        if separators and not bodies[-1]:
            return cls(tuple(bodies[:-1]), tuple(separators[:-1]), separators[-1])
        return cls(tuple(bodies), tuple(separators), "")

    def __str__(self) -> str:
        ends = (*self.separators, self.final)
        return "".join(body + end for body, end in zip(self.bodies, ends, strict=True))

    @property
    def newline(self) -> str:
        """Commonest line end of the text; LF if it has only one line without an end."""
        ends = Counter((*self.separators, *filter(None, [self.final])))
        return ends.most_common(1)[0][0] if ends else "\n"

    def splice(self, start: int, stop: int, bodies: Sequence[str]) -> Lines:
        """Return the text with other lines in place of the lines from ``start`` to before ``stop``."""
        changed = (*self.bodies[:start], *bodies, *self.bodies[stop:])
        if not changed:
            return Lines(("",), (), "")
        added = (self.newline,) * len(bodies)
        separators = (*self.separators[:start], *added, *self.separators[stop:])
        return Lines(changed, separators[: len(changed) - 1], self.final)


@dataclass(frozen=True, slots=True)
class Text:
    """Golden file as text.

    Attributes:
        lines: Lines without the byte order mark.
        mark: Byte order mark of the file, or nothing.
        before: Lines of the file before; None if the oracle made it or it was no text.
        changed: Numbers of the lines that the oracle changed; all lines if there is no text before.
    """

    lines: Lines
    mark: bytes
    before: Lines | None
    changed: tuple[int, ...]

    def encode(self, text: Lines | str) -> bytes:
        """Return a text as bytes, with the byte order mark that the golden file has."""
        return self.mark + str(text).encode()

    @property
    def filled(self) -> tuple[int, ...]:
        """Numbers of the lines to change: not blank, and changed by the oracle if such lines exist."""
        bodies = self.lines.bodies
        preferred = [number for number in self.changed if bodies[number].strip()]
        return tuple(preferred or (number for number, body in enumerate(bodies) if body.strip()))


def decode(data: bytes) -> str | None:
    """Return UTF-8 without its byte order mark; None for other bytes, those with NUL and those over 2 MiB."""
    if len(data) > MAX_TEXT_BYTES or b"\0" in data:
        return None
    try:
        return data.removeprefix(BYTE_ORDER_MARK).decode()
    except UnicodeDecodeError:
        return None


def read(golden: GoldenFile) -> Text | None:
    """Return a golden file as text; None if it is no UTF-8 text."""
    text = decode(golden.data)
    if text is None:
        return None
    lines = Lines.parse(text)
    mark = BYTE_ORDER_MARK if golden.data.startswith(BYTE_ORDER_MARK) else b""
    earlier = None if golden.before is None else decode(golden.before)
    if earlier is None:
        return Text(lines, mark, None, tuple(range(len(lines.bodies))))
    before = Lines.parse(earlier)
    spans = differences(before.bodies, lines.bodies)
    changed = tuple(number for _, after in spans for number in after)
    return Text(lines, mark, before, changed)


def differences(before: Sequence[str], after: Sequence[str]) -> list[tuple[range, range]]:
    """Return the places that differ: numbers of the lines before, and of those that stand for them after."""
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    old, new = range(head, len(before) - tail), range(head, len(after) - tail)
    if not old and not new:
        return []
    if max(len(old), len(new)) > _MAX_COMPARED:
        return [(old, new)]
    matcher = SequenceMatcher(None, before[old.start : old.stop], after[new.start : new.stop], autojunk=False)
    return [
        (range(head + old_start, head + old_stop), range(head + new_start, head + new_stop))
        for tag, old_start, old_stop, new_start, new_stop in matcher.get_opcodes()
        if tag != "equal"
    ]
