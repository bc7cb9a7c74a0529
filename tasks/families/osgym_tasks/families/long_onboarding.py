"""long.onboarding: prepare the first week of new colleagues by mail, tickets, a planner and two texts.

A terminal may read the services by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from osgym_tasks import writer
from osgym_tasks.desk import quoted_list
from osgym_tasks.family import Draft, Family
from osgym_tasks.long import Plan
from osgym_tasks.long_parts import (
    Row,
    document_opened,
    document_part,
    mailbox,
    meetings_part,
    name_of,
    note_opened,
    note_part,
    tracker,
)
from osgym_tasks.pieces import HOME
from osgym_tasks.services import add_meeting
from osgym_tasks.web import Served, browser, serving
from osgym_tasks.webapps.framework import PORT
from osgym_tasks.webapps.planner import DAYS, clock
from osgym_tasks.webapps.tickets import TEAMS

_NEW = {1: 2, 2: 3, 3: 4, 4: 6, 5: 9}
_FIRST = ("Amira", "Bruno", "Celia", "Dario", "Edith", "Farid", "Greta", "Hugo", "Iris", "Joana")
_LAST = ("Abel", "Brandt", "Castell", "Dumont", "Egger", "Fabre", "Grau", "Hofer", "Ivers", "Jansen")
_HOSTS = ("Olaf Kern", "Petra Lind", "Rolf Maas", "Sina Noll", "Tomas Ott")
_DESKS = ("Corner", "Gallery", "Garden", "River", "Tower", "Window")
_NOTE = f"{HOME}/Documents/teams.txt"
_ANSWER = "All is ready."
_WORDINGS = (
    "New colleagues begin next week. The mails {subjects} in the browser say in which team, when and where. "
    "{tickets} {meetings} Then complete {document} and {note}. Finally {answer}. Leave all else as it is.",
    "Please prepare for our new colleagues: read the mails {subjects} in the browser, one about each of "
    "them. "
    "{tickets} {meetings} Fill in {document}, and also {note}. When all is done, {answer}. Change nothing "
    "else.",
    "In the web mail that is open, the messages {subjects} announce new colleagues. {tickets} {meetings} "
    "Next, fill in {document}. Do the same with {note}. At last, {answer}. Other things stay.",
    "We get new people, and what you need to know of each is in the mails {subjects} in the browser. "
    "{tickets} "
    "{meetings} Write what is missing into {document} and into {note}. Then {answer}. Nothing else may "
    "change.",
    "Would you get everything ready for the people whom the mails {subjects} in the browser announce? "
    "{tickets} {meetings} I also need the figures and teams in {document} and in {note}. In the end, "
    "{answer}. "
    "Please touch nothing else.",
    "Somebody has to welcome the new colleagues of the mails {subjects}, which are in the open web mail. "
    "{tickets} {meetings} After that, complete {document} and {note}, and {answer}. All other data stays "
    "unchanged.",
)


@dataclass(frozen=True, slots=True)
class _Colleague:
    name: str
    team: str
    day: str
    start: int
    desk: str

    @property
    def told(self) -> str:
        """Text of the mail."""
        return (
            f"{self.name} joins the team {self.team} on {self.day} at {clock(self.start)}, at the desk "
            f"{self.desk}."
        )

    def meeting(self, host: str, later: int = 0) -> Row:
        start = self.start + later
        return {"title": f"Welcome {self.name}", "day": self.day, "start": start, "end": start + 30,
                "people": host}  # fmt: skip


def _colleagues(dice: random.Random, level: int) -> list[_Colleague]:
    count = _NEW[level]
    desks = dice.sample([f"{where} {number}" for where in _DESKS for number in range(1, 30)], count)
    return [
        _Colleague(
            f"{first} {last}",
            dice.choice(TEAMS[1:]),
            dice.choice(DAYS[1:4]),
            dice.randrange(8 * 60, 16 * 60, 30),
            desk,
        )
        for first, last, desk in zip(
            dice.sample(_FIRST, count), dice.sample(_LAST, count), desks, strict=True
        )
    ]


def _tickets(dice: random.Random, new: list[_Colleague], level: int) -> list[Row]:
    names = [one.name for one in new]
    names += [f"{last} {first}" for first, last in zip(_FIRST[: 1 + level], _LAST, strict=False)]
    dice.shuffle(names)
    return [
        {"title": f"Account for {name}", "area": "Logins", "text": "It is needed soon."} for name in names
    ]


def _draft(dice: random.Random, level: int) -> Draft:
    new = _colleagues(dice, level)
    post = mailbox(dice, [one.told for one in new], 2 + level, PORT, "", [f"New: {one.name}" for one in new])
    window = post.window
    desk = tracker(dice, _tickets(dice, new, level), PORT + 1, window)
    at = {row["title"]: place for place, row in enumerate(desk.rows)}
    work: dict[int, tuple[Row, str]] = {
        at[f"Account for {one.name}"]: ({"team": one.team}, f"Starts on {one.day}.") for one in new
    }
    people = [{"name": name} for name in _HOSTS]
    week = Served(dice, "planner", "Week of the Team", {"people": people, "meetings": []}, PORT + 2)
    host = dice.choice(_HOSTS)
    added = [one.meeting(host) for one in new]
    path = writer.path_of(dice)
    ends = {f"Desk of {one.name}:": one.desk for one in new}
    said = writer.sentences(dice, 2 + level)
    document = [*said[:2], *ends, *said[2:]]
    teams = {f"{one.name}:": one.team for one in new}
    note = [*(f"{name}: {dice.choice(TEAMS[1:])}" for name in _HOSTS), *teams]
    parts = [
        desk.part(work, 3, before=post.read(len(new))),
        meetings_part(week, window, _HOSTS, [], added),
        document_part(path, document, ends),
        note_part(_NOTE, note, teams),
        post.part(_ANSWER),
    ]
    late = [*added[:-1], new[-1].meeting(host, 30)]
    wrong = {
        "one meeting half an hour late": replace(
            parts[1], commits=[(window, [s for row in late for s in add_meeting(_HOSTS, row, week.url)])]
        ),
        "one ticket forgotten": replace(
            parts[0], commits=[(window, desk.steps(dict(list(work.items())[:-1])))]
        ),
    }
    plan = Plan([window, name_of(path), name_of(_NOTE)], parts, wrong, {}, [writer.rest_kept(path)])
    return plan.draft(
        _WORDINGS,
        {
            "subjects": quoted_list(f"New: {one.name}" for one in new),
            "tickets": f'In the tracker at {desk.served.url}, assign the ticket "Account for …" of each to '
            f"the "
            'team and add the note "Starts on DAY." with the day.',
            "meetings": f'In the planner at {week.url}, add a meeting "Welcome NAME" of half an hour for '
            f"each "
            f"at that time, with {host}.",
            "document": f'the lines "Desk of …:" of {path} (a space, then the desk; save it as docx)',
            "note": f"the lines of {_NOTE} that lack a team (a space after the colon, then the team; save "
            f"it)",
            "answer": f'reply to {post.which} with exactly "{_ANSWER}"',
        },
        [
            *serving(post.served, desk.served, week),
            *browser(post.served.url, window, desk.served.url, week.url),
            *document_opened(path, document),
            *note_opened(_NOTE, note),
        ],
        (path, _NOTE),
    )


FAMILY = Family("long.onboarding", 2, _draft, ("chromium", "libreoffice_writer", "mousepad"), "full")
