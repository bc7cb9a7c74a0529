"""calc.clean: delete the rows of a table that repeat an earlier one, among rows that nearly do."""

from __future__ import annotations

import random

from osgym_tasks.calc import (
    APPS,
    SAVE,
    Grid,
    cells,
    draw_table,
    filled,
    go,
    opened,
    pause,
    rest_kept,
    workbook,
    xml_parts,
)
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key

_ROWS = {1: 8, 2: 14, 3: 26, 4: 45, 5: 80}
_TWICE = {1: 1, 2: 2, 3: 4, 4: 7, 5: 12}
_WORDINGS = (
    "Some rows of the table that is open in Calc are there more than once. Delete every row that is equal "
    "in all columns to one above it, close the gaps, keep the order of the others, and save {path} in its "
    "own format.",
    "Please remove the duplicates from {path}: each row that repeats an earlier row in every column goes, "
    "without leaving empty rows. The first ones stay in their order. Save the file as xlsx.",
    "{path} is open in Calc. Keep only the first of rows that are the same in all columns; the remaining "
    "rows move up and keep their order. Save under the same name and format.",
    "In the open workbook {path}, delete rows that are exact copies of a row further up, in all their "
    "columns. No blank rows remain and the order stays. Save it in the format it has.",
    "Clean the table in {path}: of rows that agree in every column only the first remains, and the rest "
    "close up in the same order. Rows that differ in any column stay. Save as the xlsx that it is.",
    "Would you delete the repeated rows of the open spreadsheet? A row counts as repeated when all its "
    "columns equal those of one above. Leave no gaps, keep the order, and save {path} in its format.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    table = draw_table(dice, _ROWS[level])
    rows: Grid = [*table.rows]
    for row in dice.sample(table.rows[:-2], _TWICE[level]):
        rows.insert(rows.index(row) + dice.randint(2, 6), row)  # never right below
        almost = [*row[:5], row[5] + dice.choice((-1, 1))]
        rows.insert(dice.randrange(len(rows)), almost)
    kept = [row for place, row in enumerate(rows) if row not in rows[:place]]
    repeated = [place + 2 for place, row in enumerate(rows) if row in rows[:place]]
    alike = [place + 2 for place, row in enumerate(rows) if row[0] in [one[0] for one in rows[:place]]]
    firsts = [rows.index(rows[number - 2]) + 2 for number in repeated]
    before, after = [table.header, *rows], [table.header, *kept]
    near = {
        "rows that differ in one column too": [*_delete(alike), *SAVE, DONE],
        "the first ones instead": [*_delete(firsts), *SAVE, DONE],
    }
    if level < 3:
        near["not saved"] = [*_delete(repeated), DONE]
    if len(repeated) > 1:
        near["one forgotten"] = [*_delete(repeated[1:]), *SAVE, DONE]
    return Draft(
        _WORDINGS,
        {"path": table.path},
        opened(table.path, workbook({"Table": before})),
        every(
            cells(table.path, {"Table": after}),
            xml_parts(table.path, filled(1, len(after) * len(table.header))),
            rest_kept(table.path),
        ),
        Ways([*_delete(repeated), *SAVE, DONE], near),
        changes=[table.path],
    )


def _delete(numbers: list[int]) -> Steps:
    """Return steps that delete rows by number, from below, so that the others keep theirs."""
    return [[*go(f"{row}:{row}"), key("ctrl", "minus"), pause()] for row in sorted(numbers, reverse=True)]


FAMILY = Family("calc.clean", 2, _draft, APPS, "full")
