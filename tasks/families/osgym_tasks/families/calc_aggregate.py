"""calc.aggregate: sums, averages and extremes of a table's columns, written into named cells."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, median

from osgym_tasks.calc import (
    APPS,
    SAVE,
    Table,
    cells,
    draw_table,
    formulas,
    go,
    listed,
    opened,
    put,
    rest_kept,
    typed,
    workbook,
)
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every

ROWS = {1: 8, 2: 20, 3: 40, 4: 70, 5: 110}
_JOBS = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
_PLAIN: dict[str, tuple[str, Callable[[Sequence[int]], float]]] = {
    "sum": ("SUM", sum),
    "average": ("AVERAGE", mean),
    "largest value": ("MAX", max),
    "smallest value": ("MIN", min),
    "median": ("MEDIAN", median),
}
WORDINGS = (
    "In the workbook that is open in Calc, write {jobs}, {how}. Leave all other cells as they are and save "
    "{path} in its own format.",
    "Please enter {jobs}, {how}, in the open workbook {path}. Save it as xlsx under the same name; no "
    "other cell may change.",
    "{path} is open in Calc. Put {jobs}, {how}. Change nothing else, and save the file, keeping its format.",
    "I am preparing a talk and need figures from the table that you see: {jobs}, {how}. Please leave every "
    "other cell alone, and save the workbook, keeping its format.",
    "The board wants to know a few things about this table. Could you add {jobs}, {how}? Nothing else may "
    "change. Save the open file as the xlsx that it is.",
    "So that I needn't do the sums by hand, put {jobs}, {how}, into the sheet that is open. Save it under "
    "its name and in its format, with the other cells untouched.",
)


@dataclass(frozen=True, slots=True)
class Job:
    """One result: its function, column, rows and cell."""

    table: Table
    what: str
    heading: str
    condition: tuple[str, str] | None
    cell: str

    @property
    def words(self) -> str:
        rows = "" if self.condition is None else " over the rows whose {} is {}".format(*self.condition)
        return f"the {self.what} of the {self.heading} column{rows} in {self.cell}"

    def value(self) -> float:
        values = self.table.column(self.heading)
        if self.condition is not None:
            words = self.table.column(self.condition[0])
            values = [v for v, word in zip(values, words, strict=True) if word == self.condition[1]]
        return _PLAIN[self.what][1](values)

    def formula(self, heading: str = "", *, last: int = 0, is_conditional: bool = True) -> str:
        area = self.table.area(heading or self.heading)
        if last:
            area = area.replace(str(self.table.last), str(last))
        function = _PLAIN[self.what][0]
        if self.condition is None or not is_conditional:
            return f"={function}({area})"
        where, word = self.condition
        return f'={function}IF({self.table.area(where)},"{word}",{area})'


def _draft(dice: random.Random, level: int) -> Draft:
    table = draw_table(dice, ROWS[level])
    jobs = drawn(dice, level, table)
    entered = [(job.cell, job.formula()) for job in jobs]
    beside = dict(zip(table.numbers, [*table.numbers[1:], table.numbers[0]], strict=True))
    other = [*entered[:-1], (jobs[-1].cell, jobs[-1].formula(beside[jobs[-1].heading]))]
    near = {
        "the column beside": [*enter(other), *SAVE, DONE],
    }
    if level < 3:
        near["not saved"] = [*enter(entered), DONE]
    if level > 1:
        constant = [*entered[:-1], (jobs[-1].cell, f"{jobs[-1].value():.6f}")]
        near["a number, not a formula"] = [*enter(constant), *SAVE, DONE]
        fake = f"{jobs[-1].value()!r}+0*{jobs[-1].formula()[1:]}"
        near["the number with a formula that is worth nothing"] = [
            *enter([*entered[:-1], (jobs[-1].cell, f"={fake}")]),
            *SAVE,
            DONE,
        ]
    if len(jobs) > 1:
        near["one forgotten"] = [*enter(entered[:-1]), *SAVE, DONE]
    if jobs[0].condition is not None:
        wide = [(jobs[0].cell, jobs[0].formula(is_conditional=False)), *entered[1:]]
        near["a condition forgotten"] = [*enter(wide), *SAVE, DONE]
    results = {job.cell: job.value() for job in jobs}
    checks = [
        cells(table.path, {"Data": put(table.grid, results)}, others_empty=True),
        rest_kept(table.path, may_change=[f"Data!{job.cell}" for job in jobs]),
    ]
    if level > 1:
        checks.append(formulas(table.path, {f"Data!{job.cell}": job.formula() for job in jobs}))
    return Draft(
        WORDINGS,
        named(jobs, level),
        opened(table.path, workbook({"Data": table.grid})),
        every(*checks),
        Ways([*enter(entered), *SAVE, DONE], near),
        changes=[table.path],
        shown=("path",),
    )


def named(jobs: Sequence[Job], level: int) -> dict[str, str]:
    """Return the values that the wordings name."""
    how = "as a formula" if len(jobs) == 1 else "each as a formula"
    return {
        "jobs": listed([job.words for job in jobs]),
        "how": how if level > 1 else "as a number or a formula",
        "path": jobs[0].table.path,
    }


def drawn(dice: random.Random, level: int, table: Table) -> list[Job]:
    """Draw different jobs; from level 4 on, all but one use some rows only."""
    places = [f"{column}{row}" for column in "HIJ" for row in range(2, 9)]
    found: list[Job] = []
    while len(found) < _JOBS[level]:
        has_condition = level >= 4 and len(found) < _JOBS[level] - 1
        where = dice.choice(table.header[1:3])
        condition = (where, dice.choice(table.column(where))) if has_condition else None
        kinds = ("sum", "average") if has_condition else sorted(_PLAIN)
        job = Job(table, dice.choice(kinds), dice.choice(table.numbers), condition, dice.choice(places))
        taken = {(one.what, one.heading, one.condition) for one in found}
        if (job.what, job.heading, condition) not in taken and job.cell not in {one.cell for one in found}:
            found.append(job)
    return found


def enter(formulas: Sequence[tuple[str, str]]) -> Steps:
    """Return steps that go to each cell and type its formula."""
    return [step for cell, formula in formulas for step in (go(cell), [typed(formula)])]


FAMILY = Family("calc.aggregate", 4, _draft, APPS, "full")
