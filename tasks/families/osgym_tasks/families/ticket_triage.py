"""ticket.triage: give the tickets that a rule names another team, priority or status, and no others.

A terminal may read the tracker by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from typing import Any

from osgym_tasks.family import Draft, Family, Ways
from osgym_tasks.pieces import DONE
from osgym_tasks.services import work_tickets
from osgym_tasks.web import APPS, Served
from osgym_tasks.webapps.tickets import PRIORITIES, STATUSES, TEAMS

_TICKETS = {1: 4, 2: 10, 3: 20, 4: 36, 5: 64}
_MEANT = {1: 1, 2: 2, 3: 3, 4: 4, 5: 7}
_CUSTOMERS = ("Acorn Bakery", "Bluestone Hotel", "Copper Cinema", "Delta Dental", "Elm Street School")
_AREAS = {
    "Invoices": ("Wrong total", "Paid twice", "Invoice missing", "Old address on invoice"),
    "Wireless": ("No signal upstairs", "Slow in the evening", "Drops every hour", "Guests cannot connect"),
    "Printers": ("Paper jam", "Prints blank pages", "Toner empty", "Queue stuck"),
    "Logins": ("Password forgotten", "Locked out", "New colleague", "Cannot sign in"),
}
_TEXTS = (
    "Please look at it when you can.", "It began this week.", "We called before.", "It happens now and then.",
    "Two of us see it.", "Everybody here sees it.",
)  # fmt: skip
_NOTES = (
    "Looked at in the weekly round.",
    "Customer was told.",
    "Checked against the contract.",
    "Moved by the desk.",
)
_TITLES = ("Help Desk", "Service Desk", "Support Tracker", "Ticket Board")
_WORDINGS = (
    "In the ticket tracker that is open in the browser, take {rule} and {change}. All other tickets stay "
    "as they are.",
    "Triage in the open tracker: find {rule}, and {change}. Change nothing else.",
    "Please go through the tickets in the browser. I want you to pick {rule} and {change}; leave the rest "
    "alone.",
    "My team starts at eight and should find its work. In the open tracker, please take {rule} and {change}"
    ". Whatever does not fit this stays untouched.",
    "Too much lies around unassigned. Could you go through the tickets in the browser, find {rule}, and "
    "{change}? No other ticket may change.",
    "I promised the customers that somebody looks at it soon. It concerns {rule}: {change}. Leave the rest "
    "of the tracker as it is.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    area, customer = dice.choice(list(_AREAS)), dice.choice(_CUSTOMERS)
    days = dice.randrange(10, 21)
    rows = _rows(dice, level, area, customer, days)
    meant = [at for at, row in enumerate(rows) if _fits(row, level, area, customer, days)]
    team, priority = dice.choice(TEAMS[1:]), dice.choice((PRIORITIES[0], PRIORITIES[2]))
    change = {"team": team} if level == 1 else {"team": team, "priority": priority}
    said = f"assign {'it' if level == 1 else 'each of them'} to the team {team}"
    if level >= 2:
        said += f" with priority {priority}"
    note = dice.choice(_NOTES) if level >= 4 else ""
    if note:
        said += f', and add the note "{note}" to each'
    served = Served(dice, "tickets", dice.choice(_TITLES), {"tickets": rows, "notes": []})
    after = [{**row, **change} if at in meant else row for at, row in enumerate(rows)]
    notes = [{"ticket": rows[at]["number"], "text": note} for at in meant if note]
    closed = next(at for at, row in enumerate(rows) if row["area"] == area and row["status"] == "Closed")
    other = {**change, "team": next(name for name in TEAMS[1:] if name != team)}
    near = {
        "a closed one too": [*work_tickets(rows, [*meant, closed], change, note), DONE],
        "another team": [*work_tickets(rows, meant, other, note), DONE],
    }
    if len(meant) > 1:
        del near["another team"]
        near["one forgotten"] = [*work_tickets(rows, meant[:-1], change, note), DONE]
    return Draft(
        _WORDINGS,
        {"rule": _said(rows[meant[0]], level, area, customer, days), "change": said},
        served.config(),
        served.evaluator({"tickets": after, "notes": notes}),
        Ways([*work_tickets(rows, meant, change, note), DONE], near),
        changes=(),
    )


def _rows(dice: random.Random, level: int, area: str, customer: str, days: int) -> list[dict[str, Any]]:
    """Draw tickets: the level's number of targets, and some that differ in one respect only."""
    others = [name for name in _AREAS if name != area]
    elsewhere = [name for name in _CUSTOMERS if name != customer]
    old = {"area": area, "customer": customer, "status": "Open", "days": days}
    rows = [{**old, "days": days + 1 + number} for number in range(_MEANT[level])]
    rows += [{**old, "status": "Closed"}, {**old, "status": "Waiting", "days": days + 3}]
    rows += [{**old, "area": others[0], "days": days + 1}]
    if level >= 3:
        rows += [{**old, "customer": elsewhere[0], "days": days + 2}]
    if level >= 5:
        rows += [old, {**old, "days": days - 1}]
    while len(rows) < _TICKETS[level]:
        its_area = dice.choice(others)
        rows.append({"area": its_area, "customer": dice.choice(_CUSTOMERS), "status": dice.choice(STATUSES),
                     "days": dice.randrange(1, 40)})  # fmt: skip
    dice.shuffle(rows)
    first = dice.randrange(200, 900)
    return [
        {"number": first + number, "title": dice.choice(_AREAS[str(row["area"])]),
         "customer": row["customer"], "area": row["area"], "status": row["status"], "days": row["days"],
         "priority": "Normal", "team": "Unassigned", "text": dice.choice(_TEXTS)}
        for number, row in enumerate(rows)
    ]  # fmt: skip


def _fits(row: dict[str, Any], level: int, area: str, customer: str, days: int) -> bool:
    """Return whether the rule of the level names this ticket."""
    of_customer = level < 3 or row["customer"] == customer
    return (
        row["area"] == area and row["status"] == "Open" and of_customer and (level < 5 or row["days"] > days)
    )


def _said(row: dict[str, Any], level: int, area: str, customer: str, days: int) -> str:
    if level == 1:
        return f"ticket #{row['number']}, the open one about {area}"
    rule = f"all tickets with status Open in the area {area}"
    if level >= 3:
        rule += f" from the customer {customer}"
    if level >= 5:
        rule += f" that are more than {days} days old"
    return rule


FAMILY = Family("ticket.triage", 2, _draft, APPS, "full")
