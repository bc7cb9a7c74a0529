"""calc.sort: sort a table by up to three columns; its heading and a note below it stay where they are."""

from __future__ import annotations

import random

from osgym_tasks.calc import (
    APPS,
    SAVE,
    Grid,
    Table,
    cells,
    draw_table,
    filled,
    go,
    opened,
    pause,
    press,
    put,
    rest_kept,
    workbook,
    xml_parts,
)
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key

_ROWS = {1: 8, 2: 15, 3: 30, 4: 60, 5: 100}
_KEYS = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3}
_NOTES = ("Checked twice", "Draft of Monday", "Ask before changing", "From the old list", "Counted by hand")
_WORDINGS = (
    "Sort the rows of the table on the sheet that is open in Calc {keys}. The heading stays on top and the "
    "note in {note} where it is; save {path} in its own format.",
    "In the open workbook {path}, put the rows of the table in order {keys}. Keep the heading in row 1 and "
    "the note in {note}, and save the file as xlsx.",
    "Please sort the table in {path} {keys}, row by row, without its heading. What stands in {note} does "
    "not move. Save under the same name and in the same format.",
    "{path} is open in Calc. Order the rows of its table {keys}; the heading remains the first row, {note} "
    "keeps its note. Save the file, keeping its format.",
    "The table in the open spreadsheet is in disorder. Sort its rows {keys}, leave the heading and the "
    "note in {note} alone, and save {path} as the xlsx file that it is.",
    "Would you sort the rows below the heading {keys}? The workbook {path} is open in Calc. The note in "
    "{note} is not part of the table. Save in the present format.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    table, keys = _drawn(dice, level)
    note = f"A{table.last + dice.randint(2, 5)}"
    extra = {note: dice.choice(_NOTES)}
    heading, is_falling = keys[-1]
    turned = [*keys[:-1], (heading, not is_falling)]
    near = {"the other way round": [*_ways(table, turned), *SAVE, DONE]}
    if level < 3:
        near["not saved"] = [*_ways(table, keys), DONE]
    if len(keys) > 1:
        near["only by the last column"] = [*_ways(table, keys[-1:]), *SAVE, DONE]
    after = put([table.header, *_sorted(table, keys)], extra)
    count = len(table.grid) * len(table.header) + 1
    return Draft(
        _WORDINGS,
        {"keys": ", then ".join(map(_words, keys)), "note": note, "path": table.path},
        opened(table.path, workbook({"List": put(table.grid, extra)})),
        every(
            cells(table.path, {"List": after}), xml_parts(table.path, filled(1, count)), rest_kept(table.path)
        ),
        Ways([*_ways(table, keys), *SAVE, DONE], near),
        changes=[table.path],
    )


def _drawn(dice: random.Random, level: int) -> tuple[Table, list[tuple[str, bool]]]:
    """Draw a table and its keys, which leave no two rows equal; each key but the last leaves some."""
    while True:
        table = draw_table(dice, _ROWS[level])
        last = dice.choice([table.header[0], *table.numbers] if level > 1 else table.numbers)
        columns = [*dice.sample(table.header[1:3], _KEYS[level] - 1), last]
        keys = [(heading, dice.random() < 0.5) for heading in columns]
        places = [table.header.index(heading) for heading in columns]
        if len({tuple(row[place] for place in places) for row in table.rows}) == len(table.rows) and all(
            _sorted(table, wrong) != _sorted(table, keys) for wrong in (keys[-1:], keys[:0]) if wrong != keys
        ):
            return table, keys


def _sorted(table: Table, keys: list[tuple[str, bool]]) -> Grid:
    rows = table.rows
    for heading, is_falling in reversed(keys):
        place = table.header.index(heading)
        rows = sorted(rows, key=lambda row: row[place], reverse=is_falling)
    return rows


def _words(one: tuple[str, bool]) -> str:
    heading, is_falling = one
    return f"by {heading} in {'descending' if is_falling else 'ascending'} order"


def _ways(table: Table, keys: list[tuple[str, bool]]) -> Steps:
    """Return steps that sort by one column at a time, the first key last: equal rows keep their order."""
    steps: Steps = []
    for heading, is_falling in reversed(keys):
        column, below = table.letter(heading), 2 if is_falling else 1
        steps += [go(f"{column}2"), [key("alt", "d"), pause()], [press("down", below), key("enter"), pause()]]
    return steps


FAMILY = Family("calc.sort", 2, _draft, APPS, "full")
