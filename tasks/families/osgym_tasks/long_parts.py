"""Parts of long tasks: lines of documents and notes, cells of workbooks, rows of local services."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from osgym_tasks import calc, mail, writer
from osgym_tasks.family import Steps
from osgym_tasks.goods import TOWNS
from osgym_tasks.long import Check, Legs, Part
from osgym_tasks.office import UNTIL_IDLE
from osgym_tasks.pieces import execute, key, launch, text_check, upload, vm_file
from osgym_tasks.services import add_meeting, edit_goods, edit_sections, pay, replied, reply, work_tickets
from osgym_tasks.web import Served, replaced, visit
from osgym_tasks.webapps.framework import PORT
from osgym_tasks.webapps.wiki import slug

Row = dict[str, Any]
Filled = Mapping[str, str]
"""Ends of lines by their beginnings, such as ``Total:``."""


def name_of(path: str) -> str:
    """Return the file's name, which its window has in the title."""
    return path.rpartition("/")[2]


def with_ends(rows: Sequence[str], ends: Filled) -> list[str]:
    """Return the lines, those that `ends` names with a space and their end."""
    return [f"{row} {ends[row]}" if row in ends else row for row in rows]


def document_opened(path: str, rows: Sequence[str], kept: str = "document") -> list[dict[str, Any]]:
    """Return the set-up of a document that is open in Writer; when it is idle, it takes the focus no more."""
    return [*writer.opened(path, writer.docx_bytes(rows), kept), execute("bash", "-c", UNTIL_IDLE)]


def document_part(path: str, rows: Sequence[str], ends: Filled, weight: int = 2) -> Part:
    """Return the part that completes lines of a document in Writer and saves it."""
    steps: Steps = [
        [*writer.at_paragraph(rows.index(start)), key("end"), writer.CALM, _text(f" {end}"), writer.CALM]
        for start, end in ends.items()
    ]
    check = writer.wanted_text(path, with_ends(rows, ends))
    return Part("the document", weight, check, [(name_of(path), steps)], [(name_of(path), writer.SAVE)])


def note_opened(path: str, rows: Sequence[str]) -> list[dict[str, Any]]:
    """Return the set-up of a text that is open in Mousepad."""
    lines = "".join(f"{row}\n" for row in rows)
    return [upload({path: lines}), *launch(name_of(path), "mousepad", path, wait_s=90)]


def note_part(path: str, rows: Sequence[str], ends: Filled, weight: int = 2) -> Part:
    """Return the part that completes lines of a text in Mousepad and saves it."""
    steps: Steps = [
        [key("ctrl", "home"), *([key("down")] * rows.index(start)), key("end"), _text(f" {end}")]
        for start, end in ends.items()
    ]
    check = text_check(path, "".join(f"{row}\n" for row in with_ends(rows, ends)))
    return Part("the note", weight, check, [(name_of(path), steps)], [(name_of(path), [[key("ctrl", "s")]])])


def added_lines_part(path: str, rows: Sequence[str], after: int, lines: Sequence[str]) -> Part:
    """Return the part that adds lines below the line `after`, counted from 0, and saves the text."""
    begin = [key("ctrl", "home"), *([key("down")] * after), key("end")]
    steps: Steps = [begin, *([key("enter"), _text(line)] for line in lines)]
    made = [*rows[: after + 1], *lines, *rows[after + 1 :]]
    check = text_check(path, "".join(f"{row}\n" for row in made))
    return Part("the text", 2, check, [(name_of(path), steps)], [(name_of(path), [[key("ctrl", "s")]])])


def _text(text: str) -> dict[str, Any]:
    return {"op": "type", "text": text}


