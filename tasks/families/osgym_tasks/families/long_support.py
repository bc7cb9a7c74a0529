"""long.support: answer tickets with what a wiki knows, list them in a workbook, and count them in a note.

A terminal may read the services by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from osgym_tasks import calc
from osgym_tasks.desk import quoted_list
from osgym_tasks.family import Draft, Family
from osgym_tasks.long import Plan
from osgym_tasks.long_parts import (
    Row,
    Wiki,
    cells_part,
    given_kept,
    name_of,
    note_opened,
    note_part,
    other_cell,
    tracker,
    wiki,
)
from osgym_tasks.pieces import HOME
from osgym_tasks.web import browser, serving, visit
from osgym_tasks.webapps.framework import PORT

_MEANT = {1: 3, 2: 5, 3: 7, 4: 10, 5: 13}
_OTHERS = {1: 3, 2: 5, 3: 8, 4: 12, 5: 16}
_PRODUCTS = ("Anvil", "Beacon", "Cutter", "Dredger", "Ferry", "Glider", "Hammer", "Jigsaw", "Kiln", "Lathe")
_FAULTS = {
    "does not start": ("Hold the switch for {n} seconds.", "Renew fuse {n}."),
    "is too loud": ("Oil the wheel with {n} drops.", "Tighten screw {n}."),
    "shows a red light": ("Press the button {n} times.", "Replace filter {n}."),
}
_BOOK = f"{HOME}/Documents/support.xlsx"
_NOTE = f"{HOME}/Documents/week.txt"
_WORDINGS = (
    "Please handle the support tickets in the browser. {which} {answer} {sheet} Save the workbook as xlsx. "
    "At "
    "last, {note}. Change nothing else.",
    "Some customers wait for help. {which} {answer} {sheet} Save that in the same format, and then {note}. "
    "All "
    "else stays as it is.",
    "Go through the tracker that is open in the browser. {which} {answer} {sheet} Keep the xlsx format when "
    "you save. Also {note}. Leave other tickets alone.",
    "Our support has fallen behind. {which} {answer} {sheet} Save the workbook, still as xlsx. Finally "
    "{note}. "
    "Nothing else is to change.",
    "Would you take over the support today? {which} {answer} {sheet} The workbook is saved as xlsx. When you "
    "are done, {note}. Do not change other tickets or files.",
    "The tracker in the browser has new tickets. {which} {answer} {sheet} Save it as the xlsx file that it "
    "is. After that, {note}. Everything else remains.",
)


def _manual(dice: random.Random, products: Sequence[str]) -> Wiki:
    """Draw a wiki with a page for each product and a section for each fault."""
    pages = {
        product: {
            f"It {fault}": [dice.choice(ways).format(n=dice.randrange(2, 60)), "Call us if it stays so."]
            for fault, ways in _FAULTS.items()
        }
        for product in products
    }
    return wiki(dice, pages, PORT + 1, "")


def _tickets(dice: random.Random, products: Sequence[str], level: int) -> list[Row]:
    """Draw tickets: those meant are open and have no team; each of the others differs in one of both."""
    usual = {"area": "Printers", "status": "Open", "team": "Hardware"}
    rows: list[Row] = [{"team": "Unassigned", "status": "Open"} for _ in range(_MEANT[level])]
    rows += [
        dice.choice(
            ({}, {"team": "Unassigned", "status": "Closed"}, {"team": "Unassigned", "status": "Waiting"})
        )
        for _ in range(_OTHERS[level])
    ]
    dice.shuffle(rows)
    made = []
    for row in rows:
        product, fault = dice.choice(products), dice.choice(list(_FAULTS))
        made.append({**usual, **row, "title": f"Trouble with {product}", "text": f"Our {product} {fault}."})
    return made


def _draft(dice: random.Random, level: int) -> Draft:
    products = dice.sample(_PRODUCTS, 2 + level)
    guide = _manual(dice, products)
    desk = tracker(dice, _tickets(dice, products, level))
    window = desk.window
    guide = replace(guide, window=window)
    meant = [at for at, row in enumerate(desk.rows) if (row["status"], row["team"]) == ("Open", "Unassigned")]
    known = {(row["page"], row["heading"]): row["text"].splitlines()[0] for row in guide.rows}
    subjects = [desk.rows[at]["title"].rpartition(" ")[2] for at in meant]
    fixes = [
        known[product, desk.rows[at]["text"].removesuffix(".").replace(f"Our {product}", "It")]
        for at, product in zip(meant, subjects, strict=True)
    ]
    change = {"status": "Waiting", "team": "Hardware"}
    work: dict[int, tuple[Row, str]] = {at: (change, fix) for at, fix in zip(meant, fixes, strict=True)}
    values: dict[str, str | int] = {}
    for row, (at, product) in enumerate(zip(meant, subjects, strict=True), 2):
        values |= {f"B{row}": desk.rows[at]["customer"], f"C{row}": product}
    grid = [["Ticket", "Customer", "Product"], *([desk.rows[at]["number"]] for at in meant)]
    counts = {f"Tickets about {product}:": str(subjects.count(product)) for product in products}
    note = ["This week", *counts, "Signed by the support"]
    read = [
        step
        for at, product in zip(meant, subjects, strict=True)
        for step in (
            *visit(f"/tickets/{desk.rows[at]['number']}", _heading(desk.rows[at]), desk.served.url),
            *guide.read([product])[0][1],
        )
    ]
    parts = [
        desk.part(work, 4, before=[(window, read)]),
        cells_part(_BOOK, "Tickets", values, 3),
        note_part(_NOTE, note, counts, 2),
    ]
    first = guide.rows[0]["text"].splitlines()[1]
    wrong = {
        "one ticket forgotten": replace(
            parts[0], commits=[(window, desk.steps(dict(list(work.items())[:-1])))]
        ),
        "another line of the wiki as note": replace(
            parts[0], commits=[(window, desk.steps({**work, meant[-1]: (change, first)}))]
        ),
    }
    plan = Plan(
        [window, name_of(_BOOK), name_of(_NOTE)],
        parts,
        wrong,
        {"a ticket's number changed": other_cell(_BOOK, "A2", "1")},
        [guide.served.check({}), *given_kept(_BOOK, "Tickets", grid, f"B2:C{len(grid)}")],
    )
    return plan.draft(
        _WORDINGS,
        _asked(guide, counts),
        [
            *serving(desk.served, guide.served),
            *browser(desk.served.url, window, guide.served.url),
            *note_opened(_NOTE, note),
            *calc.opened(_BOOK, calc.workbook({"Tickets": grid})),
        ],
        (_BOOK, _NOTE),
    )


def _asked(guide: Wiki, counts: Mapping[str, str]) -> dict[str, str]:
    return {
        "which": 'It is about all tickets with the status "Open" and the team "Unassigned", whose '
        "numbers "
        f"{_BOOK} lists.",
        "answer": f"The wiki at {guide.served.url} has a page for each product; the first line of the "
        f"section "
        "about the fault says what helps. Add exactly this line to the ticket as a note, with the status "
        '"Waiting" and the team "Hardware".',
        "sheet": "Write the customer and the product of each of these tickets into the workbook.",
        "note": f"complete the lines {quoted_list(counts)} of {_NOTE} with the numbers of these "
        f"tickets, each "
        "after the colon and a space, and save it",
    }


def _heading(row: Row) -> str:
    """Return the heading of a ticket's page."""
    return f"#{row['number']} {row['title']}"


FAMILY = Family("long.support", 1, _draft, ("chromium", "libreoffice_calc", "mousepad"), "full")
