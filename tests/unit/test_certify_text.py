"""Other contents of text files: each differs from the golden one as its name says, and in nothing else."""

from __future__ import annotations

import csv
import io
import random
from difflib import SequenceMatcher
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_certify.ends import csv_table, text
from osgym_certify.ends.base import Content, GoldenFile, Must
from osgym_certify.ends.lines import Lines, differences

NOTE = "Milk 2\nBread 10\nGrüße\nCheese 33\nend of list\n"
TABLE = 'name,town,sum\nAda,"Bath, UK",12\nBob,Leeds,7\n'
TEXTS = st.text(alphabet=st.sampled_from("ab1 \n\r,ß"), max_size=40)
ANY_LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=12)


def mutants(data: str, before: str | None = None, seed: int = 1) -> dict[str, str]:
    """Mutations of a text by name, without those of its encoding."""
    golden = GoldenFile("/home/user/a.txt", data.encode(), None if before is None else before.encode())
    made = text.mutations(golden, random.Random(seed))
    return {
        one.name: one.data.decode() for one in made if b"\0" not in one.data and "Latin-1" not in one.name
    }


def table_mutants(data: str) -> dict[str, list[list[str]]]:
    """Mutations of a table by name, as rows."""
    made = csv_table.mutations(GoldenFile("/home/user/a.csv", data.encode()), random.Random(1))
    return {one.name: list(csv.reader(io.StringIO(one.data.decode(), newline=""))) for one in made}


def edits(before: str, after: str) -> list[tuple[str, str]]:
    """Pieces of a text that differ: removed, and put in their place."""
    found = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return [(before[a:b], after[c:d]) for tag, a, b, c, d in found if tag != "equal"]


@pytest.mark.parametrize("seed", range(20))
def test_mutations_of_lines_change_lines_only(seed: int) -> None:
    """Lines are removed, doubled, exchanged and added whole, and the others stay as they are."""
    lines = NOTE.splitlines(keepends=True)
    made = mutants(NOTE, seed=seed)
    assert made["one line removed"] in ["".join(lines[:one] + lines[one + 1 :]) for one in range(5)]
    assert made["one line doubled"] in [
        "".join(lines[:one] + lines[one:][:1] + lines[one:]) for one in range(5)
    ]
    exchanged = made["one line exchanged with the next"].splitlines(keepends=True)
    assert exchanged != lines and sorted(exchanged) == sorted(lines)
    assert sum(one != other for one, other in zip(exchanged, lines, strict=True)) == 2
    assert made["one line added at the end"] == NOTE + "another line\n"
    assert made["empty line added at the start"] == "\n" + NOTE
    assert made["order of lines reversed"] == "".join(reversed(lines))
    assert made["all lines joined"] == NOTE.replace("\n", " ").strip() + "\n"


@pytest.mark.parametrize("seed", range(20))
def test_mutations_inside_a_line_change_one_place(seed: int) -> None:
    """One digit, letter, word or space differs."""
    made = mutants(NOTE, seed=seed)
    [(digit, other_digit)] = edits(NOTE, made["one digit changed"])
    assert digit.isdigit() and other_digit.isdigit() and len(digit) == len(other_digit) == 1
    [(letter, other_letter)] = edits(NOTE, made["one letter changed"])
    assert letter.isalpha() and other_letter.isalpha() and len(letter) == len(other_letter) == 1
    assert made["one word written in the other case"].casefold() == NOTE.casefold()
    [(word, nothing)] = edits(NOTE, made["one word removed"])
    assert word.isalpha() and nothing == ""
    assert len(made["one space added inside a line"]) == len(NOTE) + 1
    assert made["one space added inside a line"].replace(" ", "") == NOTE.replace(" ", "")
    assert made["all letters made capital"] == NOTE.upper()


def test_last_line_without_end_keeps_the_text_without_last_newline() -> None:
    """Removing and doubling the last line leaves no line end behind that was not there."""
    made = mutants("one\ntwo\nsix")
    assert made["last line removed"] == "one\ntwo"
    assert made["one line added at the end"] == "one\ntwo\nsix\nanother line"
    assert made["order of lines reversed"] == "six\ntwo\none"


