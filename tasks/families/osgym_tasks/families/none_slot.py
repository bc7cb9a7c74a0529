"""none.slot: as calendar.slot, but for one meeting there is no time, so only failing is right.

A time is there at which all but one of its people are free, which must not be taken.
"""

from __future__ import annotations

import random

from osgym_tasks.families.calendar_slot import TRANSLATIONS, WORDINGS, drawn, served_week
from osgym_tasks.family import Draft, Family, Ways
from osgym_tasks.pieces import DONE, FAIL, infeasible
from osgym_tasks.services import add_meeting
from osgym_tasks.web import APPS, visit


def _draft(dice: random.Random, level: int) -> Draft:
    week = drawn(dice, level)
    meetings, last = [*week.meetings], week.requests[-1]
    busy = dice.choice(last.people)
    while place := last.first(meetings, week.looked):
        title = dice.choice(week.meetings)["title"]
        meetings.append({**last.meeting(*place), "title": title, "people": busy})
    served = served_week(dice, week.names, meetings)
    *others, clash = week.made
    begin = [step for one in others for step in add_meeting(week.names, one)]
    similar = [*begin, *add_meeting(week.names, clash)]
    without = "\n".join(name for name in last.people if name != busy)
    looks = [step for _ in week.requests for day in week.looked for step in visit(f"/days/{day}", day)]
    near = {
        "while one is busy": [*similar, DONE],
        "while one is busy, then given up": [*similar, FAIL],
        "without one": [*begin, *add_meeting(week.names, {**clash, "people": without}), DONE],
    }
    if others:
        near["the others only"] = [*begin, DONE]
    return Draft(
        WORDINGS,
        week.named(),
        served.config(),
        infeasible(served.check({})),
        Ways([*looks, FAIL], near),
        changes=(),
        translations=TRANSLATIONS,
        translated={language: week.named(language) for language in TRANSLATIONS},
    )


FAMILY = Family("none.slot", 1, _draft, APPS, "full")
