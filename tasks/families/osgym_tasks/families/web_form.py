"""web.form: fill in a form with fields of many kinds, of which some stay as they are, and send it once."""

from __future__ import annotations

import itertools
import random
from typing import Any

from osgym_tasks.family import Draft, Family, Ways
from osgym_tasks.pieces import DONE
from osgym_tasks.web import APPS, Served, answers, filled, posted, question

_ASKED = {1: 3, 2: 5, 3: 9, 4: 14, 5: 20}
_LEFT = {1: 0, 2: 2, 3: 3, 4: 5, 5: 7}
_FORMS = ("Club membership", "Course registration", "Travel request", "Library card", "Event booking")
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December")  # fmt: skip
_TEXTS = {
    "First name": ("Amina", "Bruno", "Chiara", "Dmitri", "Elif", "Farid", "Greta", "Hiro"),
    "Last name": ("Abiola", "Bergman", "Costa", "Dupont", "Eriksen", "Fischer", "Gupta", "Horvat"),
    "Street": ("12 Mill Lane", "7 Harbour Road", "31 Park Avenue", "5 Chapel Street", "88 Station Road"),
    "Town": ("Lyon", "Bergen", "Porto", "Graz", "Turku", "Ghent", "Split", "Leeds"),
    "Postcode": ("48210", "70934", "11557", "36082", "59426", "82713"),
    "Telephone": ("555 0134", "555 0178", "555 0142", "555 0199", "555 0163"),
    "Company": ("Norden Paper", "Halland Foods", "Quill Press", "Alder and Sons", "Tideway Tools"),
    "Job title": ("Librarian", "Welder", "Nurse", "Architect", "Translator", "Baker"),
    "Emergency contact": ("Ines Moreau", "Tom Hadley", "Rosa Keller", "Yusuf Demir", "Mei Tanaka"),
    "Membership number": ("M-4471", "M-4417", "M-7441", "M-1474", "M-7144"),
    "Project": ("Bluebird", "Sandstone", "Lantern", "Osprey", "Meadow"),
    "Vehicle": ("KX 204 B", "RT 771 M", "LD 318 C", "PN 560 V"),
}
_CHOICES = {
    "Country": ("Austria", "Belgium", "Croatia", "Finland", "Norway", "Portugal"),
    "Language": ("Dutch", "English", "French", "German", "Turkish"),
    "Meal": ("Fish", "Meat", "Vegan", "No meal"),
    "Shirt size": ("Small", "Medium", "Large"),
    "Department": ("Accounts", "Kitchen", "Legal", "Research", "Transport"),
    "Room": ("Ash", "Birch", "Cedar", "Elm", "Willow"),
    "Payment": ("Cash", "Invoice", "Transfer"),
    "Contact by": ("Letter", "Telephone", "Email"),
    "Seat": ("Window", "Middle", "Aisle"),
    "Ticket": ("One day", "Weekend", "Season"),
}
_RADIO = ("Contact by", "Seat", "Ticket")
_SETS = {
    "Newsletters": ("Events", "Offers", "Research"),
    "Days": ("Friday", "Saturday", "Sunday"),
    "Equipment": ("Helmet", "Map", "Tent"),
}
_NUMBERS = {"Guests": 9, "Age": 79, "Nights": 14, "Floor": 12}
_DATES = ("Arrival", "Date of birth", "Valid from")
_WORDINGS = (
    "Fill in the form of the site {site} that is open in the browser, and send it once. {entries}. Leave "
    "every other field as it is.",
    "In the browser, the form of {site} is waiting. Enter the following and send the form once; all other "
    "fields keep what they have. {entries}.",
    "Please complete and send, a single time, the form on {site}. {entries}. Do not change fields that I "
    "do not mention.",
    "I never finish these forms. Please fill in the one that is open with this and send it once: {entries}"
    ". What I don't mention stays as the form has it.",
    "The deadline is near, so could you send the form in the browser for me? {entries}. Leave all other "
    "fields as they are, and send it a single time.",
    "My mother asked me to do this for her: {entries}. It belongs into the form that you see. Don't change "
    "other fields, and send it exactly once.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    asked = _ASKED[level]
    labels = dice.sample([*_TEXTS, *_CHOICES, *_NUMBERS, *_SETS, *_DATES], asked + _LEFT[level])
    if not set(labels) & set(_TEXTS):
        labels[0] = dice.choice(list(_TEXTS))
    questions = [_question(dice, f"f{number}", label) for number, label in enumerate(labels)]
    chosen = sorted(dice.sample(questions, asked), key=questions.index)
    wanted = {row["name"]: _other(dice, row) for row in chosen}
    if level >= 4:
        dice.shuffle(chosen)
    site = dice.choice(_FORMS)
    served = Served(dice, "forms", site, {"questions": questions, "answers": [], "pages": [], "files": []})
    last = chosen[-1]["name"]
    wrong = {**wanted, last: _other(dice, chosen[-1], wanted[last])}
    near = {
        "one field forgotten": [*filled(questions, {k: v for k, v in wanted.items() if k != last}), DONE],
        "one value wrong": [*filled(questions, wrong), DONE],
        "not sent": [*filled(questions, wanted)[:-1], DONE],
        "sent past the browser": [*posted("/form", answers_of(questions, wanted)), DONE],
    }
    left = [row for row in questions if row not in chosen]
    if left:
        extra = {**wanted, left[0]["name"]: _other(dice, left[0])}
        near["another field changed"] = [*filled(questions, extra), DONE]
    return Draft(
        _WORDINGS,
        {
            "site": site,
            "entries": "; ".join(f"{row['label']}: {_said(row, wanted[row['name']])}" for row in chosen),
        },
        served.config("/form"),
        served.evaluator({"answers": answers(questions, wanted)}),
        Ways([*filled(questions, wanted), DONE], near),
        shown=("site",),
        changes=(),
    )


def answers_of(questions: list[dict[str, Any]], wanted: dict[str, str]) -> dict[str, str]:
    """Return the sent values by name of the field."""
    return {row["name"]: wanted.get(row["name"], row["value"]) for row in questions}


def _question(dice: random.Random, name: str, label: str) -> dict[str, Any]:
    """Draw a field with its initial value, which is often empty."""
    if label in _CHOICES:
        options = _CHOICES[label]
        kind = "radio" if label in _RADIO else "select"
        return question(name, label, kind, options, dice.choice(options))
    if label in _SETS:
        return question(name, label, "checkbox", _SETS[label], dice.choice(("", *_SETS[label])))
    if label in _NUMBERS:
        return question(name, label, "number", (), dice.choice(("", "1")))
    if label in _DATES:
        return question(name, label, "date")
    return question(name, label, "text", (), dice.choice(("", "", *_TEXTS[label])))


def _other(dice: random.Random, row: dict[str, Any], *avoided: str) -> str:
    """Draw a value that the field does not have, and none of these."""
    label, none = row["label"], {row["value"], *avoided}
    if label in _SETS:
        parts = [part for count in (1, 2, 3) for part in itertools.combinations(sorted(_SETS[label]), count)]
        values = ["\n".join(part) for part in parts]
    elif label in _NUMBERS:
        values = [str(number) for number in range(2, _NUMBERS[label] + 1)]
    elif label in _DATES:
        year, month = dice.randrange(1980, 2030), dice.randrange(1, 13)
        values = [f"{year}-{month:02}-{day:02}" for day in range(1, 29)]
    else:
        values = [*(_CHOICES.get(label) or _TEXTS[label])]
    return dice.choice([value for value in values if value not in none])


def _said(row: dict[str, Any], value: str) -> str:
    if row["kind"] == "checkbox":
        return " and ".join(sorted(value.splitlines())) + (" only" if row["value"] else "")
    if row["kind"] == "date":
        year, month, day = value.split("-")
        return f"{int(day)} {_MONTHS[int(month) - 1]} {year}"
    return value


FAMILY = Family("web.form", 3, _draft, APPS, "full")
