"""long.research: follow links of a wiki, and put what they say into a document, slides and a note."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from osgym_tasks import impress, writer
from osgym_tasks.desk import sentence
from osgym_tasks.family import Draft, Family
from osgym_tasks.long import Plan
from osgym_tasks.long_parts import (
    Wiki,
    document_opened,
    document_part,
    name_of,
    note_opened,
    note_part,
    wiki,
)
from osgym_tasks.long_slides import slides_part
from osgym_tasks.pieces import HOME
from osgym_tasks.web import browser, serving
from osgym_tasks.webapps.framework import PORT

_PLACES = {1: 3, 2: 5, 3: 7, 4: 9, 5: 12}
_OTHERS = {1: 2, 2: 3, 3: 4, 4: 5, 5: 6}
_NAMES = (
    "Boat House", "Clock Tower", "Dairy", "East Gallery", "Forge", "Glass House", "Hostel", "Ice Rink",
    "Jetty", "Library", "Museum", "North Chapel", "Observatory", "Printing Works", "Quarry Bridge",
    "Round Barn", "Salt Works", "Theatre",
)  # fmt: skip
_FIRST = ("Agnes", "Boris", "Carla", "Denis", "Emma", "Felix", "Gita", "Henk", "Irma")
_LAST = ("Holm", "Lang", "Reyes", "Oduya", "Stone", "Marr", "Rao", "Vogel", "Quist")
_STYLES = ("brick", "glass", "granite", "oak", "slate", "steel")
_NOTE = f"{HOME}/Documents/sources.txt"
_WORDINGS = (
    "Please do some research in the wiki in the browser. {facts} {document} {slides} {note} Change nothing "
    "else.",
    "I prepare a talk about buildings of our town, and the wiki in the browser knows them. {facts} "
    "{document} "
    "{slides} {note} Leave all else as it is.",
    "The wiki that is open has pages about buildings and about the people who built them. {facts} {document} "
    "{slides} {note} Everything else stays.",
    "Use the open wiki to complete what I have written. {facts} {document} {slides} {note} No other text may "
    "change.",
    "For our exhibition, look things up in the wiki that the browser shows. {facts} {document} {slides} "
    "{note} "
    "Do not change other text.",
    "My texts about the town lack some facts, which the wiki in the browser has. {facts} {document} {slides} "
    "{note} Keep the rest unchanged.",
)


@dataclass(frozen=True, slots=True)
class _Building:
    place: str
    person: str
    year: int
    stone: str

    @property
    def line(self) -> str:
        """Line of its slide."""
        return f"Built by {self.person}"


def _buildings(dice: random.Random, level: int) -> list[_Building]:
    count = _PLACES[level] + _OTHERS[level]
    people = dice.sample([f"{first} {last}" for first in _FIRST for last in _LAST], count)
    years = dice.sample(range(1780, 1900), count)
    return [
        _Building(place, person, year, dice.choice(_STYLES))
        for place, person, year in zip(dice.sample(_NAMES, count), people, years, strict=True)
    ]


def _wiki(dice: random.Random, buildings: Sequence[_Building]) -> Wiki:
    pages: dict[str, Mapping[str, Sequence[str]]] = {}
    for one in buildings:
        opened = one.year + dice.randrange(25, 60)
        pages[one.place] = {
            "History": [f"Built by [[{one.person}]].", f"Opened in {opened}."],
            "Material": [f"Its walls are of {one.stone}."],
        }
        pages[one.person] = {"Life": [f"Born in {one.year}.", f"Moved to our town in {one.year + 20}."]}
    return wiki(dice, pages, PORT, "")


def _draft(dice: random.Random, level: int) -> Draft:
    buildings = _buildings(dice, level)
    meant, others = buildings[: _PLACES[level]], buildings[_PLACES[level] :]
    guide = _wiki(dice, buildings)
    window = guide.window
    path, talk = writer.path_of(dice), f"{HOME}/Documents/buildings.odp"
    years = {f"{one.place}, born:": str(one.year) for one in meant}
    said = writer.sentences(dice, 2 + level)
    document = [*said[:2], *years, *said[2:]]
    slides = [(one.place, f"Walls of {one.stone}") for one in meant]
    lines = {at: one.line for at, one in enumerate(meant)}
    stones: dict[str, int] = {}
    for one in meant:
        stones[one.stone] = stones.get(one.stone, 0) + 1
    ends = {f"Buildings of {stone}:": str(count) for stone, count in sorted(stones.items())}
    note = ["Sources: the wiki", *(f"Not asked: {one.place}" for one in others), *ends]
    read = guide.read([page for one in meant for page in (one.place, one.person)])
    text = document_part(path, document, years)
    bodies = {f"{at + 1}.2": [slides[at][1], line] for at, line in lines.items()}
    talk_part = replace(slides_part(talk, slides, lines), check=impress.rest_kept(talk, texts=bodies))
    parts = [
        replace(text, legs=[*read, *text.legs]),
        talk_part,
        note_part(_NOTE, note, ends, 1),
    ]
    late = {**years, f"{meant[-1].place}, born:": str(meant[-1].year + 20)}
    swapped = {**lines, 0: meant[-1].line}
    wrong = {
        "another year of one person": document_part(path, document, late),
        "another person on a slide": slides_part(talk, slides, swapped),
    }
    spoilt = guide.steps({0: (0, "Nobody knows.")})
    plan = Plan(
        [window, name_of(path), name_of(talk), name_of(_NOTE)],
        parts,
        wrong,
        {"the wiki changed": [(window, spoilt)]},
        [guide.served.check({}), writer.rest_kept(path)],
    )
    return plan.draft(
        _WORDINGS,
        {
            "facts": f"It is about {sentence(one.place for one in meant)}. The page of a building names who "
            "built it and its material; the page of that person has the year of birth.",
            "document": f'In {path}, complete the lines "…, born:" with the year in which the builder was '
            "born, after the colon and a space, and save it as docx.",
            "slides": f'In {talk}, add the line "Built by NAME" below the last line of each slide, and save '
            f"it.",
            "note": f'In {_NOTE}, complete the lines "Buildings of …:" with the number of slides whose '
            f"building is "
            "of that material, and save it.",
        },
        [
            *serving(guide.served),
            *browser(guide.served.url, window),
            *document_opened(path, document),
            *impress.opened(talk, slides),
            *note_opened(_NOTE, note),
        ],
        (path, talk, _NOTE),
    )


FAMILY = Family(
    "long.research",
    2,
    _draft,
    ("chromium", "libreoffice_writer", "libreoffice_impress", "mousepad"),
    "full",
)
