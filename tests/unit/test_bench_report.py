"""The page of results: it is of the files as they are, and every number of it is looked up."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from benchmarks.common import ROOT
from benchmarks.report import expressions, page, pictures, tables
from benchmarks.report.expressions import BadReference, evaluate, filled, number

MEASURE = re.compile(
    r"\d[\d.,]*\s?(?:ms|s|MiB|GiB|KB|%|CPU-s|times|USD)(?!\w)"
    r"|milliseconds|(?:tenth|hundredth|fraction) of a second"
)
"""What looks like something that was measured."""


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of the result files one that is easily told."""
    rows = [
        {"way": "a", "ms": [1, 2, 3], "wrong": []},
        {"way": "b-flow", "ms": [10], "wrong": [{}], "bad": True},
    ]
    monkeypatch.setitem(expressions.FUNCTIONS, "file", {"x": {"rows": rows, "n": 1234}}.__getitem__)


def test_the_page_the_tables_and_the_pictures_are_of_the_files() -> None:
    """`make bench-report` would change nothing."""
    assert page.PAGE.read_text("utf-8") == page.page()
    text = page.README.read_text("utf-8")
    assert text == tables.document(text)
    assert pictures.stale(page.PICTURES) == []


def test_every_result_file_has_a_section() -> None:
    """And no section is of a file that is gone."""
    assert sorted(one["file"] for one in page.results()) == page.kept_files()


def test_every_picture_is_shown_and_small() -> None:
    """On the page; the folder has no others."""
    shown = {one["picture"] for one in page.results() if "picture" in one}
    assert shown == set(pictures.ALL) == {path.stem for path in page.PICTURES.iterdir()}
    assert all(path.stat().st_size < 64_000 for path in page.PICTURES.iterdir())


def test_no_number_of_ours_is_typed() -> None:
    """In the cells that say what we measured only what is looked up looks measured."""
    for row in page.table("claims")["row"]:
        assert not MEASURE.findall(expressions.HOLE.sub("", row["ours"])), row["ours"]
    for row in page.table("headlines")["row"]:
        typed = expressions.HOLE.sub("", row["measured"]).replace("95 %", "")
        assert set(MEASURE.findall(typed)) <= {"100 ms", "500 ms", "1,000 ms", "2,000 ms"}, typed  # pauses


def test_what_readme_says_in_words_is_true_by_the_files() -> None:
    """And it has no other measure."""
    text = (ROOT / "README.md").read_text("utf-8")
    for one in page.table("tables")["sentence"]:
        assert one["text"] in text
        assert evaluate(one["value"]) <= one["at_most"], one
        text = text.replace(one["text"], "")
    assert MEASURE.findall(text) == []


def test_every_table_of_the_benchmarks_is_looked_up_or_says_why_not() -> None:
    """No table of numbers comes in by hand without a reason."""
    why = page.table("tables")["by_hand"]
    found = tables.unmarked(page.README.read_text("utf-8"))
    assert [header for header in found if not any(header.startswith(known) for known in why)] == []
    assert [known for known in why if not any(header.startswith(known) for header in found)] == []


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("file('x').n", 1234),
        ("file('x').rows[1].way", "b-flow"),
        ("median(where(file('x').rows, way='a').ms)", 2),
        ("total(file('x').rows.ms) / 4 - 1", 3),
        ("count(where(file('x').rows, way='*-flow', bad=True))", 1),
        ("most(where(file('x').rows, way=('a', 'c')).ms)", 3),
        ("count(where(file('x').rows, wrong=[]))", 1),
        ("-file('x')['n']", -1234),
    ],
)
def test_expressions_lead_to_values(text: str, value: object) -> None:
    """Fields, columns, rows that agree, sums."""
    assert evaluate(text) == value


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    "text",
    [
        "file('x').gone",
        "file('x').n.further",
        "median(where(file('x').rows, way='gone').ms)",
        "__import__('os')",
        "file('x').__class__",
        "(lambda: 1)()",
        "1 if 1 else 2",
        "[n for n in (1, 2)]",
        "file('x').n / 0",
        "file(",
    ],
)
def test_what_leads_nowhere_is_an_error(text: str) -> None:
    """Nothing of Python runs but what looks."""
    with pytest.raises(BadReference):
        evaluate(text)


def test_a_file_that_is_gone_is_an_error() -> None:
    """Which names it."""
    with pytest.raises(BadReference, match=r"gone\.json"):
        filled("{file('gone').n|n} ms")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0003971, "0.000397"),
        (12.64, "12.6"),
        (1135.2, "1,135"),
        (99.96, "100"),
        (2.0, "2"),
        (7, "7"),
    ],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    """Whole ones all of theirs."""
    assert number(value) == text


@pytest.mark.parametrize("value", [True, "1", None])
def test_what_is_no_number_is_not_shown_as_one(value: object) -> None:
    """A word or a truth is a mistake in the table."""
    with pytest.raises(BadReference):
        number(value)  # type: ignore[arg-type]


def test_marks_without_a_table_are_an_error() -> None:
    """And so is a table without marks."""
    with pytest.raises(BadReference, match="no marks of"):
        tables.document("nothing")
    with pytest.raises(BadReference, match="not in tables"):
        tables.document("<!-- table gone: `make bench-report` writes it -->\n<!-- end -->")


def test_a_picture_of_other_data_is_stale(tmp_path: Path) -> None:
    """As is one that is missing, and one that says nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    for name in pictures.ALL:
        mark = f"{pictures.KEY}\0{pictures.digest(name)}".encode()
        (tmp_path / f"{name}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"tEXt", mark))
    assert pictures.stale(tmp_path) == []
    first, second, third = list(pictures.ALL)[:3]
    (tmp_path / f"{first}.png").unlink()
    (tmp_path / f"{second}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"tEXt", b"osgym-data\0other"))
    (tmp_path / f"{third}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IEND", b""))
    assert pictures.stale(tmp_path) == [first, second, third]


def test_the_check_of_the_command_agrees() -> None:
    """With exit code 0."""
    argv = [sys.executable, "-m", "benchmarks.report", "--check"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