def cells_part(path: str, sheet: str, values: Mapping[str, Any], weight: int = 2) -> Part:
    """Return the part that fills cells (``B2``) of a workbook and saves it."""
    steps = [step for ref, value in values.items() for step in (calc.go(ref), [calc.typed(_shown(value))])]
    check = (
        "check_xlsx_cells",
        vm_file(path),
        {"cells": {f"{sheet}!{ref}": v for ref, v in values.items()}},
    )
    return Part("the cells", weight, check, [(name_of(path), steps)], [(name_of(path), calc.SAVE)])


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def given_kept(path: str, sheet: str, rows: Sequence[Sequence[Any]], area: str) -> list[Check]:
    """Return the conditions that a workbook keeps given values, and its looks outside an area (``B2:C9``)."""
    return [calc.cells(path, {sheet: rows}), calc.rest_kept(path, may_change=[f"{sheet}!{area}"])]


def formulas_part(path: str, sheet: str, formulas: Mapping[str, str]) -> Part:
    """Return the part that enters formulas into cells or areas and saves the workbook."""
    steps: Steps = []
    for area, formula in formulas.items():
        enter = key("alt", "enter") if ":" in area else key("enter")
        steps += [calc.go(area), [_text(formula), calc.pause(), enter, calc.pause()]]
    check = calc.formulas(path, {f"{sheet}!{area}": formula for area, formula in formulas.items()})
    return Part("the formulas", 2, check, [(name_of(path), steps)], [(name_of(path), calc.SAVE)])


def other_cell(path: str, ref: str, value: str) -> Legs:
    """Return legs that change another cell of a workbook and save it."""
    return [(name_of(path), [calc.go(ref), [calc.typed(value)], *calc.SAVE])]


@dataclass(frozen=True, slots=True)
class Mailbox:
    """A web mail whose first message is to be answered.

    Attributes:
        window: Title of the browser's window.
        rows: All messages.
        names: Names by address.
    """

    served: Served
    window: str
    rows: list[Row]
    names: Mapping[str, str]

    @property
    def which(self) -> str:
        """Words for the message to answer."""
        row = self.rows[0]
        return f'the mail from {self.names[row["sender"]]} with the subject "{row["subject"]}"'

    def read(self, count: int) -> Legs:
        """Return legs that read the first messages."""
        steps: Steps = visit("/folders/Inbox", "Inbox", self.served.url)
        for row in self.rows[:count]:
            steps = [*steps, *visit(f"/messages/{row['number']}", row["subject"], self.served.url)]
        return [(self.window, steps)]

    def part(self, text: str, *, sent: str = "", read: int = 1, weight: int = 2) -> Part:
        """Return the part that answers the first message.

        Args:
            text: Right answer.
            sent: Answer that the part's steps send, if it is another one.
        """
        part = self.replies_part({0: text}, weight, read=read)
        return replace(part, commits=self.replies({0: sent or text}))

    def replies(self, texts: Mapping[int, str]) -> Legs:
        """Return legs that answer messages, by their places in `rows`."""
        return [
            (
                self.window,
                [s for at, text in texts.items() for s in reply(self.rows[at], text, self.served.url)],
            )
        ]

    def replies_part(self, texts: Mapping[int, str], weight: int = 2, *, read: int = 0) -> Part:
        """Return the part that answers messages, by their places in `rows`.

        Args:
            read: Number of messages that are read before, from the first one on.
        """
        check = self.served.check({"sent": [replied(self.rows[at], text) for at, text in texts.items()]})
        return Part("the reply", weight, check, self.read(read) if read else [], self.replies(texts))


def mailbox(
    dice: random.Random, texts: Sequence[str], more: int, port: int, window: str, subjects: Sequence[str] = ()
) -> Mailbox:
    """Draw a web mail.

    Args:
        texts: Texts of the messages that matter, each from a person of its own.
        more: Number of other messages.
        subjects: Subjects of the messages that matter; drawn if there are none.
    """
    owner, *senders = mail.people(dice, 3 + len(texts))
    free = dice.sample(
        [one for one in mail.SUBJECTS if one not in subjects], len(mail.SUBJECTS) - len(subjects)
    )
    chosen = [*subjects, *free][: len(texts)]
    rest = [one for one in free if one not in chosen]
    rows = []
    for text, subject, sender in zip(texts, chosen, senders, strict=False):
        said = f"Hello {owner['name'].split()[0]},\n{text}\n{sender['name']}"
        rows.append({**mail.letter(dice, owner, sender, subject), "text": said})
    rows += [mail.letter(dice, owner, dice.choice(senders), dice.choice(rest)) for _ in range(more)]
    rows = mail.dated(dice, rows)
    people = [owner, *senders]
    tables = {
        "people": people,
        "folders": [{"name": name} for name in mail.FOLDERS],
        "messages": rows,
        "sent": [],
    }
    served = Served(dice, "mail", dice.choice(mail.TITLES), tables, port)
    return Mailbox(served, window or served.title, rows, {row["address"]: row["name"] for row in people})


