"""What is logged: nothing that a guest, task or client says moves a cursor, forges a line, fills a disk."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.logs import (
    MAX_ALIKE,
    MAX_RECORD_CHARS,
    MAX_RECORDS,
    WINDOW_S,
    BoundedHandler,
    RecordLimit,
    escape_controls,
    escape_lines,
    quote_lines,
)

BEGIN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ [\w.]+: ")
FORGED = "2026-01-01 00:00:00,000 CRITICAL osgym_host.app: all is lost"


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def log(out: io.StringIO, clock: Clock) -> logging.Logger:
    """A logger that writes to `out` as the service's own does."""
    logger = logging.Logger("guest.test")
    logger.addHandler(BoundedHandler(out, RecordLimit(clock)))
    return logger


@given(st.text())
def test_escaped_text_is_one_line_that_is_printed_and_can_be_encoded(text: str) -> None:
    """No control character, no line separator, no turned direction, no half of a pair is left."""
    safe = escape_controls(text)
    safe.encode()
    assert safe.splitlines() == ([safe] if safe else [])
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]", safe)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Grüße ☃ 日本", "Grüße ☃ 日本"),
        ("\x1b]0;pwn\x07", "\\x1b]0;pwn\\x07"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_is_escaped_can_still_be_read(text: str, shown: str) -> None:
    """Ordinary text stays as it is; the rest is named."""
    assert escape_controls(text) == shown


def test_lines_stay_apart_where_they_may() -> None:
    """Only the line feed is kept."""
    assert escape_lines("a\nb\rc\x1b[2J") == "a\nb\\rc\\x1b[2J"


@given(st.text(), st.integers(1, 50))
def test_what_is_quoted_is_one_bounded_line(text: str, most: int) -> None:
    """However many lines it had, each begins after a bar."""
    quoted = quote_lines(text, most)
    assert "\n" not in quoted and "\r" not in quoted
    assert quoted == escape_controls(quoted)
    assert not quoted or quoted.startswith("| ")


def test_the_end_of_a_console_is_quoted() -> None:
    """The last lines say why."""
    assert quote_lines("first\r\n\x1b[1mlast\n\n", 10) == "| \\x1b[1mlast"
    assert quote_lines("one\ntwo\n", 100) == "| one | two"
    assert quote_lines("\n\n", 100) == ""


def test_nobody_forges_a_record(log: logging.Logger, out: io.StringIO) -> None:
    """Of a message with line breaks and escape sequences one line begins a record, whatever it says."""
    log.warning("the guest says: %s", f"x\n{FORGED}\r{FORGED}\x1b[1A\x1b[2K\n{FORGED}")
    try:
        raise ValueError(f"\x1b]52;c;x\x07\n{FORGED}")
    except ValueError:
        log.exception("a call failed")
    lines = out.getvalue().splitlines()
    assert [line for line in lines if BEGIN.match(line)] == [
        line for line in lines if "the guest says" in line or "a call failed" in line
    ]
    assert "\x1b" not in out.getvalue()
    assert any("ValueError" in line for line in lines)


def test_a_huge_message_is_cut(log: logging.Logger, out: io.StringIO) -> None:
    """Beginning and end are kept."""
    log.error("began %s ended", "y" * 5_000_000)
    text = out.getvalue()
    assert len(text) < MAX_RECORD_CHARS + 200
    assert "began" in text and "ended" in text and "characters" in text


def test_what_repeats_is_left_out_and_counted(log: logging.Logger, out: io.StringIO, clock: Clock) -> None:
    """A flood of one kind leaves room for other kinds; the next window says how much was left out."""
    for number in range(10_000):
        log.error("accept failed: %d", number)
    log.info("something else")
    assert out.getvalue().count("accept failed") == MAX_ALIKE
    assert "something else" in out.getvalue()
    clock.now += WINDOW_S
    log.error("accept failed: %d", 0)
    assert out.getvalue().count("accept failed") == MAX_ALIKE + 1
    assert f"{10_000 - MAX_ALIKE} records were left out" in out.getvalue()


def test_kinds_are_bounded_too(log: logging.Logger, out: io.StringIO) -> None:
    """Messages that are all different do not fill the log either."""
    for number in range(MAX_RECORDS * 3):
        log.error(f"{number} went wrong")  # each its own template
    assert len(out.getvalue().splitlines()) == MAX_RECORDS


def test_the_service_logs_that_way() -> None:
    """`configure` replaces whatever was set up, and stderr gets escaped lines."""
    program = (
        "import logging; logging.basicConfig(); from osgym_host import logs; logs.configure('info');"
        "logging.getLogger('asyncio').error('a\\x1b[2Jb\\nc'); logging.getLogger('x').debug('unseen')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, second = done.stderr.splitlines()
    assert first.endswith(" ERROR asyncio: a\\x1b[2Jb")
    assert second == "  | c"
