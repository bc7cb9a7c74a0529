"""calc.number_format: show numbers of a range as percentages, money and the like, without changing them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from osgym_tasks.calc import (
    APPS,
    CITIES,
    PEOPLE,
    SAVE,
    Grid,
    cells,
    go,
    letter,
    listed,
    opened,
    pause,
    rest_kept,
    styled,
    workbook,
)
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, every, key

_ROWS = {1: 8, 2: 14, 3: 24, 4: 45, 5: 60}
_JOBS = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
_NUMBERS = {1: 4, 2: 4, 3: 4, 4: 5, 5: 7}
_FORMATS = {
    "as percentages with two decimals": ("5", r"^0\.00%$"),
    "with two decimals and a comma between thousands": ("1", r"^#,##0\.00(_\))?(;.*)?$"),
    "in scientific notation with two decimals": ("2", r"^(##)?0\.00E\+000?$"),
    "as US dollars with two decimals": (
        "4",
        r'^((\[\$(\$|USD)(-[\w-]+)?\]|"(\$|USD)"|\\?\$)(\\? )?#,##0\.00(;|$)'
        r"|#,##0\.00(\\? )?\[\$(\$|USD)(-[\w-]+)?\](;|$))",
    ),
}
"""Formats by their description: the key that goes with Ctrl and Shift, and the codes that are accepted."""
_PERCENT, _THOUSANDS, _SCIENTIFIC, _DOLLARS = _FORMATS
_COLUMNS = {
    "Share": (0, 1, (_PERCENT,)),
    "Cost": (1000, 9000, (_THOUSANDS, _DOLLARS)),
    "Budget": (10000, 90000, (_THOUSANDS, _DOLLARS)),
    "Distance": (100000, 9000000, (_SCIENTIFIC, _THOUSANDS)),
    "Growth": (0, 1, (_PERCENT,)),
    "Energy": (100000, 9000000, (_SCIENTIFIC, _THOUSANDS)),
    "Turnover": (10000, 90000, (_THOUSANDS, _DOLLARS)),
}
_WORDINGS = (
    "In the workbook that is open in Calc, show {jobs}. The values themselves stay as they are, and so "
    "does the format of all other cells. Save {path} in its own format.",
    "Please format numbers in {path}, so that Calc shows {jobs}. Do not round or retype them, do not "
    "format other numbers, and save the file as xlsx.",
    "{path} is open in Calc. Set number formats to show {jobs}. Neither values nor other cells change. "
    "Save under the same name and format.",
    "Nobody can read the numbers in this table. Please show {jobs}, by the number format alone. The values "
    "stay exactly as they are, other cells keep their format, and you save it as the xlsx that it is.",
    "The table goes into our yearly report, so it has to look right: I want {jobs}. Don't round or retype "
    "anything, and leave the rest of the open workbook as it is. Save it in its format.",
    "Could you tidy up how the open sheet shows its numbers? Format {jobs}. I mean the format only, of "
    "these cells only. Then save the file under its name.",
)


@dataclass(frozen=True, slots=True)
class _Job:
    """A range of one column and its format."""

    heading: str
    column: str
    first: int
    last: int
    how: str

    @property
    def words(self) -> str:
        return f"{self.column}{self.first}:{self.column}{self.last} ({self.heading}) {self.how}"

    def enter(self, *, column: str = "", last: int = 0) -> Steps:
        where = column or self.column
        number = _FORMATS[self.how][0]
        return [
            go(f"{where}{self.first}:{where}{last or self.last}"),
            [key("ctrl", "shift", number), pause()],
        ]


def _draft(dice: random.Random, level: int) -> Draft:
    path = f"{HOME}/Documents/{dice.choice(('plans', 'costs', 'projects', 'routes', 'offers'))}.xlsx"
    headings = dice.sample(sorted(_COLUMNS), _NUMBERS[level])
    grid: Grid = [["Person", "City", *headings]]
    for person in dice.sample(PEOPLE, _ROWS[level]):
        drawn = [dice.randrange(_COLUMNS[name][0] * 10000, _COLUMNS[name][1] * 10000) for name in headings]
        grid.append([person, dice.choice(CITIES), *((one // 10 * 10 + 7) / 10000 for one in drawn)])
    jobs: list[_Job] = []
    for heading in dice.sample(headings, _JOBS[level]):
        first, last = 2, len(grid)
        if level >= 4:
            first, last = dice.randint(3, 9), len(grid) - dice.randint(2, 9)
        column = letter(grid[0].index(heading))
        jobs.append(_Job(heading, column, first, last, dice.choice(_COLUMNS[heading][2])))
    begin = [step for job in jobs[:-1] for step in job.enter()]
    final = jobs[-1]
    beside = next(
        letter(2 + i) for i, name in enumerate(headings) if name not in [job.heading for job in jobs]
    )
    near = {"the column beside": [*begin, *final.enter(column=beside), *SAVE, DONE]}
    if begin:
        near["one range forgotten"] = [*begin, *SAVE, DONE]
    else:
        near["not saved"] = [*final.enter(), DONE]
        near["the last row forgotten"] = [*final.enter(last=final.last - 1), *SAVE, DONE]
    numbers = f"Data!C2:{letter(len(grid[0]) - 1)}{len(grid)}"
    evaluator = every(
        cells(path, {"Data": grid}, others_empty=True),
        rest_kept(path, may_format=[numbers]),  # the number formats are for the rules of single cells
    )
    bold = [*go(numbers.removeprefix("Data!")), key("ctrl", "b"), pause()]
    near["all numbers bold"] = [*begin, *final.enter(), bold, *SAVE, DONE]
    return Draft(
        _WORDINGS,
        {"jobs": listed([job.words for job in jobs]), "path": path},
        opened(path, workbook({"Data": grid})),
        styled(evaluator, path, _rules(grid, jobs)),
        Ways([*begin, *final.enter(), *SAVE, DONE], near),
        changes=[path],
        shown=("path",),
    )


def _rules(grid: Grid, jobs: list[_Job]) -> list[dict[str, object]]:
    """Return the rules for the format of every number."""
    codes = {
        f"{job.column}{row}": _FORMATS[job.how][1] for job in jobs for row in range(job.first, job.last + 1)
    }
    columns = [letter(across) for across in range(2, len(grid[0]))]
    places = [f"{column}{row}" for column in columns for row in range(2, len(grid) + 1)]
    return [
        {
            "type": "check_cell",
            "sheet_idx": "RNData",
            "coordinate": place,
            "props": {"number_format": {"method": "re", "ref": codes.get(place, "^General$")}},
        }
        for place in places
    ]


FAMILY = Family("calc.number_format", 4, _draft, APPS, "full")
