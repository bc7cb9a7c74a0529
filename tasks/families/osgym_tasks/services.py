"""Steps on the pages of the local web applications, and what families draw for their rows.

`site` is the address of the application, by default that of one that is served alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from osgym_tasks.family import Steps
from osgym_tasks.pieces import key
from osgym_tasks.targets import click
from osgym_tasks.web import URL, pick, typed, visit
from osgym_tasks.webapps.framework import money
from osgym_tasks.webapps.mail import reply_heading
from osgym_tasks.webapps.planner import DAYS, TIMES
from osgym_tasks.webapps.tickets import PRIORITIES, STATUSES, TEAMS
from osgym_tasks.webapps.wiki import slug

Row = Mapping[str, Any]
SEND: Steps = [[key("tab"), key("enter")]]
"""Go from the last field of a form to its button, and send it."""


def pay(transfers: Sequence[Row], accounts: Sequence[str], payees: Sequence[str], site: str = URL) -> Steps:
    """Return steps that fill each transfer's form and the page that confirms it.

    Args:
        accounts: Numbers in the order of the form's list.
        payees: Numbers in the order of the form's list, the empty one first.
    """
    steps: Steps = []
    for row in transfers:
        told = [key("tab"), *pick(accounts, accounts[0], row["account"])]
        told += [key("tab"), *pick(payees, payees[0], row["payee"])]
        told += [key("tab"), typed(money(row["cents"])), key("tab"), typed(row["reference"])]
        steps += [
            *visit("/transfer", "New transfer", site),
            [*told, key("enter")],
            [click("heading", "Confirm the transfer")],
            *SEND,
        ]
    return steps


def edit_goods(rows: Sequence[Row], changes: Mapping[int, Row], site: str = URL) -> Steps:
    """Return steps on the page of each good: name, price, stock, for sale, and the button.

    Args:
        changes: New values by the good's index in `rows`.
    """
    steps: Steps = []
    for at, change in changes.items():
        row = rows[at]
        price = [typed(money(change["cents"]))] if "cents" in change else []
        stock = [typed(str(change["stock"]))] if "stock" in change else []
        sold = pick(("yes", "no"), row["sold"], change.get("sold", row["sold"]))
        told = [key("tab"), key("tab"), *price, key("tab"), *stock, key("tab"), *sold]
        steps += [*visit(f"/keeper/{row['id']}", f"Edit {row['id']}", site), told, *SEND]
    return steps


def work_tickets(
    rows: Sequence[Row], places: Sequence[int], change: Row, note: str, site: str = URL
) -> Steps:
    """Return steps on each ticket's page, from its heading to status, priority, team and note."""
    steps: Steps = []
    for at in places:
        row = rows[at]
        values = {**row, **change}
        status = pick(STATUSES, row["status"], values["status"])
        priority = pick(PRIORITIES, row["priority"], values["priority"])
        team = pick(TEAMS, row["team"], values["team"])
        fields = [*status, key("tab"), *priority, key("tab"), *team, key("tab")]
        steps += [
            *visit(f"/tickets/{row['number']}", f"#{row['number']} {row['title']}", site),
            [key("tab"), *fields, *([typed(note)] if note else []), key("tab"), key("enter")],
        ]
    return steps


def edit_sections(rows: Sequence[Row], edits: Mapping[int, tuple[int, str]], site: str = URL) -> Steps:
    """Return steps on the page of each section: into the text, to the line, over it; then the button.

    Args:
        edits: Number of the line, from 0, and its new text, by the section's index in `rows`. A line after
            the last one is added.
    """
    steps: Steps = []
    for at, (where, text) in edits.items():
        row = rows[at]
        if where < len(row["text"].splitlines()):
            put = [
                key("ctrl", "home"),
                *([key("down")] * where),
                key("home"),
                key("shift", "end"),
                typed(text),
            ]
        else:
            put = [key("ctrl", "end"), key("enter"), typed(text)]
        steps += [
            *visit(f"/edit/{slug(row['page'])}/{row['place']}", f"Edit {row['heading']}", site),
            [key("tab"), *put],
            *SEND,
        ]
    return steps


def add_meeting(names: Sequence[str], made: Row, site: str = URL) -> Steps:
    """Return steps that look at the days up to that of a meeting, fill the form and mark the participants."""
    people = made["people"].splitlines()
    marks = [action for name in names for action in (key("tab"), *([key("space")] * (name in people)))]
    values = [key("tab"), typed(made["title"]), key("tab"), *pick(DAYS, DAYS[0], made["day"])]
    for time in (made["start"], made["end"]):
        values += [key("tab"), *pick(TIMES, TIMES[0], time)]
    days = DAYS[: DAYS.index(made["day"]) + 1]
    looks = [step for day in days for step in visit(f"/days/{day}", day, site)]
    return [*looks, *visit("/new", "New meeting", site), values, [*marks, key("tab"), key("enter")]]


def reply(row: Row, text: str, site: str = URL) -> Steps:
    """Return steps that open a message and answer its sender, with the subject as proposed."""
    path = f"/messages/{row['number']}"
    return [
        *visit(path, row["subject"], site),
        *visit(f"{path}/reply", reply_heading(row["subject"], to_all=False), site),
        [key("tab"), key("tab"), key("tab"), key("tab"), typed(text)],
        *SEND,
    ]


def replied(row: Row, text: str) -> dict[str, Any]:
    """Return the row of the table `sent` that `reply` leaves."""
    return {"answers": row["number"], "receivers": row["sender"], "copies": "",
            "subject": f"Re: {row['subject']}", "text": text}  # fmt: skip
