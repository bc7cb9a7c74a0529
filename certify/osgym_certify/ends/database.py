"""Other contents of an SQLite database, in which browsers and other programs keep what they remember."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from osgym_certify.ends.base import Content, GoldenFile, Must, distinct
from osgym_certify.ends.bookkeeping import is_bookkeeping
from osgym_certify.ends.draw import by_name, few

MAX_BYTES = 4 << 20
_MAX_PUT_BACK = 6
_MAX_ROWS = 2_000
_MAX_STEPS = 5_000
"""Thousands of SQLite's instructions that one database may take, with the triggers that it brings."""
_SIGNATURE = b"SQLite format 3\0"
_JOURNAL = slice(18, 20)
"""Bytes that say whether the database has a write-ahead log, without which only a file can be opened."""

Value = str | int | float | bytes | None
Place = tuple[str, int]
"""Table, and number of a row."""


@dataclass(frozen=True, slots=True)
class Table:
    """Table with numbered rows.

    Attributes:
        columns: Names of its columns.
        keys: Columns of the primary key.
        rows: Its first rows by their number.
    """

    columns: tuple[str, ...]
    keys: frozenset[str]
    rows: Mapping[int, tuple[Value, ...]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Database:
    """Golden file as a database.

    Attributes:
        path: Absolute path of the file.
        data: Its bytes.
        tables: Its tables by name.
        before: Tables of the file before; None if the oracle made it.
        focus: Rows to change: those that the oracle added or changed.
    """

    path: str
    data: bytes = field(repr=False)
    tables: Mapping[str, Table]
    before: Mapping[str, Table] | None
    focus: tuple[Place, ...]


Statements = list[tuple[str, tuple[Value, ...]]]


def mutations(golden: GoldenFile, dice: random.Random) -> Iterator[Content]:
    """Yield databases of which a row or value is wrong, lost or added."""
    database = read(golden)
    if database is None:
        return
    drawn = by_name(dice)
    made = [
        Content(name, Must.EARN_NOTHING, data)
        for name, mutate in _MUTATORS.items()
        for statements in mutate(database, drawn(name))
        if (data := run(golden.data, statements)) is not None
    ]
    yield from distinct(golden, made)


def equivalents(golden: GoldenFile, dice: random.Random) -> Iterator[Content]:
    """Yield the database with its pages written anew."""
    data = None if read(golden) is None else run(golden.data, [("VACUUM", ())])
    if data is not None:
        yield from distinct(golden, [Content("vacuumed", Must.EARN_ALL, data)])


def read(golden: GoldenFile) -> Database | None:
    """Return a golden file as a database; None if it is none, is damaged or over 4 MiB, or has no rows."""
    tables = read_tables(golden.data)
    if not tables:
        return None
    before = None if golden.before is None else read_tables(golden.before)
    focus = [
        (name, number)
        for name, table in tables.items()
        for number, row in table.rows.items()
        if before is None
        or name not in before
        or _differs(golden.path, table, row, before[name].rows.get(number))
    ]
    return Database(golden.path, golden.data, tables, before, tuple(focus))


def _differs(path: str, table: Table, row: tuple[Value, ...], old: tuple[Value, ...] | None) -> bool:
    """Return whether a row differs from the one before in what a program does not write for itself."""
    if old is None or len(old) != len(row):
        return True
    return any(
        one != other and not is_bookkeeping(path, column)
        for column, one, other in zip(table.columns, row, old, strict=True)
    )


def read_tables(data: bytes) -> dict[str, Table] | None:
    """Return the tables with numbered rows of a database, each with at most 2,000 rows."""
    try:
        with closing(_open(data)) as connection:
            return {
                name: table for name in _names(connection) if (table := _table(connection, name)) is not None
            }
    except (sqlite3.Error, ValueError):
        return None


def run(data: bytes, statements: Statements) -> bytes | None:
    """Return a database after statements; None if one of them fails or the database resists."""
    try:
        with closing(_open(data)) as connection:
            for statement, values in statements:
                connection.execute(statement, values)
            changed = connection.serialize()
    except (sqlite3.Error, ValueError):
        return None
    return changed[: _JOURNAL.start] + data[_JOURNAL] + changed[_JOURNAL.stop :]


def _open(data: bytes) -> sqlite3.Connection:
    """Return a database in memory whose triggers and views can neither take long nor make much.

    Raises:
        ValueError: The bytes are no sound database, or too many.
    """
    if not data.startswith(_SIGNATURE) or len(data) > MAX_BYTES:
        raise ValueError("not a small database")
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        steps = iter(range(_MAX_STEPS))
        connection.set_progress_handler(lambda: next(steps, None) is None, 1_000)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BYTES)
        connection.text_factory = lambda text: text.decode(errors="replace")
        connection.deserialize(data[: _JOURNAL.start] + b"\x01\x01" + data[_JOURNAL.stop :])
        connection.execute("PRAGMA trusted_schema = OFF")
        page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {2 * MAX_BYTES // page_bytes}")
        if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise ValueError("damaged")
    except BaseException:
        connection.close()
        raise
    return connection


def _names(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"
        " AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name"
    )
    return [name for (name,) in found if isinstance(name, str)]


def _table(connection: sqlite3.Connection, name: str) -> Table | None:
    """Return a table; None if its rows have no numbers, or it has columns that are computed."""
    try:
        described = connection.execute(f"PRAGMA table_xinfo({_quoted(name)})").fetchall()
        if not described or any(hidden for *_, hidden in described):
            return None
        columns = tuple(column for _, column, *_ in described)
        keys = frozenset(column for _, column, _, _, _, key, _ in described if key)
        rows = connection.execute(f"SELECT _rowid_, * FROM {_quoted(name)} LIMIT {_MAX_ROWS}")  # noqa: S608
        return Table(columns, keys, {number: tuple(row) for number, *row in rows})
    except sqlite3.OperationalError:
        return None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _removing(place: Place) -> tuple[str, tuple[Value, ...]]:
    return f"DELETE FROM {_quoted(place[0])} WHERE _rowid_ = ?", (place[1],)  # noqa: S608 - quoted


def _setting(place: Place, values: Mapping[str, Value]) -> tuple[str, tuple[Value, ...]]:
    columns = ", ".join(f"{_quoted(column)} = ?" for column in values)
    statement = f"UPDATE {_quoted(place[0])} SET {columns} WHERE _rowid_ = ?"  # noqa: S608 - quoted
    return statement, (*values.values(), place[1])


def _adding(table: str, number: int | None, values: Mapping[str, Value]) -> tuple[str, tuple[Value, ...]]:
    columns = ", ".join(["_rowid_", *map(_quoted, values)])
    marks = ", ".join("?" * (len(values) + 1))
    return f"INSERT INTO {_quoted(table)} ({columns}) VALUES ({marks})", (number, *values.values())  # noqa: S608


def other_value(value: Value) -> Value:
    """Return another value of the same type."""
    if isinstance(value, int):
        return value - 1 if value > 0 else value + 1
    if isinstance(value, float):
        return value + 1
    return f"{value}x" if isinstance(value, str) else value


def _changes_put_back(database: Database, dice: random.Random) -> Iterator[Statements]:
    before, after = database.before, database.tables
    if before is None:
        return
    rows = {(name, number): row for name, table in after.items() for number, row in table.rows.items()}
    old = {(name, number): row for name, table in before.items() for number, row in table.rows.items()}
    known = [place for place in dict.fromkeys([*old, *rows]) if place[0] in before and place[0] in after]
    changed = [place for place in known if old.get(place) != rows.get(place)]
    wanted = [place for place in changed if place not in rows or place in database.focus]
    if len(changed) < 2:  # the only change put back is the database before
        return
    for place in few(wanted, dice, _MAX_PUT_BACK):
        columns = before[place[0]].columns
        if place not in old:
            yield [_removing(place)]
        elif place in rows:
            yield [_setting(place, dict(zip(columns, old[place], strict=True)))]
        else:
            yield [_adding(place[0], place[1], dict(zip(columns, old[place], strict=True)))]


def _values_to_change(database: Database) -> list[tuple[Place, str, Value]]:
    """Return texts and numbers of the rows to change, with their columns."""
    return [
        ((name, number), column, value)
        for name, number in database.focus
        for column, value in zip(
            database.tables[name].columns, database.tables[name].rows[number], strict=True
        )
        if column not in database.tables[name].keys
        and not is_bookkeeping(database.path, column, value)
        and other_value(value) != value
    ]


def _value_changed(database: Database, dice: random.Random) -> Iterator[Statements]:
    for place, column, value in few(_values_to_change(database), dice, 2):
        yield [_setting(place, {column: other_value(value)})]


def _row_removed(database: Database, dice: random.Random) -> Iterator[Statements]:
    for place in few(database.focus, dice):
        yield [_removing(place)]


def _row_added(database: Database, dice: random.Random) -> Iterator[Statements]:
    for place, column, value in few(_values_to_change(database), dice):
        table = database.tables[place[0]]
        values = dict(zip(table.columns, table.rows[place[1]], strict=True))
        values[column] = other_value(value)
        own = {name: one for name, one in values.items() if not (name in table.keys and isinstance(one, int))}
        yield [_adding(place[0], None, own)]


def _table_emptied(database: Database, dice: random.Random) -> Iterator[Statements]:
    for name in few(dict.fromkeys(name for name, _ in database.focus), dice):
        yield [(f"DELETE FROM {_quoted(name)}", ())]  # noqa: S608 - quoted


def _table_removed(database: Database, dice: random.Random) -> Iterator[Statements]:
    for name in few(dict.fromkeys(name for name, _ in database.focus), dice):
        yield [(f"DROP TABLE {_quoted(name)}", ())]


_MUTATORS: Mapping[str, Callable[[Database, random.Random], Iterator[Statements]]] = {
    "one changed row put back": _changes_put_back,
    "one value changed": _value_changed,
    "one row removed": _row_removed,
    "one row added": _row_added,
    "one table emptied": _table_emptied,
    "one table removed": _table_removed,
}
