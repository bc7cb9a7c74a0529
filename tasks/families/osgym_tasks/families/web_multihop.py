"""web.multihop: follow links from page to page of a site, and send the facts of the last pages by its form.

A terminal may read the pages by curl; an answer that does not come from the form in a browser is refused.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from osgym_tasks.family import Draft, Family, Ways
from osgym_tasks.pieces import DONE
from osgym_tasks.web import APPS, Served, answers, filled, question, visit

_PEOPLE = {1: 4, 2: 8, 3: 14, 4: 22, 5: 32}
_ASKED = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
_HOPS = {1: 1, 2: 2, 3: 3, 4: 3, 5: 3}
_FIRST = ("Ada", "Bo", "Cleo", "Dan", "Edith", "Fritz", "Gwen", "Hugo")
_LAST = ("Archer", "Barlow", "Carver", "Dyer", "Fletcher", "Glover", "Harper", "Mason")
_UNITS = ("Archive", "Bookshop", "Canteen", "Design", "Export", "Fleet", "Garden", "Harbour")
_HOUSES = ("Amber House", "Brick House", "Cedar House", "Dove House")
_FACTS = {"extension": "Extension", "office": "Office", "badge": "Badge"}
_SITES = ("Staff Directory", "Company Pages", "Who is Who", "Intranet")
_WORDINGS = (
    "Look up on the pages of the site in the browser, then send its form once: {asked}.",
    "The form of the open site asks for what its pages say. Find out and send, once, {asked}.",
    "Please read the pages of the site in the browser and answer in its form, sent once: {asked}.",
    "I need to reach some people and don't know my way around this site. Please find out from its pages "
    "{asked}, and send that once in the site's form.",
    "Reception wants to know {asked}. It's all somewhere on the open site, one page leading to another. "
    "Could you enter it in the form there, sent once?",
    "For our directory, look through the site in the browser for {asked}. Its form has a field for each; "
    "fill it in and send it one time.",
)


@dataclass(frozen=True, slots=True)
class _Site:
    """Persons, units and houses of the site, by the name of the page.

    Attributes:
        people: Facts by person.
        unit: Unit of each person.
        head: Head of each unit.
        house: House of each unit.
        porter: Porter of each house.
    """

    people: dict[str, dict[str, str]]
    unit: dict[str, str]
    head: dict[str, str]
    house: dict[str, str]
    porter: dict[str, str]


def _draft(dice: random.Random, level: int) -> Draft:
    site = _site(dice, level)
    pairs = [(person, fact) for person in site.unit for fact in _FACTS]
    dice.shuffle(pairs)
    found: dict[tuple[str, str], str] = {}
    for person, fact in pairs:  # no answer twice
        found.setdefault((_trail(site, person, _HOPS[level])[0][-1], fact), person)
    asked, questions, wanted, looks = [], [], {}, []
    for number, ((last, fact), person) in enumerate(dice.sample(sorted(found.items()), _ASKED[level])):
        trail, said = _trail(site, person, _HOPS[level])
        name, label = f"f{number}", f"Answer {number + 1}"
        questions.append(question(name, label, "text"))
        asked.append(f"the {_FACTS[fact].lower()} of {said} ({label})")
        wanted[name] = site.people[last][fact]
        looks += [step for page in trail for step in visit(f"/pages/{_slug(page)}", page)]
    own = next(facts[fact] for who, facts in site.people.items() if who == person or last == person != who)
    names = list(wanted)
    served = Served(
        dice,
        "forms",
        dice.choice(_SITES),
        {"questions": questions, "answers": [], "pages": _pages(site), "files": []},
    )
    one = {**wanted, names[-1]: own}
    near = {
        "another person's": [*looks, *filled(questions, one), DONE],
        "not sent": [*looks, *filled(questions, wanted)[:-1], DONE],
    }
    if len(names) > 1:
        swapped = {**wanted, names[0]: wanted[names[1]], names[1]: wanted[names[0]]}
        near["two exchanged"] = [*looks, *filled(questions, swapped), DONE]
        del near["not sent"]
    return Draft(
        _WORDINGS,
        {"asked": "; ".join(asked)},
        served.config(),
        served.evaluator({"answers": answers(questions, wanted)}),
        Ways([*looks, *filled(questions, wanted), DONE], near),
        changes=(),
    )


def _site(dice: random.Random, level: int) -> _Site:
    everyone = dice.sample([f"{first} {last}" for first in _FIRST for last in _LAST], _PEOPLE[level] + 8)
    staff, porters = everyone[:-4], everyone[-4:]
    units = dice.sample(_UNITS, 2 + level)
    heads = dict(zip(units, staff, strict=False))
    numbers = dice.sample(range(1000, 10000), 3 * len(everyone))
    people = {
        person: {"extension": str(numbers[3 * at]), "office": f"R{numbers[3 * at + 1]}",
                 "badge": f"B{numbers[3 * at + 2]}"}
        for at, person in enumerate(everyone)
    }  # fmt: skip
    unit = {person: dice.choice(units) for person in staff if person not in heads.values()}
    houses = {name: dice.choice(_HOUSES) for name in units}
    return _Site(people, unit, heads, houses, dict(zip(_HOUSES, porters, strict=True)))


def _trail(site: _Site, person: str, hops: int) -> tuple[list[str], str]:
    """Return the pages from a person to the one with the fact, and the description of that one."""
    unit = site.unit[person]
    house = site.house[unit]
    head, porter = site.head[unit], site.porter[house]
    return (
        ([person], person),
        ([person, unit, head], f"the head of the unit of {person}"),
        ([person, unit, house, porter], f"the porter of the house in which the unit of {person} is"),
    )[min(hops, 3) - 1]


def _slug(title: str) -> str:
    return title.lower().replace(" ", "-")


def _pages(site: _Site) -> list[dict[str, Any]]:
    """Return a page for each person, unit and house, with links to the next."""
    heads = {person: unit for unit, person in site.head.items()}
    rows = []
    for person, facts in site.people.items():
        lines = [f"{_FACTS[fact]}: {value}" for fact, value in facts.items()]
        if unit := site.unit.get(person) or heads.get(person):
            lines += ["Works in this unit:", f"/pages/{_slug(unit)} {unit}"]
        rows.append((person, "People", lines))
    for unit, head in site.head.items():
        house = site.house[unit]
        lines = [
            "Head of the unit:",
            f"/pages/{_slug(head)} {head}",
            "House:",
            f"/pages/{_slug(house)} {house}",
        ]
        rows.append((unit, "Units", lines))
    for house, porter in site.porter.items():
        rows.append((house, "Houses", ["Porter:", f"/pages/{_slug(porter)} {porter}"]))
    return [{"slug": _slug(title), "title": title, "group_": group, "body": "\n".join(lines)}
            for title, group, lines in rows]  # fmt: skip


FAMILY = Family("web.multihop", 2, _draft, APPS, "full")
