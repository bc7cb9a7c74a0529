"""calc.sheets: rename and hide sheets of a workbook, among sheets with similar names."""

from __future__ import annotations

import random

from osgym_tasks.calc import (
    APPS,
    SAVE,
    cells,
    draw_table,
    go,
    listed,
    opened,
    pause,
    press,
    rest_kept,
    typed,
    workbook,
    xml_parts,
)
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, every, key

_SHEETS = {1: 3, 2: 4, 3: 6, 4: 8, 5: 11}
_RENAMED = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3}
_HIDDEN = {1: 0, 2: 1, 3: 1, 4: 2, 5: 3}
_ROWS = 5
_AREAS = ("North", "South", "East", "West", "Centre")
_SEASONS = ("spring", "summer", "autumn", "winter")
_NEW = ("Archive", "Overview", "Draft", "Final", "Reserve", "Notes", "Summary", "Checked")
_WORDINGS = (
    "In the workbook that is open in Calc, {jobs}. Leave the other sheets, their order and all cells as "
    "they are, and save {path} in its own format.",
    "Please {jobs} in the open workbook {path}. Move and delete no sheet, and change no cell. Save it as "
    "xlsx under the same name.",
    "{path} is open in Calc. There, {jobs}. The order of the sheets and what is in them stays. Save the "
    "file in its format.",
    "I get lost among the sheets of the workbook that is open. Please {jobs}. Delete and move none, change "
    "no cell, and save it in the format it has.",
    "The file goes to a customer, who needn't see everything. Could you {jobs}? All sheets stay in their "
    "order with their contents. Save it as xlsx.",
    "To get this workbook ready for the new year, {jobs}. Leave the other sheets, their order and all "
    "cells alone, and save it, keeping its format.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    path = f"{HOME}/Documents/{dice.choice(('areas', 'seasons', 'reports', 'visits', 'harvest'))}.xlsx"
    everything = [f"{area} {season}" for area in _AREAS for season in _SEASONS]
    names = dice.sample(everything, _SHEETS[level])
    tables = {name: draw_table(dice, _ROWS, theme="orders").grid for name in names}
    chosen = dice.sample(names, _RENAMED[level] + _HIDDEN[level])
    old, hidden = chosen[: _RENAMED[level]], chosen[_RENAMED[level] :]
    renamed = dict(zip(old, dice.sample(_NEW, len(old)), strict=True))
    other = next(name for name in names if name not in chosen)
    *first, last = renamed
    fewer = {name: renamed[name] for name in first}
    near = {
        "another sheet renamed": [*_ways({**fewer, other: renamed[last]}, hidden), *SAVE, DONE],
    }
    if level < 3:
        near["not saved"] = [*_ways(renamed, hidden), DONE]
    if hidden:
        near["another sheet hidden"] = [*_ways(renamed, [*hidden[:-1], other]), *SAVE, DONE]
    if len(hidden) > 1:
        near["one not hidden"] = [*_ways(renamed, hidden[:-1]), *SAVE, DONE]
    jobs = [f"rename the sheet {name} to {new}" for name, new in renamed.items()]
    jobs += [f"hide the sheet {name}" for name in hidden]
    after = {renamed.get(name, name): grid for name, grid in tables.items()}
    listing = {"part": "xl/workbook.xml", "attribute": "name"}
    unseen = [name for name in names if name in hidden]
    return Draft(
        _WORDINGS,
        {"jobs": listed(jobs), "path": path},
        opened(path, workbook(tables)),
        every(
            cells(path, after, others_empty=True),
            xml_parts(
                path,
                {**listing, "path": "s:sheets/s:sheet", "values": list(after)},
                {**listing, "path": "s:sheets/s:sheet[@state='hidden']", "values": unseen},
            ),
            rest_kept(path, renamed=renamed, hidden=hidden),
        ),
        Ways([*_ways(renamed, hidden), *SAVE, DONE], near),
        changes=[path],
        shown=("path",),
    )


def _ways(renamed: dict[str, str], hidden: list[str]) -> Steps:
    """Return steps in the menu, whose items are counted from below: a hidden sheet adds an item."""
    steps: Steps = []
    for name, new in renamed.items():
        steps += [go(f"$'{name}'.A1"), _item(7), [key("ctrl", "a"), typed(new), pause()]]
    for number, name in enumerate(hidden):
        steps += [go(f"$'{name}'.A1"), _item(7 if number else 6)]
    return steps


def _item(ups: int) -> list[dict[str, object]]:
    return [key("alt", "s"), pause(800), press("up", ups), pause(), key("enter"), pause(800)]


FAMILY = Family("calc.sheets", 4, _draft, APPS, "full")
