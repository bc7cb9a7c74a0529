"""widget.mix: set sliders, times, dates, long lists, boxes and texts of a page of settings, and send it once.

A terminal may read the page by curl; settings that do not come from the page in a browser are refused.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

from osgym_tasks.family import Draft, Family, Ways
from osgym_tasks.pieces import DONE
from osgym_tasks.web import APPS, Served, answers, filled, question

_ASKED = {1: 2, 2: 4, 3: 8, 4: 14, 5: 22}
_LEFT = {1: 0, 2: 1, 3: 2, 4: 3, 5: 4}
_ROOMS = (
    "Attic",
    "Bath",
    "Cellar",
    "Dining room",
    "Entrance",
    "Garage",
    "Hall",
    "Kitchen",
    "Lounge",
    "Nursery",
)
_SLIDERS = {"brightness": (0, 100, 5), "heating": (12, 28, 1), "volume": (0, 20, 1)}
_LISTS = {
    "year of the lamp": tuple(str(year) for year in range(1995, 2026)),
    "channel": tuple(f"Channel {number:02}" for number in range(1, 41)),
    "colour": ("Amber", "Blue", "Cyan", "Gold", "Lime", "Mint", "Olive", "Pink", "Rose", "Violet"),
}
_MODES = ("Off", "Eco", "Normal", "Boost")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_NOTES = ("Ask before you change this", "Guests sleep here", "Window stays shut", "Call the electrician",
          "Plants need light")  # fmt: skip
_SITES = ("House Control", "Home Panel", "Smart Rooms", "Switchboard")
_WORDINGS = (
    "The form of {site} in the browser holds settings. Set these and send it once: {entries}. Leave all "
    "others.",
    "Open the form of {site} in the browser, give it these values and send it one time: {entries}. The "
    "rest stays.",
    "Please set the following in the form of {site} and send it once; touch no other setting. {entries}.",
    "I'm leaving for a week, and the house should know. In the form that is open, please set {entries}, "
    "and send it once. Everything else stays as it is.",
    "The children have played with the settings. Could you put this right in the open form and send it a "
    "single time? {entries}. Keep whatever I don't mention.",
    "Guests are coming, so I'd like some settings changed: {entries}. The form is in the browser. Send it "
    "once, and touch nothing else in it.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    asked = _ASKED[level]
    things = [*_SLIDERS, *_LISTS, "mode", "days", "wake-up time", "note", "lamps"]
    labels = [f"{room} {thing}" for room in _ROOMS for thing in things]
    count = asked + _LEFT[level]
    picked = [f"{dice.choice(_ROOMS)} {dice.choice(list(_SLIDERS))}"]
    picked += dice.sample([label for label in labels if label not in picked], count - 1)
    questions = [_question(dice, f"f{number}", label) for number, label in enumerate(picked)]
    dice.shuffle(questions)
    slider = next(row for row in questions if row["name"] == "f0")
    chosen = [slider, *dice.sample([row for row in questions if row is not slider], asked - 1)]
    wanted = {row["name"]: dice.choice(_values(row)) for row in chosen}
    site = dice.choice(_SITES)
    tables: dict[str, Any] = {"questions": questions, "answers": [], "pages": [], "files": []}
    served = Served(dice, "forms", site, tables)
    low, high, step = map(int, slider["options"].splitlines())
    beside = [value for value in (int(wanted["f0"]) + step, int(wanted["f0"]) - step) if low <= value <= high]
    last = chosen[-1]["name"]
    near = {
        "a slider one step off": [*filled(questions, {**wanted, "f0": str(beside[0])}), DONE],
        "one forgotten": [*filled(questions, {k: v for k, v in wanted.items() if k != last}), DONE],
    }
    said = [f"{row['label']}: {_said(row, wanted[row['name']])}" for row in chosen]
    return Draft(
        _WORDINGS,
        {"site": site, "entries": "; ".join(said)},
        served.config("/form"),
        served.evaluator({"answers": answers(questions, wanted)}),
        Ways([*filled(questions, wanted), DONE], near),
        shown=("site",),
        changes=(),
    )


def _thing(row: dict[str, Any]) -> str:
    label = str(row["label"])
    return next(label.removeprefix(f"{room} ") for room in _ROOMS if label.startswith(room))


def _question(dice: random.Random, name: str, label: str) -> dict[str, Any]:
    thing = _thing({"label": label})
    if thing in _SLIDERS:
        low, high, step = _SLIDERS[thing]
        options = [str(number) for number in (low, high, step)]
        return question(name, label, "range", options, str(dice.randrange(low, high + 1, step)))
    if thing in _LISTS:
        return question(name, label, "select", _LISTS[thing], dice.choice(_LISTS[thing]))
    kinds: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
        "mode": ("radio", _MODES, _MODES),
        "days": ("checkbox", _DAYS, ("", "Sat\nSun", "Mon")),
        "wake-up time": ("time", (), ("06:30", "07:00")),
        "note": ("area", (), ("", "No note so far")),
        "lamps": ("number", (), ("1", "2")),
    }
    kind, choices, values = kinds[thing]
    return question(name, label, kind, choices, dice.choice(values))


def _values(row: dict[str, Any]) -> list[str]:
    """Return the values to which it may be set, without its current one."""
    options = row["options"].splitlines()
    match row["kind"]:
        case "range":
            low, high, step = map(int, options)
            values = [str(number) for number in range(low, high + 1, step)]
        case "checkbox":
            values = ["\n".join(part) for count in (2, 3) for part in itertools.combinations(options, count)]
        case "time":
            values = [f"{hour:02}:{minute:02}" for hour in range(24) for minute in range(0, 60, 5)]
        case "area":
            values = [f"{one}\n{two}" for one, two in itertools.permutations(_NOTES, 2)]
        case "number":
            values = [str(number) for number in range(3, 25)]
        case _:
            values = options
    return [value for value in values if value != row["value"]]


def _said(row: dict[str, Any], value: str) -> str:
    if row["kind"] == "checkbox":
        return f"exactly {', '.join(value.splitlines())}"
    if row["kind"] == "area":
        first, second = value.splitlines()
        return f'"{first}" and, on a second line, "{second}"'
    return value


FAMILY = Family("widget.mix", 3, _draft, APPS, "full")
