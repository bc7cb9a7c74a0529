"""calc.fill: columns that are computed from others, row by row, with formulas."""

from __future__ import annotations

import random
from dataclasses import dataclass

from osgym_tasks.calc import (
    APPS,
    SAVE,
    Table,
    cells,
    draw_table,
    formulas,
    go,
    letter,
    listed,
    opened,
    pause,
    rest_kept,
    typed,
    workbook,
)
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key

_ROWS = {1: 6, 2: 12, 3: 24, 4: 50, 5: 90}
_COLUMNS = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
_SIGNS = {"plus": "+", "minus": "-", "times": "*"}
_TITLES = ("Total", "Result", "Sum", "Balance", "Check", "Score", "Due")
_WORDINGS = (
    "In the workbook that is open in Calc, fill {jobs}, for each row of the table. Use a formula in every "
    "one of these cells, change no other cell, and save {path} in its own format.",
    "Please complete the table in {path}: fill {jobs}, in every row below the heading, with formulas. "
    "Leave the rest and save the file as xlsx.",
    "{path} is open in Calc. For every row, fill {jobs}. Each cell gets a formula. Nothing else changes; "
    "save under the same name and format.",
    "I left the table that you see half done. Would you fill {jobs}, with a formula in every row, so that "
    "it follows when I correct a number? Nothing else changes. Save it in its format.",
    "The evaluation is due soon, and the last columns are still empty. Please fill {jobs}, by formulas "
    "from the first row to the last of the open table, and leave the other cells as they are. Save it as "
    "xlsx.",
    "My colleague will go on with this table, so it must compute by itself. With a formula in each row, "
    "fill {jobs}. Save the workbook, keeping its format, and touch nothing else.",
)


@dataclass(frozen=True, slots=True)
class _Job:
    """One column and the two columns that it is computed from."""

    title: str
    column: str
    left: str
    sign: str
    right: str

    @property
    def words(self) -> str:
        return f"column {self.column} ({self.title}) with {self.left} {self.sign} {self.right}"

    def value(self, table: Table, row: list[int]) -> int:
        a, b = row[table.header.index(self.left)], row[table.header.index(self.right)]
        return {"plus": a + b, "minus": a - b, "times": a * b}[self.sign]

    def formula(self, table: Table, right: str = "") -> str:
        """Return the formula of the first row."""
        return f"{table.letter(self.left)}2{_SIGNS[self.sign]}{table.letter(right or self.right)}2"

    def enter_as_array(self, table: Table) -> Steps:
        """Return steps that enter one array formula over the column."""
        text = f"={table.area(self.left)}{_SIGNS[self.sign]}{table.area(self.right)}"
        enter = [{"op": "type", "text": text}, pause(), key("ctrl", "shift", "enter"), pause()]
        return [go(f"{self.column}2:{self.column}{table.last}"), enter]

    def enter(self, table: Table, *, last: int = 0, right: str = "") -> Steps:
        text = {"op": "type", "text": f"={self.formula(table, right)}"}
        return [
            go(f"{self.column}2:{self.column}{last or table.last}"),
            [text, pause(), key("alt", "enter"), pause()],
        ]


def _draft(dice: random.Random, level: int) -> Draft:
    table = draw_table(dice, _ROWS[level])
    titles = dice.sample(_TITLES, _COLUMNS[level])
    jobs: list[_Job] = []
    for place, title in enumerate(titles):
        left, right = dice.sample(table.numbers, 2)
        jobs.append(_Job(title, letter(len(table.header) + place), left, dice.choice([*_SIGNS]), right))
    before = [[*table.header, *titles], *table.rows]
    after = [before[0], *([*row, *(job.value(table, row) for job in jobs)] for row in table.rows)]
    *first, final = jobs
    begin = [step for job in first for step in job.enter(table)]
    other = next(title for title in table.numbers if title not in (final.left, final.right))
    near = {
        "the last row forgotten": [*begin, *final.enter(table, last=table.last - 1), *SAVE, DONE],
        "another column": [*begin, *final.enter(table, right=other), *SAVE, DONE],
    }
    number = [go(f"{final.column}{table.last}"), [typed(f"={after[-1][-1]}"), pause()]]
    near["a number as a formula"] = [*begin, *final.enter(table), *number, *SAVE, DONE]
    if level < 3:
        near["not saved"] = [*begin, *final.enter(table), DONE]
    areas = {f"Table!{job.column}2:{job.column}{table.last}": job for job in jobs}
    worth_nothing = [
        go(f"{final.column}{table.last}"),
        [typed(f"={after[-1][-1]}+0*{table.letter(final.left)}{table.last}"), pause()],
    ]
    near["a number and nothing of a cell"] = [*begin, *final.enter(table), *worth_nothing, *SAVE, DONE]
    array = [*begin, *final.enter_as_array(table), *SAVE, DONE]
    return Draft(
        _WORDINGS,
        {"jobs": listed([job.words for job in jobs]), "path": table.path},
        opened(table.path, workbook({"Table": before})),
        every(
            cells(table.path, {"Table": after}, others_empty=True),
            formulas(table.path, {area: f"={job.formula(table)}" for area, job in areas.items()}),
            rest_kept(table.path, may_change=list(areas)),
        ),
        Ways([*begin, *final.enter(table), *SAVE, DONE], near, {"one array formula": array}),
        changes=[table.path],
        shown=("path",),
    )


FAMILY = Family("calc.fill", 5, _draft, APPS, "full")
