"""long.rota: find the only rota that suits everybody's mails, fill a workbook, enter the duties in a planner.

A terminal may read the services by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from osgym_tasks import calc
from osgym_tasks.desk import sentence
from osgym_tasks.family import Draft, Family
from osgym_tasks.long import Plan
from osgym_tasks.long_parts import (
    Row,
    cells_part,
    given_kept,
    mailbox,
    meetings_part,
    name_of,
    other_cell,
)
from osgym_tasks.pieces import HOME
from osgym_tasks.services import add_meeting
from osgym_tasks.web import Served, browser, serving
from osgym_tasks.webapps.framework import PORT
from osgym_tasks.webapps.planner import DAYS, clock

_DUTIES = {1: 3, 2: 4, 3: 6, 4: 9, 5: 13}
_FIRST = ("Amira", "Bruno", "Celia", "Dario", "Edith", "Farid", "Greta", "Hugo", "Iris", "Joana", "Kamil",
          "Lotte", "Mirko")  # fmt: skip
_LAST = ("Abel", "Brandt", "Castell", "Dumont", "Egger", "Fabre", "Grau", "Hofer", "Ivers", "Jansen", "Kolb",
         "Lenz", "Maurer")  # fmt: skip
_KINDS = ("Front desk", "Kitchen duty", "Key service", "Library desk", "Night watch", "Tea room")
_BOOK = f"{HOME}/Documents/rota.xlsx"
_ANSWER = "The rota is complete."
_WORDINGS = (
    "Please make our rota. {book} has a row for each duty. {mails} {rule} {fill} Save the "
    "workbook as xlsx. {planner} Then {answer}. Change nothing else.",
    "So far nobody does the duties of {book}. {mails} {rule} {fill} Save it in the same format. "
    "{planner} At the end, {answer}. All else stays as it is.",
    "Could you work out who does which duty of {book}? {mails} {rule} {fill} Keep xlsx when you save. "
    "{planner} When that is done, {answer}. Leave other things alone.",
    "Somebody has to fill the rota {book}, and I hope that you will. {mails} {rule} {fill} Save the xlsx "
    "file. {planner} Finally {answer}. Nothing else is to change.",
    "I need a complete rota by noon; the duties are in {book}. {mails} {rule} {fill} The workbook is saved "
    "as xlsx. {planner} After that, {answer}. Please touch nothing else.",
    "The open workbook {book} lists duties without names. {mails} {rule} {fill} Save that as xlsx. "
    "{planner} In the end, {answer}. Other content remains.",
)


@dataclass(frozen=True, slots=True)
class Duty:
    """A duty of the week: minutes after midnight at which it begins, and who does it."""

    day: str
    start: int
    who: str

    @property
    def when(self) -> str:
        """Day and time, as mails have them."""
        return f"{self.day} at {clock(self.start)}"

    def meeting(self, kind: str) -> Row:
        """Return its row of the planner; a duty takes an hour."""
        return {"title": kind, "day": self.day, "start": self.start, "end": self.start + 60,
                "people": self.who}  # fmt: skip


def draw_duties(dice: random.Random, count: int) -> tuple[list[Duty], dict[str, list[Duty]]]:
    """Draw duties in the order of the week, and for each person those that suit.

    Of the persons in the order of the second value, each can do one more duty and some of those before it:
    so exactly one rota gives everybody one duty.
    """
    names = [
        f"{first} {last}"
        for first, last in zip(dice.sample(_FIRST, count), dice.sample(_LAST, count), strict=True)
    ]
    slots = dice.sample(
        [(day, start) for day in range(len(DAYS)) for start in range(8 * 60, 17 * 60, 60)], count
    )
    drawn = [Duty(DAYS[day], start, who) for (day, start), who in zip(slots, names, strict=True)]
    suits = {}
    for at, duty in enumerate(drawn):
        chosen = [duty, *dice.sample(drawn[:at], min(at, dice.randrange(1, 4)))]
        suits[duty.who] = dice.sample(chosen, len(chosen))
    week = sorted(drawn, key=lambda one: (DAYS.index(one.day), one.start))
    return week, suits


def _draft(dice: random.Random, level: int) -> Draft:
    week, suits = draw_duties(dice, _DUTIES[level])
    kind = dice.choice(_KINDS)
    names = sorted(suits)
    people = [{"name": name} for name in names]
    texts = [f"{name} can come on {sentence(one.when for one in suits[name])}." for name in names]
    asked = [f"Please write to me when the rota for the {kind.lower()} is complete.", *texts]
    subjects = [f"Rota: {kind}", *(f"Wishes of {name}" for name in names)]
    post = mailbox(dice, asked, 1 + level, PORT, "", subjects)
    planner = Served(dice, "planner", "Week of the House", {"people": people, "meetings": []}, PORT + 1)
    table: calc.Grid = [["Day", "From", "Duty", "Who"]]
    table += [[one.day, clock(one.start), kind] for one in week]
    cells = {f"D{row}": one.who for row, one in enumerate(week, 2)}
    added = [one.meeting(kind) for one in week]
    filled = cells_part(_BOOK, "Rota", cells)
    parts = [
        replace(filled, legs=[*post.read(len(names) + 1), *filled.legs]),
        meetings_part(planner, post.window, names, [], added),
        post.part(_ANSWER, weight=1),
    ]
    swapped = {**cells, "D2": cells["D3"], "D3": cells["D2"]}
    later = [*added[:-1], {**added[-1], "end": added[-1]["end"] + 30}]
    wrong = {
        "two people exchanged": replace(parts[0], legs=cells_part(_BOOK, "Rota", swapped).legs),
        "one duty half an hour longer": replace(
            parts[1],
            commits=[(post.window, [step for row in later for step in add_meeting(names, row, planner.url)])],
        ),
    }
    plan = Plan(
        [post.window, name_of(_BOOK)],
        parts,
        wrong,
        {"another day in the workbook": other_cell(_BOOK, "A2", "Sunday")},
        given_kept(_BOOK, "Rota", table, f"D2:D{len(table)}"),
    )
    return plan.draft(
        _WORDINGS,
        {
            "book": _BOOK,
            "mails": f'The mails "Wishes of …" in the browser say when each of {sentence(names)} can come.',
            "rule": "Everybody does exactly one duty, at a time that suits; only one rota is possible.",
            "fill": "Write the name of the person into the column Who of each duty.",
            "planner": f'In the planner at {planner.url}, add a meeting "{kind}" of one hour for each duty '
            "at its time, with that person alone.",
            "answer": f'answer {post.which} with exactly "{_ANSWER}"',
        },
        [
            *serving(post.served, planner),
            *browser(post.served.url, post.window, planner.url),
            *calc.opened(_BOOK, calc.workbook({"Rota": table})),
        ],
        (_BOOK,),
    )


FAMILY = Family("long.rota", 1, _draft, ("chromium", "libreoffice_calc"), "full")
