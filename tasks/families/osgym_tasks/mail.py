"""Parts that families of the local web mail share: people, messages, and the differences between these."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from osgym_tasks.webapps.mail import MARKS, joined

Row = dict[str, Any]
INBOX = "Inbox"
FOLDERS = (INBOX, "Archive", "Bills", "Club", "Travel", "Work")
TITLES = ("Harbour Mail", "Village Post", "Web Mail", "Letter Box")
SUBJECTS = (
    "Projector", "Key codes", "Summer party", "Parking", "Room plan", "Delivery", "Training day", "Visit",
    "Menu", "Newsletter", "Repairs", "Choir practice", "Book order", "Bus times", "First aid course",
    "Garden tools",
)  # fmt: skip
_FIRST = (
    "Agnes",
    "Boris",
    "Carla",
    "Denis",
    "Emma",
    "Felix",
    "Gita",
    "Henk",
    "Irma",
    "Jorge",
    "Katya",
    "Leif",
)
_LAST = ("Holm", "Lang", "Reyes", "Oduya", "Stone", "Marr", "Rao", "Vogel", "Quist", "Amado")
_TEXTS = (
    "The room for it is {n}.",
    "We have put {n} on the list.",
    "It will take about {n} minutes.",
    "Please ring {n} if you cannot come.",
    "There are {n} places left.",
    "It costs {n} in all.",
)
_START = datetime(2024, 2, 5, 8, 10)


def people(dice: random.Random, count: int) -> list[Row]:
    """Draw people, each with a name and an unguessable address; the first owns the mail."""
    names = dice.sample([(first, last) for first in _FIRST for last in _LAST], count)
    return [
        {"address": f"{last.lower()}{dice.randrange(100, 1000)}{at}@mail.example", "name": f"{first} {last}"}
        for at, (first, last) in enumerate(names)
    ]


def letter(
    dice: random.Random,
    owner: Row,
    sender: Row,
    subject: str,
    *,
    folder: str = INBOX,
    others: Sequence[Row] = (),
) -> Row:
    """Return a message to the owner, with one number in its text, and copies to others; without a date."""
    told = dice.choice(_TEXTS).format(n=dice.randrange(100, 1000))
    return {
        "folder": folder,
        "sender": sender["address"],
        "receivers": owner["address"],
        "copies": joined([one["address"] for one in others]),
        "subject": subject,
        "text": f"Hello {owner['name'].split()[0]},\n{told}\n{sender['name']}",
        "mark": MARKS[0],
    }


def number_in(row: Row) -> str:
    """Return the number in the text of a message."""
    return "".join(filter(str.isdecimal, row["text"]))


def dated(dice: random.Random, rows: Sequence[Row], new_day: int = 0) -> list[Row]:
    """Return the messages with numbers and dates, in this order.

    Args:
        new_day: Place of a message that is sent on another day than all before it.
    """
    first, when = dice.randrange(1000, 9000), _START
    made = []
    for at, row in enumerate(rows):
        when += timedelta(minutes=dice.randrange(40, 1500))
        if new_day and at == new_day:
            when = when.replace(hour=7, minute=dice.randrange(60)) + timedelta(days=1)
        made.append({"number": first + at, "date": f"{when:%Y-%m-%d %H:%M}", **row})
    return made
