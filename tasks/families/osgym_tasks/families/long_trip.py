"""long.trip: plan a journey with a wiki of hotels, a bank, a planner and a note.

A terminal may read the services by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from osgym_tasks.desk import sentence
from osgym_tasks.family import Draft, Family
from osgym_tasks.goods import TOWNS
from osgym_tasks.long import Plan
from osgym_tasks.long_parts import Bank, Row, bank, meetings_part, name_of, note_opened, note_part, wiki
from osgym_tasks.pieces import HOME
from osgym_tasks.services import add_meeting
from osgym_tasks.web import Served, browser, serving
from osgym_tasks.webapps.framework import PORT, money
from osgym_tasks.webapps.planner import DAYS, clock

_STOPS = {1: 2, 2: 3, 3: 4, 4: 5, 5: 5}
_HOTELS = {1: 2, 2: 2, 3: 3, 4: 4, 5: 7}
_KINDS = ("Anchor", "Bridge", "Crown", "Dolphin", "Eagle", "Fountain", "Globe", "Harp", "Iris", "Jasmine")
_COLLEAGUES = ("Olaf Kern", "Petra Lind", "Rolf Maas", "Sina Noll")
_NOTE = f"{HOME}/Documents/journey.txt"
_WORDINGS = (
    "Plan my journey to {towns}. {hotels} {pay} {train} Then {note}. Change nothing else.",
    "I am going to {towns} and need your help. {hotels} {pay} {train} At the end, {note}. Leave the rest.",
    "Please arrange a journey: {towns}, in this order. {hotels} {pay} {train} Finally {note}. All else "
    "stays.",
    "Next week I travel to {towns}. {hotels} {pay} {train} After that, {note}. Nothing else is to change.",
    "Would you prepare my trip to {towns}? {hotels} {pay} {train} I also want you to {note}. Do no more than "
    "that.",
    "A journey to {towns} has to be organised. {hotels} {pay} {train} When it is done, {note}. Other data "
    "stays "
    "as it is.",
)


@dataclass(frozen=True, slots=True)
class _Hotel:
    name: str
    cents: int
    breakfast: bool

    @property
    def lines(self) -> list[str]:
        """Lines of its section in the wiki."""
        served = "Breakfast is served." if self.breakfast else "There is no breakfast."
        return [f"A night costs {money(self.cents)}.", served]


@dataclass(frozen=True, slots=True)
class _Stop:
    town: str
    day: str
    start: int
    hotels: list[_Hotel]

    @property
    def chosen(self) -> _Hotel:
        """Cheapest hotel with breakfast."""
        return min((one for one in self.hotels if one.breakfast), key=lambda one: one.cents)

    @property
    def cheapest(self) -> _Hotel:
        """Cheapest hotel, which has no breakfast."""
        return min(self.hotels, key=lambda one: one.cents)

    @property
    def train(self) -> str:
        return f"The train leaves at {clock(self.start)}."

    def meeting(self, who: str) -> Row:
        return {"title": f"Train to {self.town}", "day": self.day, "start": self.start,
                "end": self.start + 60, "people": who}  # fmt: skip


def _stops(dice: random.Random, level: int) -> list[_Stop]:
    towns = dice.sample(TOWNS, _STOPS[level])
    days = sorted(dice.sample(range(len(DAYS)), len(towns)))
    stops = []
    for town, day in zip(towns, days, strict=True):
        kinds = dice.sample(_KINDS, _HOTELS[level])
        prices = sorted(dice.sample(range(4000, 20000, 50), len(kinds)))
        hotels = [_Hotel(f"{town} {kinds[0]}", prices[0], breakfast=False)]
        hotels += [
            _Hotel(f"{town} {kind}", price, breakfast=at == 0 or dice.random() < 0.5)
            for at, (kind, price) in enumerate(zip(kinds[1:], prices[1:], strict=True))
        ]
        dice.shuffle(hotels)
        stops.append(_Stop(town, DAYS[day], dice.randrange(8 * 60, 16 * 60, 30), hotels))
    return stops


def _draft(dice: random.Random, level: int) -> Draft:
    stops = _stops(dice, level)
    pages = {
        page: lines
        for stop in stops
        for page, lines in (
            (stop.town, {"Trains": [stop.train], "Hotels": [f"[[{one.name}]]" for one in stop.hotels]}),
            *((one.name, {"Rooms": one.lines}) for one in stop.hotels),
        )
    }
    guide = wiki(dice, pages, PORT, "")
    window = guide.window
    names = [one.name for stop in stops for one in stop.hotels]
    house = bank(dice, names, [], PORT + 1, window)
    who = dice.choice(_COLLEAGUES)
    people = [{"name": name} for name in _COLLEAGUES]
    week = Served(dice, "planner", "Week", {"people": people, "meetings": []}, PORT + 2)
    payments = [(stop.chosen.name, stop.chosen.cents, f"Night in {stop.town}") for stop in stops]
    dearer = [*payments[:-1], (stops[-1].cheapest.name, stops[-1].cheapest.cents, payments[-1][2])]
    trains = [stop.meeting(who) for stop in stops]
    ends = {f"{stop.day} in {stop.town}:": stop.chosen.name for stop in stops}
    note = ["My journey", *ends, "Take the blue bag"]
    paid = house.part(payments, 3)
    parts = [
        replace(paid, legs=[*guide.read(list(pages)), *paid.legs]),
        meetings_part(week, window, _COLLEAGUES, [], trains),
        note_part(_NOTE, note, ends),
    ]
    late = [*trains[:-1], {**trains[-1], "end": trains[-1]["end"] + 30}]
    wrong = {
        "a cheaper hotel without breakfast": replace(parts[0], commits=[(window, house.steps(dearer))]),
        "one train too long": replace(
            parts[1], commits=[(window, [s for row in late for s in add_meeting(_COLLEAGUES, row, week.url)])]
        ),
    }
    spoilt = guide.steps({0: (0, "The train was cancelled.")})
    plan = Plan(
        [window, name_of(_NOTE)],
        parts,
        wrong,
        {"the wiki changed": [(window, spoilt)]},
        [guide.served.check({})],
    )
    return plan.draft(
        _WORDINGS,
        _asked(stops, house, week, who),
        [
            *serving(guide.served, house.served, week),
            *browser(guide.served.url, window, house.served.url, week.url),
            *note_opened(_NOTE, note),
        ],
        (_NOTE,),
    )


def _asked(stops: Sequence[_Stop], house: Bank, week: Served, who: str) -> dict[str, str]:
    return {
        "towns": sentence(f"{stop.town} ({stop.day})" for stop in stops),
        "hotels": "The wiki in the browser has a page for each town and hotel. In every town, take the "
        "cheapest hotel that serves breakfast.",
        "pay": f"At the bank ({house.served.url}), pay a night to each of these hotels from the "
        f'{house.accounts[0]["name"]}, with the reference "Night in TOWN".',
        "train": f'In the planner ({week.url}), add "Train to TOWN" of one hour with {who} on each of '
        f"the "
        "days, beginning when the train leaves.",
        "note": f"write the name of each hotel into its line of {_NOTE}, after the colon and a space, "
        f"and "
        "save that",
    }


FAMILY = Family("long.trip", 1, _draft, ("chromium", "mousepad"), "full")
