"""x.result_into_note: compute expressions with the calculator and put the results into lines of a note."""

from __future__ import annotations

import random
from typing import Any

from osgym_tasks.desk import without_last_end
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.galc import (
    calculator,
    expression,
    number_text,
    press,
    press_in_order,
    shown,
    value,
)
from osgym_tasks.pieces import DONE, HOME, every, key, launch, place, text_check, upload
from osgym_tasks.targets import click

_LINES = {1: 3, 2: 5, 3: 8, 4: 12, 5: 16}
_RESULTS = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3}
_OPERATORS = {1: 2, 2: 3, 3: 3, 4: 4, 5: 4}
_THINGS = (
    "Paint", "Timber", "Glass", "Bricks", "Cement", "Sand", "Tiles", "Nails", "Cable", "Pipes", "Doors",
    "Lamps", "Carpet", "Plaster", "Gravel", "Hinges", "Screws", "Gutters", "Insulation", "Varnish",
)  # fmt: skip
_FILES = ("quote.txt", "order.txt", "material.txt", "estimate.txt", "shopping.txt")
_WORDINGS = (
    "Work out {sums}. Write each result into {path}, which is open in the editor, at the end of its line "
    "after the colon and a space, and save. All else stays.",
    "{path} is open in the text editor, and the calculator beside it. Work out {sums}; each result goes at "
    "the end of its line, after the colon and one space. Save the file and change nothing else.",
    "Please fill in {path} (open in the editor): {sums}. A result follows the colon and a space of its "
    "line. Save it, with the other lines as they are.",
    "I'm planning a renovation, and my note in the editor lacks figures. Please work out {sums}, and write "
    "each result behind the colon of its line, after a space. Save it; all else stays.",
    "The shop closes soon, and I still don't know what to buy. Could you fill in the open list for me? I "
    "need {sums}. A result goes to the end of its line, after the colon and one space. Save the file and "
    "change nothing else.",
    "My brother asked how I got to these amounts. The note that you see should have them: {sums}. Add each "
    "result to its line, after colon and space, save it, and leave the other lines.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    things = dice.sample(_THINGS, _LINES[level])
    places = sorted(dice.sample(range(len(things)), _RESULTS[level]))
    sums = [expression(dice, _OPERATORS[level], brackets=int(level > 1), decimals=level > 3) for _ in places]
    figures = [None if at in places else str(dice.randrange(20, 4000)) for at in range(len(things))]
    path = f"{HOME}/Documents/{dice.choice(_FILES)}"
    results = dict(zip(places, (number_text(value(one)) for one in sums), strict=True))
    before, after = _text(things, figures, {}), _text(things, figures, results)
    said = [f'{shown(one)} for the line "{things[at]}:"' for at, one in zip(places, sums, strict=True)]
    right = [(at, press(f"{shown(one)}=")) for at, one in zip(places, sums, strict=True)]
    other = next(at for at in range(len(things)) if at not in places)
    save = [key("ctrl", "s")]
    near = {
        "not saved": [*_fill(right), DONE],
        "another line": [*_fill([*right[:-1], (other, right[-1][1])]), save, DONE],
        "from left to right": [*_fill([*right[:-1], (places[-1], press_in_order(sums[-1]))]), save, DONE],
    }
    if len(right) > 1:
        near["one forgotten"] = [*_fill(right[:-1]), save, DONE]
    return Draft(
        _WORDINGS,
        {"path": path, "sums": " and ".join(said)},
        [
            upload({path: before}),
            *launch(path.rpartition("/")[2], "mousepad", path),
            *place("mousepad.Mousepad", 950, 300, 700, 500),
            *calculator(),
        ],
        every(text_check(path, after)),
        Ways(
            [*_fill(right), save, DONE],
            near,
            right={"no last line end": [*_fill(right), without_last_end(), save, DONE]},
        ),
        changes=(path,),
        shown=("path",),
    )


def _text(things: list[str], figures: list[str | None], results: dict[int, str]) -> str:
    lines = [
        f"{thing}: {results[at]}"
        if at in results
        else f"{thing}:"
        if figure is None
        else f"{thing}: {figure}"
        for at, (thing, figure) in enumerate(zip(things, figures, strict=True))
    ]
    return "".join(f"{line}\n" for line in lines)


def _fill(results: list[tuple[int, list[dict[str, Any]]]]) -> Steps:
    """Return steps from the calculator to the editor, for each result."""
    steps: Steps = []
    for at, pressed in results:
        steps += [
            [click("toggle-button", "AC"), *pressed],
            [key("ctrl", "c")],
            [click("menu", "Document")],  # only the editor has it: this makes its window the active one
            [key("escape")],
            [key("ctrl", "home"), *([key("down")] * at), key("end"), {"op": "type", "text": " "}],
            [key("ctrl", "v")],
        ]
    return steps


FAMILY = Family("x.result_into_note", 4, _draft, ("galculator", "mousepad"))