@dataclass(frozen=True, slots=True)
class Bank:
    """A bank with one payee of each name; money is paid from its first account."""

    served: Served
    window: str
    accounts: list[Row]
    payees: list[Row]
    old: list[Row]

    def rows(self, payments: Sequence[tuple[str, int, str]]) -> list[Row]:
        """Return transfers: name of the payee, cents, reference."""
        numbers = {row["name"]: row["number"] for row in self.payees}
        account = self.accounts[0]["number"]
        return [
            {"account": account, "payee": numbers[name], "cents": cents, "reference": reference}
            for name, cents, reference in payments
        ]

    def steps(self, payments: Sequence[tuple[str, int, str]]) -> Steps:
        """Return steps that pay."""
        accounts = [row["number"] for row in self.accounts]
        payees = ["", *sorted(row["number"] for row in self.payees)]
        return pay(self.rows(payments), accounts, payees, self.served.url)

    def part(self, payments: Sequence[tuple[str, int, str]], weight: int = 2) -> Part:
        """Return the part that makes these transfers, after a look at the old ones and the payees."""
        spent = sum(cents for _, cents, _ in payments)
        accounts = [
            {**row, "cents": row["cents"] - spent * (at == 0)} for at, row in enumerate(self.accounts)
        ]
        check = self.served.check({"accounts": accounts, "transfers": [*self.old, *self.rows(payments)]})
        look = [
            *visit("/transfers", "Transfers", self.served.url),
            *visit("/payees", "Payees", self.served.url),
        ]
        return Part(
            "the payments", weight, check, [(self.window, look)], [(self.window, self.steps(payments))]
        )


def bank(
    dice: random.Random,
    names: Sequence[str],
    paid: Sequence[tuple[str, int, str]],
    port: int = PORT,
    window: str = "",
) -> Bank:
    """Draw a bank with payees of these names, which has made some transfers."""
    numbers = dice.sample(range(1000, 10000), len(names))
    payees: list[Row] = [
        {"number": f"P{number}", "name": name, "town": dice.choice(TOWNS)}
        for number, name in zip(numbers, names, strict=True)
    ]
    accounts: list[Row] = [
        {"number": f"A{dice.randrange(100, 1000)}{at}", "name": name, "cents": dice.randrange(10**7, 10**8)}
        for at, name in enumerate(("Current account", "Reserve account"))
    ]
    empty = Served(dice, "bank", dice.choice(_BANKS), {}, port)
    made = Bank(empty, window or empty.title, accounts, payees, [])
    old = made.rows(paid)
    dice.shuffle(old)
    tables = {"accounts": accounts, "payees": payees, "transfers": old}
    served = Served(dice, "bank", empty.title, tables, port)
    return Bank(served, made.window, accounts, payees, old)


_BANKS = ("Harbour Bank", "Valley Bank", "Union Savings", "Old Town Bank")


@dataclass(frozen=True, slots=True)
class Tracker:
    """A tracker of tickets."""

    served: Served
    window: str
    rows: list[Row]

    def steps(self, work: Mapping[int, tuple[Row, str]]) -> Steps:
        """Return steps that give tickets new values and notes."""
        return [
            step
            for at, (change, note) in work.items()
            for step in work_tickets(self.rows, [at], change, note, self.served.url)
        ]

    def part(self, work: Mapping[int, tuple[Row, str]], weight: int = 2, before: Legs = ()) -> Part:
        """Return the part that works on tickets, by their places in `rows`, after other legs."""
        after = replaced(self.rows, {at: change for at, (change, _) in work.items()})
        notes = [{"ticket": self.rows[at]["number"], "text": note} for at, (_, note) in work.items() if note]
        check = self.served.check({"tickets": after, "notes": notes})
        look = visit("/", "Tickets", self.served.url)
        return Part(
            "the tickets", weight, check, [*before, (self.window, look)], [(self.window, self.steps(work))]
        )


