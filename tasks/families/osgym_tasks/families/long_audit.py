"""long.audit: look up transfers at night in logs and at a bank, and record them in tickets and a workbook.

A terminal may read the services by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from osgym_tasks import calc
from osgym_tasks.desk import terminal
from osgym_tasks.family import Draft, Family
from osgym_tasks.long import Plan
from osgym_tasks.long_parts import (
    Mailbox,
    Row,
    Tracker,
    bank,
    cells_part,
    formulas_part,
    given_kept,
    mailbox,
    name_of,
    other_cell,
    tracker,
)
from osgym_tasks.pieces import HOME, line, upload
from osgym_tasks.web import browser, serving, visit
from osgym_tasks.webapps.framework import PORT, money

_FOUND = {1: 4, 2: 6, 3: 9, 4: 13, 5: 18}
_OTHERS = {1: 12, 2: 20, 3: 30, 4: 44, 5: 60}
_USERS = ("anna", "bilal", "chen", "dora", "emeka", "fatima", "goran", "hana")
_PAYEES = ("Akers Timber", "Bloom Paper", "Corvin Tools", "Dray Freight", "Elder Foods", "Finch Cleaning")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday")
_LOGS = f"{HOME}/logs"
_BOOK = f"{HOME}/Documents/findings.xlsx"
_TERMINAL = "Terminal"
_ANSWER = "There were {} transfers at night, {} in all."
_WORDINGS = (
    "An audit is due: who made transfers at night? {rule} {sheet} {sum} Save the workbook as xlsx. {tickets} "
    "Then {answer}. Change nothing else.",
    "Please audit last week's transfers. {rule} {sheet} {sum} Save it in the same format. {tickets} At the "
    "end, {answer}. Everything else stays as it is.",
    "We must know what was paid at night. {rule} {sheet} {sum} Keep the xlsx format when you save. {tickets} "
    "Finally {answer}. Leave all other data alone.",
    "Would you look into transfers that were made at night? {rule} {sheet} {sum} Save the file as xlsx. "
    "{tickets} When you have done that, {answer}. Nothing else is to change.",
    "Check the transfers for our auditor. {rule} {sheet} {sum} The workbook is to be saved as the xlsx file "
    "that it is. {tickets} After that, {answer}. Do not touch anything else.",
    "I need a list of the transfers made at night. {rule} {sheet} {sum} Save it, still as xlsx. {tickets} "
    "Last, {answer}. Other entries remain unchanged.",
)


@dataclass(frozen=True, slots=True)
class _Transfer:
    reference: str
    user: str
    payee: str
    cents: int
    day: str
    hour: int
    minute: int

    @property
    def at_night(self) -> bool:
        return self.hour < 5

    @property
    def logged(self) -> str:
        """Line of the day's log."""
        return f"{self.hour:02}:{self.minute:02} user={self.user} did=transfer ref={self.reference}"


def _transfers(dice: random.Random, level: int) -> list[_Transfer]:
    """Draw transfers, of which some are made before five o'clock."""
    count = _FOUND[level]
    hours = [dice.randrange(5) for _ in range(count)]
    hours += [dice.randrange(6, 24) for _ in range(_OTHERS[level])]
    numbers = dice.sample(range(1000, 9999), len(hours))
    return [
        _Transfer(
            f"R{number}",
            dice.choice(_USERS),
            dice.choice(_PAYEES),
            dice.randrange(1000, 90000),
            dice.choice(_DAYS),
            hour,
            dice.randrange(60),
        )
        for number, hour in sorted(zip(numbers, hours, strict=True))
    ]


def _logs(dice: random.Random, transfers: list[_Transfer]) -> dict[str, str]:
    """Return the logs by path: a line of each transfer, between lines about other things."""
    made: dict[str, str] = {}
    for day in _DAYS:
        rows = [one.logged for one in transfers if one.day == day]
        for _ in range(len(rows) + 4):
            clock = f"{dice.randrange(24):02}:{dice.randrange(60):02}"
            rows.append(f"{clock} user={dice.choice(_USERS)} did={dice.choice(('login', 'logout', 'print'))}")
        made[f"{_LOGS}/{day}.log"] = "".join(f"{row}\n" for row in sorted(rows))
    return made


