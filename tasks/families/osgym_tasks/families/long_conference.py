"""long.conference: put talks that mails announce into a planner, a presentation and a note.

A terminal may read the services by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from osgym_tasks import impress
from osgym_tasks.desk import quoted_list
from osgym_tasks.family import Draft, Family
from osgym_tasks.long import Plan
from osgym_tasks.long_parts import Row, mailbox, meetings_part, name_of, note_opened, note_part
from osgym_tasks.long_slides import slides_part
from osgym_tasks.pieces import HOME
from osgym_tasks.services import add_meeting
from osgym_tasks.web import Served, browser, serving
from osgym_tasks.webapps.framework import PORT
from osgym_tasks.webapps.planner import DAYS, clock

_TALKS = {1: 2, 2: 3, 3: 4, 4: 6, 5: 8}
_MOVED = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3}
_TITLES = ("Bees on roofs", "Old bridges", "Quiet streets", "Rain and drains", "School meals", "Solar barns",
           "Street trees", "Tidal mills", "Urban foxes", "Village radio", "Warm houses",
           "Winter buses")  # fmt: skip
_CHAIRS = ("Olaf Kern", "Petra Lind", "Rolf Maas", "Sina Noll")
_HALLS = ("East Hall", "Glass Room", "Long Gallery", "North Hall", "Studio")
_SLIDES = f"{HOME}/Documents/programme.odp"
_NOTE = f"{HOME}/Documents/minutes.txt"
_WORDINGS = (
    "Our conference needs its programme. {talks} {planner} {slides} {note} Change nothing else.",
    "Would you put the programme of our conference together? {talks} {planner} {slides} {note} Everything "
    "else stays as it is.",
    "The speakers have written, so we can plan the conference. {talks} {planner} {slides} {note} Please "
    "leave "
    "all else alone.",
    "I promised the programme for today, and it is not finished. {talks} {planner} {slides} {note} Nothing "
    "else is to change.",
    "Please prepare the conference. {talks} {planner} {slides} {note} Do not touch other entries or texts.",
    "For the conference, somebody has to enter the talks. {talks} {planner} {slides} {note} Other content "
    "remains unchanged.",
)


@dataclass(frozen=True, slots=True)
class _Talk:
    """A talk; its times are minutes after midnight.

    Attributes:
        before: Beginning that the speaker told at first.
    """

    title: str
    hall: str
    chair: str
    day: str
    before: int
    start: int
    length_min: int

    @property
    def told(self) -> str:
        """Text of the first mail."""
        return (
            f"I give my talk on {self.day} from {clock(self.before)} to "
            f"{clock(self.before + self.length_min)}. {self.chair} has the chair."
        )

    @property
    def line(self) -> str:
        """Line of its slide."""
        return f"{self.day} at {clock(self.start)}"

    def meeting(self, start: int) -> Row:
        return {"title": self.title, "day": self.day, "start": start, "end": start + self.length_min,
                "people": self.chair}  # fmt: skip


def _talks(dice: random.Random, level: int) -> list[_Talk]:
    """Draw talks; the first ones were moved."""
    made = []
    for at, title in enumerate(dice.sample(_TITLES, _TALKS[level])):
        before, after = dice.sample(range(8 * 60, 16 * 60, 30), 2)
        start = after if at < _MOVED[level] else before
        hall, chair, length_min = dice.choice(_HALLS), dice.choice(_CHAIRS), dice.choice((30, 60, 90))
        made.append(_Talk(title, hall, chair, dice.choice(DAYS[:3]), before, start, length_min))
    return made


def _draft(dice: random.Random, level: int) -> Draft:
    talks = _talks(dice, level)
    moved = talks[: _MOVED[level]]
    texts = [one.told for one in talks]
    texts += [f"My talk must begin at {clock(one.start)} instead, and is as long as before." for one in moved]
    subjects = [f"Talk: {one.title}" for one in talks] + [f"Moved: {one.title}" for one in moved]
    post = mailbox(dice, texts, 2 + level, PORT, "", subjects)
    window = post.window
    listed = sorted(talks, key=lambda one: one.title)
    people = [{"name": name} for name in _CHAIRS]
    week = Served(dice, "planner", "Conference Week", {"people": people, "meetings": []}, PORT + 1)
    meetings = meetings_part(week, window, _CHAIRS, [], [one.meeting(one.start) for one in talks])
    slides = [(one.title, f"In the {one.hall}") for one in listed] + [("Thank you", "See you next year")]
    lines = {at: one.line for at, one in enumerate(listed)}
    bodies = {f"{at + 1}.2": [*slides[at][1:], line] for at, line in lines.items()}
    minutes = {
        f"Minutes of talks on {day}:": str(sum(one.length_min for one in talks if one.day == day))
        for day in DAYS[:3]
    }
    note = ["Conference", *minutes, "The doors open at seven."]
    parts = [
        replace(meetings, weight=3, legs=post.read(len(texts))),
        replace(slides_part(_SLIDES, slides, lines), check=impress.rest_kept(_SLIDES, texts=bodies)),
        note_part(_NOTE, note, minutes),
    ]
    early = [one.meeting(one.before if one is moved[-1] else one.start) for one in talks]
    later = {**lines, 0: replace(listed[0], start=listed[0].start + 30).line}
    wrong = {
        "the time before a talk was moved": replace(
            parts[0], commits=[(window, [s for row in early for s in add_meeting(_CHAIRS, row, week.url)])]
        ),
        "a slide with a time half an hour late": slides_part(_SLIDES, slides, later),
    }
    plan = Plan(
        [window, name_of(_SLIDES), name_of(_NOTE)],
        parts,
        wrong,
        {"a mail answered": post.replies({0: "Thank you."})},
        [post.served.check({})],
    )
    return plan.draft(
        _WORDINGS,
        {
            "talks": f"The talks are {quoted_list(one.title for one in listed)}. In the browser, a mail "
            '"Talk: …" tells when each is and who has the chair. Mind the mails "Moved: …": some talks have '
            "another time since.",
            "planner": f"In the planner at {week.url}, add each talk as a meeting with its title, its time "
            "and the chair as the only participant.",
            "slides": f'In {_SLIDES}, add the line "DAY at HH:MM" below the last line of the slide of each '
            "talk, where HH:MM is when it begins, such as 09:30, and save it.",
            "note": f"In {_NOTE}, complete the lines {quoted_list(minutes)} with the minutes that the talks "
            "of that day take together, after the colon and a space, and save it.",
        },
        [
            *serving(post.served, week),
            *browser(post.served.url, window, week.url),
            *impress.opened(_SLIDES, slides),
            *note_opened(_NOTE, note),
        ],
        (_SLIDES, _NOTE),
    )


FAMILY = Family("long.conference", 2, _draft, ("chromium", "libreoffice_impress", "mousepad"), "full")