def tracker(dice: random.Random, rows: Sequence[Row], port: int = PORT, window: str = "") -> Tracker:
    """Draw a tracker of tickets with these columns, in this order; the others are drawn."""
    first = dice.randrange(200, 900)
    usual = {"status": "Open", "priority": "Normal", "team": "Unassigned"}
    made = [
        {
            "number": first + at,
            "customer": dice.choice(_CUSTOMERS),
            "days": dice.randrange(1, 40),
            **usual,
            **row,
        }
        for at, row in enumerate(rows)
    ]
    served = Served(dice, "tickets", dice.choice(_TRACKERS), {"tickets": made, "notes": []}, port)
    return Tracker(served, window or served.title, made)


_CUSTOMERS = ("Acorn Bakery", "Bluestone Hotel", "Copper Cinema", "Delta Dental", "Elm Street School")
_TRACKERS = ("Help Desk", "Service Desk", "Support Tracker", "Ticket Board")


@dataclass(frozen=True, slots=True)
class Wiki:
    """A wiki of sections."""

    served: Served
    window: str
    rows: list[Row]

    def read(self, pages: Sequence[str]) -> Legs:
        """Return legs that read pages."""
        return [
            (self.window, [s for page in pages for s in visit(f"/wiki/{slug(page)}", page, self.served.url)])
        ]

    def steps(self, edits: Mapping[int, tuple[int, str]]) -> Steps:
        """Return steps that put lines into sections, by the places of these in `rows`."""
        return edit_sections(self.rows, edits, self.served.url)

    def part(self, edits: Mapping[int, tuple[int, str]], weight: int = 2) -> Part:
        """Return the part that changes lines of sections."""
        after = [dict(row) for row in self.rows]
        for at, (where, text) in edits.items():
            lines = after[at]["text"].splitlines()
            lines[where : where + 1] = [text]
            after[at]["text"] = "\n".join(lines)
        pages = dict.fromkeys(self.rows[at]["page"] for at in edits)
        return Part(
            "the wiki",
            weight,
            self.served.check({"sections": after}),
            self.read([*pages][:1]),
            [(self.window, self.steps(edits))],
        )


def wiki(
    dice: random.Random, pages: Mapping[str, Mapping[str, Sequence[str]]], port: int, window: str
) -> Wiki:
    """Draw a wiki of these pages: lines by section."""
    rows: list[Row] = [
        {"page": page, "place": number, "heading": heading, "text": "\n".join(lines)}
        for page, sections in pages.items()
        for number, (heading, lines) in enumerate(sections.items(), 1)
    ]
    served = Served(dice, "wiki", dice.choice(_WIKIS), {"sections": rows}, port)
    return Wiki(served, window or served.title, rows)


_WIKIS = ("Town Wiki", "House Wiki", "Team Wiki", "Island Wiki")


def meetings_part(
    served: Served, window: str, names: Sequence[str], old: Sequence[Row], new: Sequence[Row]
) -> Part:
    """Return the part that adds meetings to a planner."""
    steps = [step for row in new for step in add_meeting(names, row, served.url)]
    return Part("the meetings", 2, served.check({"meetings": [*old, *new]}), [], [(window, steps)])


def goods_part(served: Served, window: str, rows: Sequence[Row], changes: Mapping[int, Row]) -> Part:
    """Return the part that changes goods of a shop as its keeper."""
    look = visit("/keeper", "For the keeper", served.url)
    steps = edit_goods(rows, changes, served.url)
    check = served.check({"products": replaced(rows, changes)})
    return Part("the goods", 2, check, [(window, look)], [(window, steps)])
