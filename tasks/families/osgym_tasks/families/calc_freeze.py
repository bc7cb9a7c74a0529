"""calc.freeze: keep the first rows and columns of a long sheet in view when it is scrolled."""

from __future__ import annotations

import random

from osgym_tasks.calc import (
    APPS,
    SAVE,
    Grid,
    cells,
    draw_table,
    go,
    letter,
    listed,
    opened,
    pause,
    press,
    rest_kept,
    sheet_part,
    workbook,
    xml_parts,
)
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key

_ROWS = {1: 20, 2: 35, 3: 35, 4: 35, 5: 35}
_SHEETS = {1: 1, 2: 1, 3: 3, 4: 4, 5: 6}
_FROZEN = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
_NAMES = ("January", "February", "March", "April", "May", "June", "July", "August")
_COUNTS = ("the first", "the first two", "the first three")
_WORDINGS = (
    "In the workbook that is open in Calc, freeze {jobs}. Freeze nothing else, change no cell, and save "
    "{path} in its own format.",
    "Please freeze {jobs} in {path}; scrolling is to move only the rest. Cells and other sheets stay as "
    "they are. Save the file as xlsx.",
    "{path} is open in Calc. Freeze {jobs}; nothing else is to be frozen or changed. Save under the same "
    "name and format.",
    "When I scroll in the workbook that is open, I lose the headings. Please freeze {jobs}, and nothing "
    "more. Then save it in the format it has, with the same cells.",
    "I have to present this file, and people at the back must always see what a column is. Could you "
    "freeze {jobs}? Leave everything else alone, and save it as the xlsx file that it is.",
    "The sheets here are too long to keep in mind what is what. Make {jobs} stay in view when one scrolls, "
    "by freezing them and no more than that. Save the file without changing cells or format.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    first = draw_table(dice, _ROWS[level])
    names = sorted(dice.sample(_NAMES, _SHEETS[level]), key=_NAMES.index)
    sheets: dict[str, Grid] = {name: draw_table(dice, _ROWS[level], theme=first.name).grid for name in names}
    frozen = {
        name: _corner(dice, level) for name in sorted(dice.sample(names, _FROZEN[level]), key=names.index)
    }
    name, (rows, columns) = next(reversed(frozen.items()))
    others = {one: corner for one, corner in frozen.items() if one != name}
    near = {
        "a row more": [*_ways({**others, name: (rows + 1, columns)}), *SAVE, DONE],
        "a column more": [*_ways({**others, name: (rows, columns + 1)}), *SAVE, DONE],
    }
    if level < 3:
        near["not saved"] = [*_ways(frozen), DONE]
    if others:
        near["one sheet forgotten"] = [*_ways(others), *SAVE, DONE]
    parts = []
    for number, one in enumerate(names, 1):
        pane = "s:sheetViews/s:sheetView/s:pane"
        if one not in frozen:
            parts.append(sheet_part(number, pane, count=0))
            continue
        down, across = frozen[one]
        parts.append(sheet_part(number, f"{pane}[@state='frozen']", count=1))
        for attribute, wanted in (("xSplit", across), ("ySplit", down)):  # one that is 0 may be left out
            said = {"include": [wanted]} if wanted else {"exclude": list(range(1, 30))}
            parts.append(sheet_part(number, pane, attribute=attribute, **said))
    words = [_words(one, corner, len(names) > 1) for one, corner in frozen.items()]
    return Draft(
        _WORDINGS,
        {"jobs": listed(words), "path": first.path},
        opened(first.path, workbook(sheets)),
        every(
            cells(first.path, sheets, others_empty=True),
            xml_parts(first.path, *parts),
            rest_kept(first.path, may_freeze=True),
        ),
        Ways([*_ways(frozen), *SAVE, DONE], near),
        changes=[first.path],
        shown=("path",),
        allows={"saved again by the office suite": "without a window it saves no frozen rows"},
    )


def _corner(dice: random.Random, level: int) -> tuple[int, int]:
    """Draw the number of rows and columns to freeze; on level 1 only rows."""
    return dice.randint(1, 3), 0 if level == 1 else dice.randint(0 if level == 2 else 1, 3)


def _words(name: str, corner: tuple[int, int], is_named: bool) -> str:
    rows, columns = corner
    parts = [f"{_COUNTS[rows - 1]} row{'s' * (rows > 1)}"]
    if columns:
        parts.append(f"{_COUNTS[columns - 1]} column{'s' * (columns > 1)}")
    return " and ".join(parts) + (f" on the sheet {name}" if is_named else "")


def _ways(frozen: dict[str, tuple[int, int]]) -> Steps:
    """Return steps that choose the cell below and beside the frozen part, and the menu."""
    steps: Steps = []
    for name, (rows, columns) in frozen.items():
        steps += [
            go(f"${name}.{letter(columns)}{rows + 1}"),
            [key("alt", "v"), pause(800), press("down", 13), pause(), key("enter"), pause()],
        ]
    return steps


FAMILY = Family("calc.freeze", 5, _draft, APPS, "full")