def test_encodings() -> None:
    """The text is saved in other encodings, with characters lost, and with NUL bytes."""
    made = {one.name: one.data for one in text.mutations(GoldenFile("/a", NOTE.encode()), random.Random(1))}
    assert made["saved as UTF-16"].decode("utf-16") == NOTE
    assert made["saved as Latin-1"].decode("latin-1") == NOTE
    assert made["characters beyond ASCII replaced by question marks"].decode() == NOTE.replace(
        "ü", "?"
    ).replace("ß", "?")
    assert made["NUL bytes appended"].rstrip(b"\0").decode() == NOTE
    assert "saved as Latin-1" not in mutants("plain\n")


def test_each_change_of_the_oracle_is_put_back_alone() -> None:
    """Of three changes, three texts have two."""
    golden = GoldenFile("/a", b"A\nb\nC\nd\nE\n", b"a\nb\nc\nd\n")
    made = [one.data for one in text.mutations(golden, random.Random(1)) if one.name == "one change put back"]
    assert sorted(made) == [b"A\nb\nC\nd\n", b"A\nb\nc\nd\nE\n", b"a\nb\nC\nd\nE\n"]


def test_mutations_prefer_lines_that_the_oracle_changed() -> None:
    """The changed line is the one whose digit, letter and existence are wrong."""
    before = "x 1\ny 2\nz 3\n"
    for seed in range(10):
        made = mutants(before.replace("y 2", "y 7"), before, seed)
        assert made["one line removed"] == "x 1\nz 3\n"
        assert made["one digit changed"].splitlines()[0] == "x 1"
        assert made["one digit changed"].splitlines()[2] == "z 3"


def test_equivalents_are_what_editors_save() -> None:
    """Last newline, line ends and byte order mark."""
    made = {one.name: one.data for one in text.equivalents(GoldenFile("/a", b"a\nb\n"), random.Random(1))}
    assert made == {
        "last newline removed": b"a\nb",
        "line ends changed to CRLF": b"a\r\nb\r\n",
        "byte order mark added": b"\xef\xbb\xbfa\nb\n",
    }
    made = {
        one.name: one.data
        for one in text.equivalents(GoldenFile("/a", b"\xef\xbb\xbfa\r\nb"), random.Random(1))
    }
    assert made == {
        "last newline added": b"\xef\xbb\xbfa\r\nb\r\n",
        "line ends changed to LF": b"\xef\xbb\xbfa\nb",
        "byte order mark removed": b"a\r\nb",
    }


def test_scripts_keep_what_the_system_needs_to_run_them() -> None:
    """A script has no equivalent with CRLF or a mark, and no mutation that a shell would not notice."""
    golden = GoldenFile("/a.sh", b"#!/bin/sh\necho 12\n")
    assert [one.name for one in text.equivalents(golden, random.Random(1))] == ["last newline removed"]
    names = {one.name for one in text.mutations(golden, random.Random(1))}
    assert "one digit changed" in names and "one space added inside a line" not in names


def test_comments_of_programs_are_not_changed() -> None:
    """A word, digit or line of a comment does nothing."""
    golden = GoldenFile("/a.py", b"# count to 3\nprint(12)\n")
    for seed in range(10):
        made = {one.name: one.data for one in text.mutations(golden, random.Random(seed))}
        for name in ("one digit changed", "one letter changed", "one word removed"):
            assert made[name].startswith(b"# count to 3\n") and made[name] != golden.data
        assert made["one line removed"] == b"# count to 3\n"
        assert "one line doubled" not in made


