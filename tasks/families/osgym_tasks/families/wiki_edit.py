"""wiki.edit: change sections of a wiki's pages, among pages that have sections of the same name.

A terminal may read the wiki by curl; a text that does not come from its page in a browser is refused.
"""

from __future__ import annotations

import random
from typing import Any

from osgym_tasks.family import Draft, Family, Ways
from osgym_tasks.pieces import DONE
from osgym_tasks.services import edit_sections
from osgym_tasks.web import APPS, Served

_PAGES = {1: 2, 2: 4, 3: 7, 4: 10, 5: 14}
_SECTIONS = {1: 2, 2: 3, 3: 4, 4: 5, 5: 6}
_EDITS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}
_PLACES = ("Boat House", "Clock Tower", "Dairy", "East Gallery", "Forge", "Glass House", "Hostel", "Ice Rink",
           "Jetty", "Library", "Museum", "North Chapel", "Observatory", "Printing Works")  # fmt: skip
_HEADINGS = ("Opening hours", "Contact", "Getting there", "Prices", "History", "Events")
_PEOPLE = ("Agnes Holm", "Boris Lang", "Carla Reyes", "Denis Oduya", "Emma Stone", "Felix Marr", "Gita Rao")
_WIKIS = ("Town Wiki", "Visitor Wiki", "Guide Wiki", "Island Wiki")
_WORDINGS = (
    "In the wiki that is open in the browser, {edits}. Save each change, and leave all other sections and "
    "lines as they are.",
    "The wiki in the browser needs corrections: {edits}. Save them; nothing else may change.",
    "Please edit the open wiki. I want you to {edits}. Other lines and sections stay, and every change is "
    "saved.",
    "Visitors keep calling because the wiki is out of date. Please {edits}, and save that. All other lines "
    "and sections stay as they are.",
    "I got some corrections by phone. In the wiki that is open, could you {edits}? Save every change, and "
    "leave the rest alone.",
    "Before the season starts, the open wiki has to be right, so {edits}. Save what you change and change "
    "nothing more.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    places = dice.sample(_PLACES, _PAGES[level])
    rows = [_section(dice, place, number) for place in places for number in range(_SECTIONS[level])]
    chosen = dice.sample(range(len(rows)), _EDITS[level])
    edits = [(at, *_change(dice, rows[at], places, adds=number % 2 == 1)) for number, at in enumerate(chosen)]
    served = Served(dice, "wiki", dice.choice(_WIKIS), {"sections": rows})
    right = {at: (where, text) for at, _, where, text in edits}
    last = chosen[-1]
    twins = [at for at, row in enumerate(rows) if row["place"] == rows[last]["place"] and at not in chosen]
    near = {
        "a section of the same name": [
            *edit_sections(rows, {**_without(right, last), twins[0]: right[last]}),
            DONE,
        ],
        "not saved": [*edit_sections(rows, right)[:-1], DONE],
    }
    if len(chosen) > 1:
        near["one forgotten"] = [*edit_sections(rows, _without(right, last)), DONE]
    else:
        near["the line kept beside"] = [*edit_sections(rows, {last: (99, right[last][1])}), DONE]
    after = [{**row} for row in rows]
    for at, (where, text) in right.items():
        lines = after[at]["text"].splitlines()
        lines[where : where + 1] = [text]
        after[at]["text"] = "\n".join(lines)
    return Draft(
        _WORDINGS,
        {"edits": ", and ".join(said for _, said, _, _ in edits)},
        served.config(),
        served.evaluator({"sections": after}),
        Ways([*edit_sections(rows, right), DONE], near),
        changes=(),
    )


def _section(dice: random.Random, page: str, number: int) -> dict[str, Any]:
    return {"page": page, "place": number + 1, "heading": _HEADINGS[number],
            "text": "\n".join(_line(dice, _HEADINGS[number], part) for part in range(3))}  # fmt: skip


def _line(dice: random.Random, heading: str, part: int) -> str:
    hour, number = dice.randrange(7, 12), dice.randrange(100, 999)
    lines = {
        "Opening hours": ("Weekdays {h}:00 to {l}:30.", "Saturdays {h}:30 to {l}:00.", "{n} keys are lent."),
        "Contact": ("Ask for {p}.", "Telephone 555 0{n}.", "Letters go to box {n}."),
        "Getting there": ("Bus {n} stops outside.", "A walk of {h} minutes.", "Parking for {n} bicycles."),
        "Prices": ("Adults pay {h}.50.", "Children pay {s}.20.", "Groups of {l} pay {n}."),
        "History": ("Built by {p}.", "It burnt down in 1{n}.", "Room for {n} visitors."),
        "Events": ("Concert on {h} June.", "Talk by {p}.", "The raffle has {n} tickets."),
    }  # fmt: skip
    found = lines[heading][part]
    return found.format(h=hour, l=hour + 9, n=number, p=dice.choice(_PEOPLE), s=hour - 5)


def _change(
    dice: random.Random, row: dict[str, Any], places: list[str], *, adds: bool
) -> tuple[str, int, str]:
    """Return the description, the place of the line in the section, and its new text."""
    lines = row["text"].splitlines()
    where = f'the section "{row["heading"]}" of the page "{row["page"]}"'
    if adds:
        other = dice.choice([place for place in places if place != row["page"]])
        text = f"See also [[{other}]]."
        return f'add the line "{text}" at the end of {where}', len(lines), text
    at = dice.randrange(len(lines))
    text = next(new for _ in range(99) if (new := _line(dice, row["heading"], at)) != lines[at])
    return f'replace the line "{lines[at]}" in {where} by "{text}"', at, text


def _without(edits: dict[int, tuple[int, str]], at: int) -> dict[int, tuple[int, str]]:
    return {place: edit for place, edit in edits.items() if place != at}


FAMILY = Family("wiki.edit", 4, _draft, APPS, "full")
