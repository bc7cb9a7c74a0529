"""What the host agent logs: no control characters, no forged lines, bounded in length and in rate.

Messages quote guests, tasks and clients. None of them may move the cursor of whoever reads the log, forge a
line of it, or fill the disk with it. `escape_controls` is for whoever shows such text elsewhere.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Hashable
from typing import TextIO

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MAX_RECORD_CHARS = 16_384
"""Of one record, its traceback included; what is longer is cut in the middle."""
WINDOW_S = 10.0
MAX_ALIKE = 20
"""Records of one logger, level and message template that are let through in a window."""
MAX_RECORDS = 1000
"""Records of all kinds that are let through in a window."""
_KEY_CHARS = 80
_CONTINUED = "  | "
"""Before each line of a record but its first, so that none of them can pass for a record."""

_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SEPARATORS = (0x2028, 0x2029)
_ESCAPES: dict[int, str] = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))},
    **{code: f"\\u{code:04x}" for code in (*_BIDI, *_SEPARATORS, *range(0xD800, 0xE000))},
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}


def escape_controls(text: str) -> str:
    """Return text that is one line and moves no cursor: what is not plainly printed is escaped.

    Escaped are control characters (C0, DEL, C1), line and paragraph separators, marks that turn the
    direction of writing, and halves of surrogate pairs, which cannot be encoded.
    """
    return text if text.isascii() and text.isprintable() else text.translate(_ESCAPES)


def escape_lines(text: str) -> str:
    """Return the same for text of several lines, which stay apart."""
    return "\n".join(escape_controls(line) for line in text.split("\n"))


def quote_lines(text: str, max_chars: int) -> str:
    """Return the end of what a guest or a program wrote as one line, each of its lines after a bar.

    Nothing of it can pass for a line of ours, wherever it is shown; at most `max_chars` of it are taken.
    """
    lines = (line.strip() for line in re.split(r"[\r\n]+", text[-max_chars:]))
    return " ".join(f"| {escape_controls(line)}" for line in lines if line)


class SafeFormatter(logging.Formatter):
    """Formats a record; each of its lines but the first is marked as one that goes on."""

    def __init__(self) -> None:
        """Use the format of this service."""
        super().__init__(FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record, its traceback included."""
        record.message = record.getMessage()
        record.asctime = self.formatTime(record, self.datefmt)
        parts = [self.formatMessage(record)]
        if record.exc_info:
            parts.append(self.formatException(record.exc_info))
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        return escape_lines(_cut("\n".join(parts))).replace("\n", "\n" + _CONTINUED)


def _cut(text: str) -> str:
    if len(text) <= MAX_RECORD_CHARS:
        return text
    half = MAX_RECORD_CHARS // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters ...] {text[-half:]}"


class RecordLimit:
    """How many records pass in a window of `WINDOW_S`: `MAX_ALIKE` of a kind, `MAX_RECORDS` in all."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with the first record."""
        self._clock = clock
        self._until = 0.0
        self._seen: dict[Hashable, int] = {}
        self._passed = 0
        self._left_out = 0

    def admit(self, kind: Hashable) -> tuple[bool, int]:
        """Judge one record.

        Returns:
            Whether it passes, and how many were left out in the window before (0 unless it is the first
            record of a new window).
        """
        now, before = self._clock(), 0
        if now >= self._until:
            before, self._left_out = self._left_out, 0
            self._until = now + WINDOW_S
            self._seen.clear()
            self._passed = 0
        alike = self._seen.get(kind, 0)
        if alike >= MAX_ALIKE or self._passed >= MAX_RECORDS:
            self._left_out += 1
            return False, before
        self._seen[kind] = alike + 1
        self._passed += 1
        return True, before


class BoundedHandler(logging.StreamHandler[TextIO]):
    """Writes records that `RecordLimit` lets through, and how many it did not."""

    def __init__(self, stream: TextIO | None = None, limit: RecordLimit | None = None) -> None:
        """Write to stderr unless told otherwise."""
        super().__init__(stream or sys.stderr)
        self._limit = limit or RecordLimit()
        self.setFormatter(SafeFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, or count it."""
        passes, left_out = self._limit.admit((record.name, record.levelno, str(record.msg)[:_KEY_CHARS]))
        if left_out:
            text = "%d records were left out in the last %g s: too many, or too many alike"
            note = logging.LogRecord(__name__, logging.WARNING, "", 0, text, (left_out, WINDOW_S), None)
            super().emit(note)
        if passes:
            super().emit(record)


def configure(level: str) -> None:
    """Send what is logged in this process to stderr, from `level` on."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(BoundedHandler())
    root.setLevel(level.upper())
