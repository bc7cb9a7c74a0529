"""What is logged: nothing that a guest, task or client says moves a cursor, forges a line, fills a disk."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.log_subject import FIELDS, Named, about
from osgym_host.logs import (
    MAX_ALIKE,
    MAX_FIELD_CHARS,
    MAX_RECORD_CHARS,
    MAX_RECORDS,
    WINDOW_S,
    BoundedHandler,
    JsonFormatter,
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
    assert f"{10_000 - MAX_ALIKE} records of the last" in out.getvalue()


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


class Client:
    """A subject whose run and task a client named."""

    def __init__(self, run: str, task: str) -> None:
        self.names: dict[str, str | int | None] = {
            "replica": "r1",
            "generation": 7,
            "episode": "e1",
            "run": run,
            "task": task,
        }

    def log_fields(self) -> Mapping[str, str | int | None]:
        return self.names


def as_json(out: io.StringIO, clock: Clock) -> logging.Logger:
    """A logger that writes JSON to `out`."""
    logger = logging.Logger("guest.test")
    logger.addHandler(BoundedHandler(out, RecordLimit(clock), JsonFormatter()))
    return logger


def test_a_line_of_json_says_what_is_known(out: io.StringIO, clock: Clock) -> None:
    """Time, level, logger, message; of the subject what there is; a traceback."""
    log = as_json(out, clock)
    log.info("%d ready", 3)
    with about(Named("r2", 5)):
        try:
            raise ValueError("no")
        except ValueError:
            log.exception("it failed")
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {"level": "info", "logger": "guest.test", "message": "3 ready"}
    assert (second["replica"], second["generation"], second["level"]) == ("r2", 5, "error")
    assert second["exception"].endswith("\nValueError: no")
    assert "episode" not in second


@given(st.text(), st.text(), st.text())
def test_nobody_forges_a_line_of_json(said: str, run: str, task: str) -> None:
    """Whatever it has, it is one line of printable ASCII, and its words are one line when it is read."""
    out = io.StringIO()
    with about(Client(run, task)):
        as_json(out, Clock()).error("the guest says: %s", said)
    line = out.getvalue()
    assert line.endswith("\n") and line[:-1].isascii() and line[:-1].isprintable()
    read = json.loads(line)
    assert [key for key in read if key in FIELDS[:3]] == list(FIELDS[:3])
    assert read["message"] == escape_controls(read["message"])
    assert (read["level"], read["replica"], read["generation"]) == ("error", "r1", 7)
    assert all(read.get(name, "") == escape_controls(read.get(name, "")) for name in ("run", "task"))


def test_names_of_clients_are_bounded(out: io.StringIO, clock: Clock) -> None:
    """A run of a megabyte fills no disk."""
    with about(Client("y" * 1_000_000, "t")):
        as_json(out, clock).error("x")
    assert len(json.loads(out.getvalue())["run"]) == MAX_FIELD_CHARS


def test_the_subject_stands_before_the_message(log: logging.Logger, out: io.StringIO) -> None:
    """What a client named cannot pass for another field, nor for the end of them."""
    with about(Client("grpo-7", f'x] replica=r9\n{FORGED}"')):
        log.warning("lost")
    log.warning("nothing")
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert 'guest.test: [replica=r1 generation=7 episode=e1 run=grpo-7 task="x] replica=r9\\' in lines[0]
    assert lines[0].endswith('is lost\\""] lost')
    assert lines[1].endswith("guest.test: nothing")


async def test_a_subject_is_that_of_its_task(out: io.StringIO, clock: Clock) -> None:
    """Tasks that it starts have it; others that run at the same time do not, nor does what comes after it."""
    log = as_json(out, clock)

    async def work(name: str) -> None:
        with about(Named(name)):
            await asyncio.sleep(0)
            await asyncio.create_task(below(name))
        log.info("after")

    async def below(name: str) -> None:
        await asyncio.sleep(0)
        await asyncio.to_thread(log.info, "%s", name)

    await asyncio.gather(work("r1"), work("r2"))
    read = [json.loads(line) for line in out.getvalue().splitlines()]
    assert sorted((one["message"], one.get("replica")) for one in read) == [
        ("after", None), ("after", None), ("r1", "r1"), ("r2", "r2"),
    ]  # fmt: skip
