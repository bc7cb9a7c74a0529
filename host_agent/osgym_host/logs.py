"""Log of the host agent, text or JSON: no control characters, no forged lines, bounded in length and rate.

Messages quote guests, tasks and clients. None of them may move a reader's cursor, forge a line, or fill the
disk. `escape_controls` is for such text elsewhere.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from typing import Literal, TextIO

from osgym_host import log_subject

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MAX_RECORD_CHARS = 16_384
"""Length of one record, its traceback included; a longer one is cut in the middle."""
WINDOW_S = 10.0
MAX_ALIKE = 20
"""Number of records of one logger, level and message template that pass in a window."""
MAX_RECORDS = 1000
"""Number of records of all kinds that pass in a window."""
MAX_FIELD_CHARS = 200
"""Length of a subject's field: clients name runs and tasks."""
_KEY_CHARS = 80
_SUBJECT = "osgym_subject"
"""Attribute of a checked record with the fields of its subject."""
_PLAIN = re.compile(r"[A-Za-z0-9_./:-]+")
_CONTINUED = "  | "
"""Prefix of each line of a record but its first, so that none of them can pass for a record."""

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
    """Return text as one line that moves no cursor, with everything else escaped.

    Escaped are control characters (C0, DEL, C1), line and paragraph separators, marks that turn the direction
    of writing, and halves of surrogate pairs, which cannot be encoded.
    """
    return text if text.isascii() and text.isprintable() else text.translate(_ESCAPES)


def escape_lines(text: str) -> str:
    """Return text of several lines escaped likewise; its lines stay apart."""
    return "\n".join(escape_controls(line) for line in text.split("\n"))


def quote_lines(text: str, max_chars: int) -> str:
    """Return the end of a guest's or a program's output as one line, with a bar before each of its lines.

    It cannot pass for a line of ours, wherever it is shown; it has at most `max_chars` of the output.
    """
    lines = (line.strip() for line in re.split(r"[\r\n]+", text[-max_chars:]))
    return " ".join(f"| {escape_controls(line)}" for line in lines if line)


class SafeFormatter(logging.Formatter):
    """Formats a record; each of its lines but the first is marked as a continuation."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record: subject, message, traceback."""
        record.message = _bracket(_subject_of(record)) + record.getMessage()
        record.asctime = self.formatTime(record, self.datefmt)
        parts = [self.formatMessage(record)]
        if record.exc_info:
            parts.append(self.formatException(record.exc_info))
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        return escape_lines(_cut("\n".join(parts))).replace("\n", "\n" + _CONTINUED)


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object in one line of ASCII.

    `time` (UTC, ISO 8601), `level`, `logger`, `message` (one line); the known ones of `log_subject.FIELDS`;
    `exception` where there is one.
    """

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        said: dict[str, str | int] = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": escape_controls(record.name),
            "message": escape_controls(_cut(record.getMessage())),
            **_subject_of(record),
        }
        if record.exc_info:
            said["exception"] = escape_lines(_cut(self.formatException(record.exc_info)))
        if record.stack_info:
            said["stack"] = escape_lines(_cut(record.stack_info))
        return json.dumps(said)


def _subject_of(record: logging.LogRecord) -> dict[str, str | int]:
    found: Mapping[str, str | int] = getattr(record, _SUBJECT, {})
    return {
        name: escape_controls(value[:MAX_FIELD_CHARS]) if isinstance(value, str) else value
        for name, value in found.items()
    }


def _bracket(said: Mapping[str, str | int]) -> str:
    """Return fields for people; values that are not plain are quoted, so that none can pass for another
    field.
    """
    if not said:
        return ""
    texts = [
        f"{name}={value if _PLAIN.fullmatch(str(value)) else json.dumps(value, ensure_ascii=False)}"
        for name, value in said.items()
    ]
    return f"[{' '.join(texts)}] "


def _cut(text: str) -> str:
    if len(text) <= MAX_RECORD_CHARS:
        return text
    half = MAX_RECORD_CHARS // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters ...] {text[-half:]}"


class RecordLimit:
    """Bounds of the records in a window of `WINDOW_S`: `MAX_ALIKE` of a kind, `MAX_RECORDS` in all."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = 0.0
        self._seen: dict[Hashable, int] = {}
        self._passed = 0
        self._left_out = 0

    def admit(self, kind: Hashable) -> tuple[bool, int]:
        """Count one record.

        Returns:
            Whether it passes, and the number of records that were left out in the window before (0 unless it
            is the first record of a new window).
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
    """Writes records that `RecordLimit` lets through, and the number of the others."""

    def __init__(
        self,
        stream: TextIO | None = None,
        limit: RecordLimit | None = None,
        formatter: logging.Formatter | None = None,
    ) -> None:
        super().__init__(stream or sys.stderr)
        self._limit = limit or RecordLimit()
        self.setFormatter(formatter or SafeFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record with its subject, or count it."""
        passes, left_out = self._limit.admit((record.name, record.levelno, str(record.msg)[:_KEY_CHARS]))
        if left_out:
            text = "%d records of the last %g s were dropped: too many, or too many alike"
            note = logging.LogRecord(__name__, logging.WARNING, "", 0, text, (left_out, WINDOW_S), None)
            super().emit(note)
        if passes:
            setattr(record, _SUBJECT, log_subject.fields())
            super().emit(record)


def configure(level: str, form: Literal["text", "json"] = "text") -> None:
    """Log to stderr, from `level` on, for this process."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(BoundedHandler(formatter=JsonFormatter() if form == "json" else SafeFormatter()))
    root.setLevel(level.upper())
