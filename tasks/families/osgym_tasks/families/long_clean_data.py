"""long.clean_data: clean a raw table by spellings of a wiki, export it as CSV, and write figures into a note.

A terminal may read the wiki by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from osgym_tasks import calc
from osgym_tasks.desk import quoted_list
from osgym_tasks.family import Draft, Family, Steps
from osgym_tasks.goods import TOWNS
from osgym_tasks.long import Part, Plan
from osgym_tasks.long_files import exported_csv_part
from osgym_tasks.long_parts import Filled, name_of, note_opened, note_part, wiki
from osgym_tasks.pieces import HOME, key, vm_file
from osgym_tasks.web import browser, serving
from osgym_tasks.webapps.framework import PORT

_ROWS = {1: 10, 2: 16, 3: 24, 4: 36, 5: 56}
_WRONG = {1: 7, 2: 10, 3: 15, 4: 24, 5: 49}
_TWICE = {1: 4, 2: 6, 3: 9, 4: 14, 5: 26}
_BOOK = f"{HOME}/Documents/donations.xlsx"
_NOTE = f"{HOME}/Documents/cleaning.txt"
_SPELLINGS = {
    "Aarhus": ("Arhus", "Aarhuus"), "Brno": ("Bruenn", "Brnno"), "Cork": ("Kork", "Corc"),
    "Delft": ("Delfd", "Dellft"), "Evora": ("Evorra", "Ewora"), "Gdansk": ("Danzig", "Gdansc"),
    "Innsbruck": ("Insbruck", "Innsbruk"), "Kaunas": ("Kovno", "Caunas"), "Maribor": ("Marburg", "Mariburg"),
    "Tartu": ("Dorpat", "Tarttu"),
}  # fmt: skip
"""Wrong spellings; none begins with the right one, which Calc would complete to it."""
_WORDINGS = (
    "The table of donations is a mess; please clean it. {copy} {spell} {twice} {export} Then {note}. Change "
    "nothing else.",
    "Our donations have to be cleaned before we can send them. {copy} {spell} {twice} {export} After that, "
    "{note}. All else stays as it is.",
    "Could you make a clean list of our donations? {copy} {spell} {twice} {export} Please also {note}. Leave "
    "other things alone.",
    "Several people typed our list of donations, and it shows. {copy} {spell} {twice} {export} Finally "
    "{note}. Nothing else is to change.",
    "The accountant wants our donations without mistakes. {copy} {spell} {twice} {export} When it is done, "
    "{note}. Please touch nothing else.",
    "I need tidy data about our donations. {copy} {spell} {twice} {export} At last, {note}. Other content "
    "remains.",
)


@dataclass(frozen=True, slots=True)
class _Mess:
    """Raw rows of a name, a town and an amount, and what is wrong with them.

    Attributes:
        misspelt: Right towns by the places of rows in `rows`, from 0.
        repeated: Places of rows that repeat an earlier one when towns are spelt right.
    """

    rows: calc.Grid
    misspelt: dict[int, str]
    repeated: list[int]

    @property
    def clean(self) -> calc.Grid:
        """Rows of the clean table."""
        return [
            [name, self.misspelt.get(at, town), amount]
            for at, (name, town, amount) in enumerate(self.rows)
            if at not in self.repeated
        ]


def _mess(dice: random.Random, level: int) -> _Mess:
    count = _ROWS[level]
    names = dice.sample(calc.PEOPLE, count)
    rows: calc.Grid = [[name, dice.choice(TOWNS), dice.randrange(100, 9999) / 10] for name in names]
    for row in dice.sample(rows[:-2], _TWICE[level]):
        rows.insert(rows.index(row) + dice.randint(2, 5), [*row])
    misspelt = {at: rows[at][1] for at in sorted(dice.sample(range(len(rows)), _WRONG[level]))}
    repeated = [at for at, row in enumerate(rows) if row in rows[:at]]
    for at, town in misspelt.items():
        rows[at] = [rows[at][0], dice.choice(_SPELLINGS[town]), rows[at][2]]
    return _Mess(rows, misspelt, repeated)


def _csv(rows: Sequence[Sequence[object]]) -> str:
    lines = [f"{name},{town},{amount:.2f}\n" for name, town, amount in rows]
    return "".join(["Name,Town,Amount\n", *lines])


def _draft(dice: random.Random, level: int) -> Draft:
    mess = _mess(dice, level)
    clean, header = mess.clean, ["Name", "Town", "Amount"]
    target = f"{HOME}/Documents/donations-{dice.randrange(2019, 2090)}-{dice.randrange(1, 13):02}.csv"
    pages = {"Spelling of towns": {town: [f"Also written: {', '.join(_SPELLINGS[town])}."] for town in TOWNS}}
    guide = wiki(dice, pages, PORT, "")
    town = dice.choice([row[1] for row in clean])
    ends = {
        "Rows of the raw table:": str(len(mess.rows)),
        "Rows with a wrong spelling:": str(len(mess.misspelt)),
        "Rows deleted:": str(len(mess.repeated)),
        f"Rows left for {town}:": str(sum(row[1] == town for row in clean)),
    }
    note = ["Cleaning of the data", *ends, "Done by the office"]
    last = len(mess.rows) + 1
    sheets = {"Raw": [header, *mess.rows], "Clean": [header]}
    export = exported_csv_part(_BOOK, target, _csv(clean), _two_decimals(len(clean)))
    misspelt = [calc.go("B2"), [calc.typed(_SPELLINGS[clean[0][1]][0])]]
    parts = [
        note_part(_NOTE, note, ends, 1),
        replace(
            _cells_part(mess, last), legs=[*guide.read(["Spelling of towns"]), *_cells_part(mess, last).legs]
        ),
        export,
    ]
    wrong = {
        "amounts as they were": exported_csv_part(_BOOK, target, _csv(clean), [calc.go("Clean.A1")]),
        "a town misspelt in the export": exported_csv_part(
            _BOOK, target, _csv(clean), [*_two_decimals(len(clean)), *misspelt]
        ),
    }
    plan = Plan(
        [guide.window, name_of(_BOOK), name_of(_NOTE)],
        parts,
        wrong,
        {"the wiki changed": [(guide.window, guide.steps({0: (0, "Any spelling will do.")}))]},
        [
            guide.served.check({}),
            calc.cells(_BOOK, sheets),
            calc.rest_kept(_BOOK, may_change=[f"Clean!A2:C{last}"]),
        ],
    )
    return plan.draft(
        _WORDINGS,
        _named(target, ends),
        [
            *serving(guide.served),
            *browser(guide.served.url, guide.window),
            *note_opened(_NOTE, note),
            *calc.opened(_BOOK, calc.workbook(sheets)),
        ],
        (_BOOK, _NOTE, target),
    )


def _cells_part(mess: _Mess, last: int) -> Part:
    """Return the part that copies, corrects and deletes rows down to `last`, and saves the workbook."""
    steps: Steps = [
        calc.go("Raw.A1"),
        calc.go(f"A2:C{last}"),
        [key("ctrl", "c"), calc.pause()],
        calc.go("Clean.A2"),
        [key("ctrl", "v"), calc.pause(800)],
    ]
    for at, town in mess.misspelt.items():
        steps += [calc.go(f"B{at + 2}"), [calc.typed(town)]]
    for at in reversed(mess.repeated):
        steps.append([*calc.go(f"{at + 2}:{at + 2}"), key("ctrl", "minus"), calc.pause()])
    rows = [*mess.clean, *([None] * 3 for _ in mess.repeated)]
    values = {f"Clean!{calc.letter(place)}{row}": value for row, line in enumerate(rows, 2)
              for place, value in enumerate(line)}  # fmt: skip
    check = ("check_xlsx_cells", vm_file(_BOOK), {"cells": values})
    return Part("the clean sheet", 3, check, [(name_of(_BOOK), steps)], [(name_of(_BOOK), calc.SAVE)])


def _two_decimals(count: int) -> Steps:
    return [calc.go("Clean.A1"), [*calc.go(f"C2:C{count + 1}"), key("ctrl", "shift", "1"), calc.pause()]]


def _named(target: str, ends: Filled) -> dict[str, str]:
    """Return the values that the instruction names."""
    return {
        "copy": f"Copy the rows of the sheet Raw of {_BOOK} to the sheet Clean, below its heading; Raw "
        "stays as it is.",
        "spell": 'The page "Spelling of towns" of the wiki in the browser lists wrong spellings: where '
        "Clean has one of these, write the name of its section.",
        "twice": "After that, delete each row of Clean that repeats an earlier one in all columns, so "
        "that no gaps remain and the others keep their order, and save the workbook as xlsx.",
        "export": f"Export the sheet Clean as {target}, too: CSV in UTF-8 with commas, amounts with two "
        "decimals.",
        "note": f"complete the lines {quoted_list(ends)} of {_NOTE}, each number after the colon and a "
        "space, and save it",
    }


FAMILY = Family("long.clean_data", 1, _draft, ("chromium", "libreoffice_calc", "mousepad"), "full")