def test_mutations_of_tables() -> None:
    """Columns, header, separator and quoted values are wrong one at a time."""
    rows = list(csv.reader(io.StringIO(TABLE)))
    made = table_mutants(TABLE)
    exchanged = list(zip(*made["two columns exchanged"], strict=True))
    assert sorted(exchanged) == sorted(zip(*rows, strict=True)) and made["two columns exchanged"] != rows
    assert len(made["one column removed"][0]) == 2
    assert made["header removed"] == rows[1:]
    assert made["one quoted value changed"] == [rows[0], ["Ada", "Bath, UKx", "12"], rows[2]]
    pairs = zip(chain(*made["one value emptied"]), chain(*rows), strict=True)
    assert [one for one, other in pairs if one != other] == [""]
    [content] = [
        one
        for one in csv_table.mutations(GoldenFile("/a.csv", TABLE.encode()), random.Random(1))
        if one.name == "separator of values changed"
    ]
    delimiter = max(";\t|", key=content.data.decode().count)
    assert list(csv.reader(io.StringIO(content.data.decode()), delimiter=delimiter)) == rows


@pytest.mark.parametrize("data", ["", "one column\nonly\n", "a,b\n1\n", 'a,"b\n', 'a,b\n"1",2\n'])
def test_uneven_tables_yield_nothing(data: str) -> None:
    """Text that is no even table, or is quoted in an uncommon way, is no table."""
    assert table_mutants(data) == {}


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"caf\xe9\n", b"a\0b", b"a" * (2 << 20) + b"b"])
def test_other_bytes_yield_nothing(data: bytes) -> None:
    """Bytes that are no UTF-8, hold NUL or are too many."""
    golden = GoldenFile("/a.csv", data)
    for variants in (text.mutations, text.equivalents, csv_table.mutations):
        assert list(variants(golden, random.Random(1))) == []


@given(TEXTS, st.none() | TEXTS, st.integers())
def test_variants_differ_and_repeat(data: str, before: str | None, seed: int) -> None:
    """The same generator state gives the same contents, none of them golden, and none twice."""
    golden = GoldenFile("/a.csv", data.encode(), None if before is None else before.encode())

    def make() -> list[Content]:
        dice = random.Random(seed)
        made = [*text.mutations(golden, dice), *csv_table.mutations(golden, dice)]
        return [*made, *text.equivalents(golden, dice)]

    made = make()
    assert made == make()
    assert all(one.data != golden.data for one in made)
    rights = [one.data for one in made if one.must is Must.EARN_ALL]
    assert len(set(rights)) == len(rights)


@given(TEXTS, TEXTS)
def test_equivalents_hold_the_same_lines(data: str, before: str) -> None:
    """Equivalents have the same lines."""
    for one in text.equivalents(GoldenFile("/a", data.encode(), before.encode()), random.Random(1)):
        assert Lines.parse(one.data.decode("utf-8-sig")).bodies == Lines.parse(data).bodies


@given(TEXTS)
def test_lines_make_the_text_again(data: str) -> None:
    """Lines and their ends are the whole text."""
    assert str(Lines.parse(data)) == data


@given(ANY_LINES, ANY_LINES)
def test_differences_lead_from_one_text_to_the_other(before: list[str], after: list[str]) -> None:
    """Putting every difference back makes the text before."""
    made = list(after)
    for old, new in reversed(differences(before, after)):
        made[new.start : new.stop] = before[old.start : old.stop]
    assert made == before


@given(TEXTS, st.data())
def test_splices_keep_other_lines(data: str, draw: st.DataObject) -> None:
    """Lines beside the replaced ones keep their bodies, and the text its last line end."""
    lines = Lines.parse(data)
    start = draw.draw(st.integers(0, len(lines.bodies)))
    stop = draw.draw(st.integers(start, len(lines.bodies)))
    made = lines.splice(start, stop, ("new",))
    assert made.bodies == (*lines.bodies[:start], "new", *lines.bodies[stop:])
    assert str(made) and made.final == lines.final


def test_long_texts_do_not_take_quadratic_time() -> None:
    """A text of a hundred thousand lines is done within the time limit of a test."""
    golden = GoldenFile("/a.txt", b"ab 1\ncd 2\n" * 50_000)
    assert "one line exchanged with the next" in {
        one.name for one in text.mutations(golden, random.Random(1))
    }
