"""Other contents of a table in text: values separated by commas, semicolons or tabs."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from osgym_certify.ends.base import Content, GoldenFile, Must, distinct
from osgym_certify.ends.draw import by_name, few
from osgym_certify.ends.lines import Text, read

_DELIMITERS = ",;\t|"

Rows = tuple[tuple[str, ...], ...]
Quoting = Literal[0, 1, 2]
_QUOTING: tuple[Quoting, ...] = (csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC)


@dataclass(frozen=True, slots=True)
class Table:
    """Table whose text is reproduced exactly when it is written again."""

    rows: Rows
    delimiter: str
    quoting: Quoting
    newline: str
    ends_with_newline: bool

    def __str__(self) -> str:
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter=self.delimiter, quoting=self.quoting, lineterminator=self.newline)
        writer.writerows(self.rows)
        return out.getvalue() if self.ends_with_newline else out.getvalue().removesuffix(self.newline)

    @property
    def width(self) -> int:
        """Number of columns of the first row."""
        return len(self.rows[0])


def mutations(golden: GoldenFile, dice: random.Random) -> Iterator[Content]:
    """Yield tables with a wrong column, header, separator or quoted value."""
    text = read(golden)
    table = None if text is None else parse(text)
    if text is None or table is None:
        return
    drawn = by_name(dice)
    yield from distinct(
        golden,
        [
            Content(name, Must.EARN_NOTHING, text.encode(str(changed)))
            for name, mutate in _MUTATORS.items()
            for changed in mutate(table, drawn(name))
        ],
    )


def parse(text: Text) -> Table | None:
    """Return the table of a text; None if it has one column, uneven rows or an uncommon way of quoting."""
    written = str(text.lines)
    delimiter = max(_DELIMITERS, key=text.lines.bodies[0].count)
    if delimiter not in text.lines.bodies[0]:
        return None
    try:
        rows = tuple(
            tuple(row)
            for row in csv.reader(io.StringIO(written, newline=""), delimiter=delimiter, strict=True)
        )
    except csv.Error:
        return None
    if len({len(row) for row in rows}) != 1:
        return None
    for quoting in _QUOTING:
        table = Table(rows, delimiter, quoting, text.lines.newline, bool(text.lines.final))
        if str(table) == written:
            return table
    return None


def _columns_exchanged(table: Table, dice: random.Random) -> Iterator[Table]:
    first = dice.randrange(table.width - 1)
    order = [*range(first), first + 1, first, *range(first + 2, table.width)]
    yield _with_columns(table, order)


def _column_removed(table: Table, dice: random.Random) -> Iterator[Table]:
    gone = dice.randrange(table.width)
    yield _with_columns(table, [column for column in range(table.width) if column != gone])


def _with_columns(table: Table, order: Iterable[int]) -> Table:
    columns = list(order)
    return replace(table, rows=tuple(tuple(row[column] for column in columns) for row in table.rows))


def _delimiter_changed(table: Table, dice: random.Random) -> Iterator[Table]:
    yield replace(table, delimiter=dice.choice(_DELIMITERS.replace(table.delimiter, "")))


def _header_removed(table: Table, dice: random.Random) -> Iterator[Table]:
    if len(table.rows) > 1:
        yield replace(table, rows=table.rows[1:])


def _quoted_value_changed(table: Table, dice: random.Random) -> Iterator[Table]:
    special = (table.delimiter, '"', "\n", "\r")
    places = [
        (row, column)
        for row, values in enumerate(table.rows)
        for column, value in enumerate(values)
        if table.quoting or any(character in value for character in special)
    ]
    for row, column in few(places, dice):
        yield _with_value(table, row, column, f"{table.rows[row][column]}x")


def _value_emptied(table: Table, dice: random.Random) -> Iterator[Table]:
    places = [
        (row, column)
        for row, values in enumerate(table.rows)
        for column, value in enumerate(values)
        if value and row
    ]
    for row, column in few(places, dice):
        yield _with_value(table, row, column, "")


def _with_value(table: Table, row: int, column: int, value: str) -> Table:
    values = table.rows[row]
    changed = (*values[:column], value, *values[column + 1 :])
    return replace(table, rows=(*table.rows[:row], changed, *table.rows[row + 1 :]))


_MUTATORS: Mapping[str, Callable[[Table, random.Random], Iterable[Table]]] = {
    "two columns exchanged": _columns_exchanged,
    "one column removed": _column_removed,
    "separator of values changed": _delimiter_changed,
    "header removed": _header_removed,
    "one quoted value changed": _quoted_value_changed,
    "one value emptied": _value_emptied,
}
