"""x.sheet_into_note: compute figures from a table in Calc and put each into its line of a note.

The check reads the note, and that the workbook is unchanged; the figures may be computed by any means.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from osgym_tasks.calc import (
    Table,
    draw_table,
    go,
    opened,
    pause,
    typed,
    workbook,
)
from osgym_tasks.desk import without_last_end
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, every, key, launch, place, switch, text_check, upload

_ROWS = {1: 8, 2: 20, 3: 40, 4: 70, 5: 110}
_LINES = {1: 3, 2: 5, 3: 7, 4: 10, 5: 14}
_JOBS = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4}
_KINDS: dict[str, tuple[str, Callable[[Sequence[int]], int]]] = {
    "sum": ("SUM", sum),
    "largest value": ("MAX", max),
    "smallest value": ("MIN", min),
}
_TITLES = (
    "First figure", "Second figure", "Total", "Best", "Limit", "Budget line", "Reserve", "For the board",
    "For the record", "Outlook", "Target", "Last year", "Estimate", "Check sum", "Peak", "Floor",
)  # fmt: skip
_FILES = ("summary.txt", "figures.txt", "briefing.txt", "digest.txt")
_WORDINGS = (
    "From the table in {book}, which is open in Calc, work out {jobs}. Write each figure into {path}, open "
    "in the editor, at the end of its line after the colon and a space, and save that file. Do not save "
    "changes of the workbook.",
    "{path} is open in the text editor, behind the workbook {book}. Put in {jobs}, each figure after the "
    "colon of its line and one space. Save {path}; the other lines and the workbook's file stay as they "
    "are.",
    "Please fill in {path} from the open workbook {book}: {jobs}. A plain number follows the colon and a "
    "space of its line. Save the text file only; nothing else changes.",
    "I have to speak to the board in an hour, and my notes in the editor lack figures. From the table in "
    "Calc, please add {jobs}. A plain number follows the colon and a space of its line. Save the notes "
    "only, not the workbook.",
    "My note leaves gaps for what the open table says: {jobs}. Could you work that out and put each number "
    "at the end of its line, after the colon and one space? Save the note; the other lines and the "
    "workbook's file stay.",
    "So that I needn't carry the whole table around, the note in the editor should have {jobs}. Each goes "
    "behind the colon of its line, with a space between. Save the text, and leave the workbook as it is.",
)


@dataclass(frozen=True, slots=True)
class _Job:
    """A figure: its function, column and rows, and its line of the note."""

    table: Table
    what: str
    heading: str
    conditions: tuple[tuple[str, str], ...]
    at: int

    @property
    def words(self) -> str:
        rows = " and ".join(f"{where} is {word}" for where, word in self.conditions)
        return f"the {self.what} of the {self.heading} column" + (
            f" over the rows whose {rows}" if rows else ""
        )

    def value(self) -> int:
        columns = [(self.table.column(where), word) for where, word in self.conditions]
        values = [
            value
            for at, value in enumerate(self.table.column(self.heading))
            if all(column[at] == word for column, word in columns)
        ]
        return _KINDS[self.what][1](values)

    def formula(self) -> str:
        function, area = _KINDS[self.what][0], self.table.area(self.heading)
        if not self.conditions:
            return f"={function}({area})"
        pairs = ",".join(f'{self.table.area(where)},"{word}"' for where, word in self.conditions)
        return f"={function}IFS({area},{pairs})"


def _draft(dice: random.Random, level: int) -> Draft:
    table = draw_table(dice, _ROWS[level], words=3)
    titles = dice.sample(_TITLES, _LINES[level])
    jobs = _jobs(dice, level, table)
    figures = [
        None if at in {job.at for job in jobs} else str(dice.randrange(20, 4000)) for at in range(len(titles))
    ]
    path = f"{HOME}/Documents/{dice.choice(_FILES)}"
    results = {job.at: str(job.value()) for job in jobs}
    *most, last = jobs
    beside = next(one for one in table.numbers if one != last.heading)
    free = next(at for at in range(len(titles)) if at not in results)
    save = [key("ctrl", "s")]
    near = {
        "not saved": [*_ways(jobs), DONE],
        "the column beside": [*_ways([*most, replace(last, heading=beside)]), save, DONE],
        "another line": [*_ways([*most, replace(last, at=free)]), save, DONE],
    }
    if most:
        del near["another line"]
        near["one forgotten"] = [*_ways(most), save, DONE]
    if last.conditions:
        near["a condition forgotten"] = [
            *_ways([*most, replace(last, conditions=last.conditions[1:])]),
            save,
            DONE,
        ]
    said = [f'{job.words} for the line "{titles[job.at]}:"' for job in jobs]
    before, after = (_text(titles, figures, some) for some in ({}, results))
    book = workbook({"Data": table.grid})
    return Draft(
        _WORDINGS,
        {"book": table.path, "path": path, "jobs": "; ".join(said)},
        [
            upload({path: before}),
            *launch(path.rpartition("/")[2], "mousepad", path, wait_s=90),
            *place("mousepad.Mousepad", 950, 300, 800, 600),
            *opened(table.path, book),
        ],
        every(text_check(path, after)),
        Ways(
            [*_ways(jobs), save, DONE],
            near,
            right={"no last line end": [*_ways(jobs), without_last_end(), save, DONE]},
        ),
        changes=(path,),
        shown=("path", "book"),
    )


def _jobs(dice: random.Random, level: int, table: Table) -> list[_Job]:
    """Draw figures that differ from each other and from the results of likely mistakes."""
    places = dice.sample(range(_LINES[level]), _JOBS[level])
    found: list[_Job] = []
    taken: set[int] = set()
    while len(found) < len(places):
        what = dice.choice(sorted(_KINDS))
        conditions: tuple[tuple[str, str], ...] = ()
        if level >= 3:
            row = dice.choice(table.rows)
            named = table.header[1:3] if level == 5 else [dice.choice(table.header[1:3])]
            conditions = tuple((where, row[table.header.index(where)]) for where in named)
        job = _Job(table, what, dice.choice(table.numbers), conditions, places[len(found)])
        wider = replace(job, conditions=conditions[1:]).value() if conditions else None
        if job.value() not in taken and job.value() != wider:
            found.append(job)
            taken.add(job.value())
    return found


def _text(titles: list[str], figures: list[str | None], results: dict[int, str]) -> str:
    said = [results.get(at, "") if figure is None else figure for at, figure in enumerate(figures)]
    return "".join(f"{title}: {one}".strip() + "\n" for title, one in zip(titles, said, strict=True))


def _ways(jobs: list[_Job]) -> Steps:
    """Return steps that compute each by a formula in a free cell and put it into the note."""
    steps: Steps = []
    for job in jobs:
        if steps:
            steps.append(switch())
        steps += [
            go("H2"),
            [typed(job.formula()), pause()],
            switch(),
            [
                *(key("ctrl", "home"), *([key("down")] * job.at), key("end")),
                {"op": "type", "text": f" {job.value()}"},
            ],
        ]
    return steps


FAMILY = Family("x.sheet_into_note", 4, _draft, ("libreoffice_calc", "mousepad"), "full")
