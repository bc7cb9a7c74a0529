"""Other contents of databases: rows wrong as the name says, or the same rows in other pages."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_certify.ends import database
from osgym_certify.ends.base import GoldenFile, Must

PATH = "/home/user/notes.db"
SCHEMA = (
    "CREATE TABLE pages (id INTEGER PRIMARY KEY, title TEXT, visits INT)",
    'CREATE TABLE "odd "" name" (word TEXT)',
    "CREATE TABLE keyed (k TEXT PRIMARY KEY) WITHOUT ROWID",
)
ROWS = [(1, "one", 5), (2, "two", 6), (3, "three", 7)]

Dump = dict[str, list[tuple[object, ...]]]


def make(*statements: str, rows: list[tuple[int, str, int]] | None = None) -> bytes:
    """A database after statements."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in SCHEMA:
            connection.execute(statement)
        connection.executemany("INSERT INTO pages VALUES (?, ?, ?)", ROWS if rows is None else rows)
        connection.execute("INSERT INTO keyed VALUES ('kept')")
        for statement in statements:
            connection.execute(statement)
        return connection.serialize()


def dump(data: bytes) -> Dump:
    """All rows."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data)
        names = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        return {
            name: connection.execute('SELECT * FROM "' + name.replace('"', '""') + '"').fetchall()
            for name in names
        }


def mutants(golden: GoldenFile, seed: int = 1) -> dict[str, list[Dump]]:
    """Rows of mutated databases by name."""
    made: dict[str, list[Dump]] = {}
    for one in database.mutations(golden, random.Random(seed)):
        assert one.must is Must.EARN_NOTHING
        made.setdefault(one.name, []).append(dump(one.data))
    return made


@pytest.mark.parametrize("seed", range(5))
def test_mutations_of_the_changed_row(seed: int) -> None:
    """Only the row that the oracle added is wrong, lost and copied."""
    golden = GoldenFile(PATH, make(), make(rows=ROWS[:2]))
    made = mutants(golden, seed)
    right = dump(golden.data)
    assert made["one row removed"] == [{**right, "pages": ROWS[:2]}]
    [added] = made["one row added"]
    assert added["pages"][:3] == ROWS and added["pages"][3] in [(4, "threex", 7), (4, "three", 6)]
    for changed in made["one value changed"]:
        assert changed["pages"] in ([*ROWS[:2], (3, "threex", 7)], [*ROWS[:2], (3, "three", 6)])
        assert {**changed, "pages": ROWS} == right
    assert made["one table emptied"] == [{**right, "pages": []}]
    assert made["one table removed"] == [{name: rows for name, rows in right.items() if name != "pages"}]
    assert "one changed row put back" not in made


def test_each_changed_row_is_put_back_alone() -> None:
    """A changed, a new and a lost row."""
    golden = GoldenFile(PATH, make(rows=[(1, "ONE", 5), (2, "two", 6), (4, "four", 8)]), make())
    made = [one["pages"] for one in mutants(golden)["one changed row put back"]]
    one, two, three, four = (1, "ONE", 5), (2, "two", 6), (3, "three", 7), (4, "four", 8)
    assert sorted(made, key=str) == sorted(
        [[ROWS[0], two, four], [one, two], [one, two, three, four]], key=str
    )


def test_names_are_quoted() -> None:
    """A table with quotes and spaces in its name."""
    golden = GoldenFile(PATH, make('INSERT INTO "odd "" name" VALUES (\'x\')', rows=[]))
    [emptied] = mutants(golden)["one table emptied"]
    assert emptied['odd " name'] == []


def test_equivalents_hold_the_same_rows() -> None:
    """A vacuumed database, also of one with a write-ahead log, whose mark is kept."""
    data = bytearray(
        make("INSERT INTO pages VALUES (9, hex(zeroblob(9000)), 1)", "DELETE FROM pages WHERE id = 9")
    )
    data[18:20] = b"\x02\x02"
    [one] = database.equivalents(GoldenFile(PATH, bytes(data)), random.Random(1))
    assert one.name == "vacuumed" and one.must is Must.EARN_ALL
    assert one.data[18:20] == b"\x02\x02" and len(one.data) < len(data)
    assert dump(one.data[:18] + b"\x01\x01" + one.data[20:]) == dump(make())


def test_programs_own_columns_are_left_alone() -> None:
    """In a browser's database the times of visits are its own."""
    own = "CREATE TABLE v (url TEXT, last_visit_time INT)"
    before = make(own, "INSERT INTO v VALUES ('a', 1), ('b', 1)", rows=[])
    after = make(own, "INSERT INTO v VALUES ('a', 2), ('c', 2)", rows=[])
    golden = GoldenFile("/home/user/.config/chromium/Default/History", after, before)
    for seed in range(5):
        made = mutants(golden, seed)
        assert [one["v"] for one in made["one changed row put back"]] == [[("a", 2), ("b", 1)]]
        assert [one["v"] for one in made["one value changed"]] == [[("a", 2), ("cx", 2)]]


HOSTILE = [
    b"",
    b"SQLite format 3\0",
    make()[:5000],
    make() + b"\0" * (4 << 20),
    make(rows=[])[:100] + bytes(4000),
    make(rows=[]),
]


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_other_files_yield_nothing(data: bytes) -> None:
    """Damaged, large and empty databases."""
    for variants in (database.mutations, database.equivalents):
        assert all(one.name == "vacuumed" for one in variants(GoldenFile(PATH, data), random.Random(1)))


def test_triggers_are_bounded() -> None:
    """A database whose triggers never end or make much yields what does not fire them."""
    endless = (
        "CREATE TRIGGER slow BEFORE DELETE ON pages BEGIN SELECT max(n) FROM "
        "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c); END"
    )
    large = (
        "CREATE TRIGGER large BEFORE UPDATE ON pages BEGIN "
        "INSERT INTO pages VALUES (NULL, zeroblob(99999999), 1); END"
    )
    made = mutants(GoldenFile(PATH, make(endless, large)))
    assert "one row added" in made and not {"one row removed", "one value changed"} & made.keys()


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 255)), max_size=6), st.booleans())
def test_damaged_databases_never_raise(damage: list[tuple[int, int]], as_before: bool) -> None:
    """A database with wrong bytes yields databases or nothing, the same each time."""
    data = bytearray(make())
    for place, byte in damage:
        data[place % len(data)] = byte
    golden = GoldenFile(PATH, make(), bytes(data)) if as_before else GoldenFile(PATH, bytes(data))
    for variants in (database.mutations, database.equivalents):
        made = list(variants(golden, random.Random(1)))
        assert made == list(variants(golden, random.Random(1)))
        assert all(one.data != golden.data for one in made)