def _draft(dice: random.Random, level: int) -> Draft:
    transfers = _transfers(dice, level)
    found = [one for one in transfers if one.at_night]
    money_house = bank(dice, _PAYEES, [(one.payee, one.cents, one.reference) for one in transfers])
    window = money_house.window
    others = dice.sample([one for one in transfers if not one.at_night], 2 + level)
    titles: list[Row] = [
        {"title": f"Receipt of {one.reference}", "area": "Invoices", "text": "The receipt is missing."}
        for one in [*found, *others]
    ]
    dice.shuffle(titles)
    desk = tracker(dice, titles, PORT + 1, window)
    post = mailbox(dice, ["How many transfers were made at night, and how much was it?"], 2, PORT + 2, window)
    places = {row["title"].rpartition(" ")[2]: at for at, row in enumerate(desk.rows)}
    work: dict[int, tuple[Row, str]] = {
        places[one.reference]: ({"priority": "High"}, f"At night by {one.user}") for one in found
    }
    grid = [["Reference", "User", "Amount"], *([one.reference] for one in found)]
    last, total = len(grid), f"C{len(grid) + 2}"
    values: dict[str, str | float] = {}
    for row, one in enumerate(found, 2):
        values |= {f"B{row}": one.user, f"C{row}": one.cents / 100}
    cents = sum(one.cents for one in found)
    answer = _ANSWER.format(len(found), money(cents))
    cells = cells_part(_BOOK, "Night", values, 3)
    greps = [line(f"grep -h {one.reference} logs/*.log") for one in found]
    look = [(_TERMINAL, greps), (window, visit("/transfers", "Transfers", money_house.served.url))]
    parts = [
        replace(cells, legs=[*look, *cells.legs]),
        formulas_part(_BOOK, "Night", {total: f"=SUM(C2:C{last})"}),
        desk.part(work, 3),
        post.part(answer),
    ]
    wrong = {
        "one ticket forgotten": replace(
            parts[2], commits=[(window, desk.steps(dict(list(work.items())[:-1])))]
        ),
        "another amount in the reply": post.part(
            answer, sent=_ANSWER.format(len(found), money(cents - found[0].cents))
        ),
    }
    plan = Plan(
        [_TERMINAL, window, name_of(_BOOK)],
        parts,
        wrong,
        {"a reference changed": other_cell(_BOOK, "A2", "R0")},
        [*given_kept(_BOOK, "Night", grid, f"B2:{total}"), money_house.served.check({})],
    )
    return plan.draft(
        _WORDINGS,
        _asked(desk, post, total),
        [
            upload(_logs(dice, transfers)),
            *serving(money_house.served, desk.served, post.served),
            *browser(money_house.served.url, window, desk.served.url, post.served.url),
            *calc.opened(_BOOK, calc.workbook({"Night": grid})),
            *terminal(),
        ],
        (_BOOK,),
    )


def _asked(desk: Tracker, post: Mailbox, total: str) -> dict[str, str]:
    return {
        "rule": f"{_BOOK} has the references of the transfers that were made before five o'clock; the "
        f"logs "
        f"in {_LOGS} say by whom (look with the terminal), and the bank in the browser how much.",
        "sheet": "Fill the columns User and Amount of every row.",
        "sum": f"Put a formula into {total} that sums the amounts.",
        "tickets": f'In the tracker at {desk.served.url}, give the ticket "Receipt of …" of each the '
        f"priority "
        'High and the note "At night by USER".',
        "answer": f"answer {post.which} at {post.served.url} with exactly "
        f'"{_ANSWER.format("N", "SUM")}", '
        "where N is their number and SUM the amount with two decimals",
    }


FAMILY = Family("long.audit", 1, _draft, ("chromium", "libreoffice_calc", "xfce4-terminal"), "full")
