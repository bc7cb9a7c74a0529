"""calendar.slot: find the first times at which several people are free, and put meetings there.

A terminal may read the calendar by curl; a meeting that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from osgym_tasks.desk import sentence
from osgym_tasks.family import Draft, Family, Ways
from osgym_tasks.pieces import DONE
from osgym_tasks.services import add_meeting
from osgym_tasks.web import APPS, Served
from osgym_tasks.webapps.planner import DAYS

_PEOPLE = {1: 3, 2: 4, 3: 5, 4: 7, 5: 9}
_INVITED = {1: 2, 2: 2, 3: 3, 4: 3, 5: 4}
_COUNT = {1: 1, 2: 1, 3: 1, 4: 2, 5: 3}
_LOOKED = {1: 1, 2: 2, 3: 3, 4: 3, 5: 5}
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
WORDINGS = (
    "In the calendar that is open in the browser, add {when}: {meetings}. Each meeting is to be at the "
    "earliest time at which all its people are free, and lies between 09:00 and 17:00. Enter them in this "
    "order, and invite no one else.",
    "Add to the open calendar, {when}, in this order: {meetings}. Each takes place at the first time "
    "between 09:00 and 17:00 at which none of its people has another meeting. Nobody else is invited.",
    "Use the calendar that you see to plan {when}: {meetings}. Take the earliest time from 09:00 on and "
    "until 17:00 that clashes with nothing that one of the people has, one after the other in the order "
    "given. Only these people take part.",
    "We have to meet as soon as everybody has time. Please look into the open calendar and enter {when}: "
    "{meetings}. That means the first slot, within 09:00 to 17:00, in which all of them are free, and in "
    "the order that I say if there are several. No other guests.",
    "Could you find a slot for us? It is about {meetings}, {when}. I want the earliest one where nobody of "
    "those named is busy, from 09:00 on and over by 17:00; put them into the calendar in the browser in "
    "this order, with just these people.",
    "My assistant is ill, so would you do the planning {when}? In the calendar in the browser I need "
    "{meetings}. Go from first to last, each as early as all its people are free, not before 09:00 and not "
    "past 17:00, and without anyone else.",
)
TRANSLATIONS = {
    "de": (
        "Wir müssen uns so bald wie möglich treffen. Trage bitte {when} in den offenen Kalender ein: "
        "{meetings}. Nimm jeweils die früheste Zeit zwischen 09:00 und 17:00, zu der alle Genannten frei "
        "sind, bei mehreren in dieser Reihenfolge. Lade sonst niemanden ein.",
    ),
    "es": (
        "Tenemos que reunirnos cuanto antes. Añade {when} al calendario abierto: {meetings}. Elige cada "
        "vez la primera hora entre las 09:00 y las 17:00 en que todas esas personas estén libres, en este "
        "orden si son varias reuniones. No invites a nadie más.",
    ),
    "zh": (
        "我们要尽快开会。请{when}在打开的日历中添加：{meetings}。每次选择 09:00 到 17:00 之间所有参加者都有"
        "空的最早时间；如果有多个会议，按这里的顺序添加。不要邀请其他人。",
    ),
}
_MEETING = {
    "en": '"{}" of {} minutes with {}',
    "de": '"{}", {} Minuten, mit {}',
    "es": '"{}", {} minutos, con {}',
    "zh": '"{}"，{} 分钟，参加者为{}',
}
_WHEN = {
    "en": ("on {}", "between {} and {}", DAYS),
    "de": (
        "am {}",
        "zwischen {} und {}",
        ("Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag"),
    ),
    "es": ("el {}", "entre el {} y el {}", ("lunes", "martes", "miércoles", "jueves", "viernes")),
    "zh": ("在{}", "在{}到{}之间", ("星期一", "星期二", "星期三", "星期四", "星期五")),
}
"""Words for one day and for several, and names of days, by language."""


@dataclass(frozen=True, slots=True)
class Request:
    """A meeting that is asked for, without its time."""

    title: str
    length_min: int
    people: tuple[str, ...]

    def said(self, language: str) -> str:
        return _MEETING[language].format(self.title, self.length_min, sentence(self.people, language))

    def first(self, meetings: list[dict[str, Any]], looked: tuple[str, ...]) -> tuple[str, int] | None:
        """Return the first day and minute at which all people are free; None: they never are."""
        people = set(self.people)
        for day in looked:
            for start in range(_FIRST, _LAST - self.length_min + 1, 30):
                busy = any(row["day"] == day and row["start"] < start + self.length_min
                           and start < row["end"] and set(row["people"].splitlines()) & people
                           for row in meetings)  # fmt: skip
                if not busy:
                    return day, start
        return None

    def meeting(self, day: str, start: int) -> dict[str, Any]:
        """Return the row that the calendar keeps."""
        end, people = start + self.length_min, "\n".join(self.people)
        return {"title": self.title, "day": day, "start": start, "end": end, "people": people}


@dataclass(frozen=True, slots=True)
class Week:
    """A calendar, and what is asked for.

    Attributes:
        looked: Days on which the meetings may be.
        meetings: Rows that exist.
        made: Rows that are asked for.
    """

    names: list[str]
    looked: tuple[str, ...]
    requests: list[Request]
    meetings: list[dict[str, Any]]
    made: list[dict[str, Any]]

    def named(self, language: str = "en") -> dict[str, str]:
        """Return the values that the wordings name."""
        said = "; ".join(one.said(language) for one in self.requests)
        return {"meetings": said, "when": _when(language, self.looked)}


def drawn(dice: random.Random, level: int) -> Week:
    """Draw a calendar and meetings that are asked for."""
    names = sorted(dice.sample(_NAMES, _PEOPLE[level]))
    first = 0 if level >= 5 else dice.randrange(len(DAYS) - _LOOKED[level] + 1)
    looked = DAYS[first : first + _LOOKED[level]]
    requests, meetings = _requests(dice, level, names, looked)
    made: list[dict[str, Any]] = []
    for one in requests:
        place = one.first([*meetings, *made], looked)
        assert place is not None
        made.append(one.meeting(*place))
    return Week(names, looked, requests, meetings, made)


def served_week(dice: random.Random, names: list[str], meetings: list[dict[str, Any]]) -> Served:
    """Return a calendar of these people with these meetings."""
    tables = {"people": [{"name": n} for n in names], "meetings": meetings}
    return Served(dice, "planner", dice.choice(_SITES), tables)


def _draft(dice: random.Random, level: int) -> Draft:
    week = drawn(dice, level)
    names, requests, meetings, made = week.names, week.requests, week.meetings, week.made
    served = served_week(dice, names, meetings)
    begin = [step for one in made[:-1] for step in add_meeting(names, one)]
    last, start, end = made[-1], made[-1]["start"], made[-1]["end"]
    length = end - start
    near = {
        "half an hour later": [
            *begin,
            *add_meeting(names, {**last, "start": start + 30, "end": end + 30}),
            DONE,
        ]
    }
    if level == 1:
        other = end - 30 if length > 30 else end + 30
        near["too short" if length > 30 else "too long"] = [*add_meeting(names, {**last, "end": other}), DONE]
    else:
        fewer = "\n".join(requests[-1].people[:-1])
        near["one not asked"] = [*begin, *add_meeting(names, {**last, "people": fewer}), DONE]
    if begin:
        near["one forgotten"] = [*begin, DONE]
    return Draft(
        WORDINGS,
        week.named(),
        served.config(),
        served.evaluator({"meetings": [*meetings, *made]}),
        Ways([*begin, *add_meeting(names, last), DONE], near),
        translations=TRANSLATIONS,
        translated={language: week.named(language) for language in TRANSLATIONS},
        changes=(),
    )


def _when(language: str, looked: tuple[str, ...]) -> str:
    one, several, days = _WHEN[language]
    named = [days[DAYS.index(day)] for day in looked]
    return one.format(*named) if len(named) == 1 else several.format(named[0], named[-1])


def _requests(
    dice: random.Random, level: int, names: list[str], looked: tuple[str, ...]
) -> tuple[list[Request], list[dict[str, Any]]]:
    """Draw what is asked for, and existing meetings that leave time for it."""
    while True:
        requests = [
            Request(
                title,
                dice.choice((30, 60)) if level <= 2 else dice.choice((60, 90, 120)),
                tuple(sorted(dice.sample(names, _INVITED[level]))),
            )
            for title in dice.sample(_TITLES, _COUNT[level])
        ]
        meetings = []
        for at, one in enumerate(requests):  # fewer busy days for later ones, or no time is left
            days = looked[: max(1, len(looked) - 2 * at)]
            meetings += _meetings(dice, level, names, [*one.people], days, one.length_min)
        made: list[dict[str, Any]] = []
        for one in requests:
            place = one.first([*meetings, *made], looked)
            if place is None:
                break
            made.append(one.meeting(*place))
        else:
            return requests, meetings


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


FAMILY = Family("calendar.slot", 2, _draft, APPS, "full")
