"""calendar.slot: find the first time at which several people are free, and put a meeting there.

A terminal may read the calendar by curl; a meeting that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from typing import Any

from osgym_tasks.family import Draft, Family, Ways
from osgym_tasks.pieces import DONE
from osgym_tasks.services import add_meeting
from osgym_tasks.web import APPS, Served
from osgym_tasks.webapps.planner import DAYS

_PEOPLE = {1: 3, 2: 4, 3: 5, 4: 7, 5: 9}
_INVITED = {1: 2, 2: 2, 3: 3, 4: 3, 5: 4}
_LOOKED = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
_NAMES = ("Ana", "Ben", "Cora", "Dev", "Eva", "Finn", "Gus", "Hana", "Ivan", "Jule", "Kofi", "Lena", "Milo")
_TITLES = (
    "Budget review",
    "Site visit",
    "Hiring talk",
    "Design round",
    "Safety briefing",
    "Planning",
    "Retrospect",
)
_OLD = ("Call", "Lunch", "Training", "Interview", "Stand-up", "Review", "Workshop", "Visit")
_SITES = ("Team Calendar", "Week Planner", "Shared Calendar", "Office Calendar")
_FIRST, _LAST = 9 * 60, 17 * 60
_WORDINGS = (
    'In the calendar that is open in the browser, add one meeting "{title}" of {length} {when} with '
    "{people}, at the earliest time at which they are all free. Meetings lie between 09:00 and 17:00. "
    "Invite no one else.",
    'Add one meeting, "{title}", {when} to the open calendar, for {people} and nobody else. It takes '
    "{length}, at the first time between 09:00 and 17:00 at which none of them has another meeting.",
    "Please find the earliest {length}, within 09:00 to 17:00, in which {people} are all free {when}, and "
    'add one meeting called "{title}" there in the calendar in the browser, with just them.',
    "Exactly {people} should meet for {length} as soon as they all have time {when}, between 09:00 and "
    '17:00. Put one meeting "{title}" into the open calendar.',
    'Use the calendar that you see to plan "{title}" {when}: one meeting of {length}, with exactly '
    "{people}, at the first time from 09:00 on and until 17:00 that does not clash with anything that one "
    "of them has.",
    'Would you put "{title}" into the calendar in the browser? It is one meeting of {length} {when}, only '
    "for {people}, as early as they are all free, from 09:00 on and over by 17:00.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    names = sorted(dice.sample(_NAMES, _PEOPLE[level]))
    invited = sorted(dice.sample(names, _INVITED[level]))
    length = dice.choice((30, 60)) if level <= 2 else dice.choice((60, 90, 120))
    first = 0 if level >= 5 else dice.randrange(len(DAYS) - _LOOKED[level] + 1)
    looked = DAYS[first : first + _LOOKED[level]]
    meetings = _meetings(dice, level, names, invited, looked, length)
    right = _first(meetings, invited, looked, length)
    assert right is not None
    title = dice.choice(_TITLES)
    served = Served(
        dice, "planner", dice.choice(_SITES), {"people": [{"name": n} for n in names], "meetings": meetings}
    )
    day, start = right
    made: dict[str, Any] = {
        "title": title,
        "day": day,
        "start": start,
        "end": start + length,
        "people": "\n".join(invited),
    }
    later = {**made, "start": start + 30, "end": start + 30 + length}
    short = {**made, "end": made["end"] + (-30 if length > 30 else 30)}
    near = {
        "half an hour later": [*add_meeting(names, later), DONE],
        "too short": [*add_meeting(names, short), DONE],
    }
    if level >= 2:
        near["one not asked"] = [*add_meeting(names, {**made, "people": "\n".join(invited[:-1])}), DONE]
        del near["too short"]
    on = f"on {looked[0]}" if len(looked) == 1 else f"between {looked[0]} and {looked[-1]}"
    return Draft(
        _WORDINGS,
        {
            "title": title,
            "when": on,
            "length": f"{length} minutes",
            "people": f"{', '.join(invited[:-1])} and {invited[-1]}",
        },
        served.config(),
        served.evaluator({"meetings": [*meetings, made]}),
        Ways([*add_meeting(names, made), DONE], near),
    )


def _meetings(
    dice: random.Random,
    level: int,
    names: list[str],
    invited: list[str],
    looked: tuple[str, ...],
    length: int,
) -> list[dict[str, Any]]:
    """Draw the existing meetings: the invited are busy in turns until some time of the last day."""
    rows: list[dict[str, Any]] = []

    def add(day: str, start: int, end: int, people: list[str]) -> None:
        rows.append(
            {
                "title": dice.choice(_OLD),
                "day": day,
                "start": start,
                "end": end,
                "people": "\n".join(sorted(people)),
            }
        )

    for day in looked:
        free = dice.randrange(_FIRST + 120, _LAST - length - 89, 30) if day == looked[-1] else _LAST
        at = _FIRST
        while at < free:
            step = min(dice.choice((30, 60, 90)), free - at)
            if dice.randrange(4) == 0 and step < length and at + step < free:
                at += step  # a gap that is too short
                step = min(30, free - at)
            add(day, at, at + step, dice.sample(invited, dice.randrange(1, len(invited) + 1)))
            at += step
        if free + length + 30 < _LAST:
            add(day, free + length + 30, free + length + 60, [dice.choice(invited)])
    others = [name for name in names if name not in invited]
    for day in DAYS[: 1 + level]:
        for _ in range(level):
            start = dice.randrange(_FIRST, _LAST - 60, 30)
            add(
                day,
                start,
                start + dice.choice((30, 60)),
                dice.sample(others, min(len(others), 1 + level // 3)),
            )
    return rows


def _first(
    meetings: list[dict[str, Any]], invited: list[str], looked: tuple[str, ...], length: int
) -> tuple[str, int] | None:
    for day in looked:
        for start in range(_FIRST, _LAST - length + 1, 30):
            busy = any(row["day"] == day and row["start"] < start + length and start < row["end"]
                       and set(row["people"].splitlines()) & set(invited) for row in meetings)  # fmt: skip
            if not busy:
                return day, start
    return None


FAMILY = Family("calendar.slot", 1, _draft, APPS, "full")
