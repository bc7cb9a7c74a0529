"""long.complaints: settle complaints in a tracker and a shop, log them in a workbook, answer a mail.

A terminal may read the services by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from osgym_tasks import calc
from osgym_tasks.family import Draft, Family
from osgym_tasks.goods import goods
from osgym_tasks.long import Plan
from osgym_tasks.long_parts import (
    Mailbox,
    Row,
    cells_part,
    given_kept,
    goods_part,
    mailbox,
    name_of,
    other_cell,
    tracker,
)
from osgym_tasks.pieces import HOME
from osgym_tasks.services import edit_goods
from osgym_tasks.web import Served, browser, serving, visit
from osgym_tasks.webapps.framework import PORT, money

_COMPLAINTS = {1: 3, 2: 4, 3: 6, 4: 9, 5: 13}
_OTHERS = {1: 2, 2: 4, 3: 7, 4: 10, 5: 14}
_QUESTIONS = ("do you deliver on Saturdays?", "may I change the address?", "I should like a receipt.")
_BOOK = f"{HOME}/Documents/orders.xlsx"
_SENT, _PRICED = "A new one is on its way.", "The price is corrected."
_ANSWER = "We sent {} new ones and corrected {} prices."
_WORDINGS = (
    "Please settle the complaints of our customers. {source} {broken} {price} {tickets} {sheet} At the end, "
    "{answer}. Change nothing else.",
    "Some customers are not happy with us. {source} {broken} {price} {tickets} {sheet} Then {answer}. Leave "
    "all else as it is.",
    "Could you see to the complaints today? {source} {broken} {price} {tickets} {sheet} Finally {answer}. "
    "Nothing else is to change.",
    "We have had complaints about orders again. {source} {broken} {price} {tickets} {sheet} When all are "
    "settled, {answer}. Please leave other tickets and goods alone.",
    "I am away today; would you handle the complaints? {source} {broken} {price} {tickets} {sheet} After "
    "that, {answer}. Everything else stays.",
    "Go through what customers complain about. {source} {broken} {price} {tickets} {sheet} Last, {answer}. "
    "Do not change other data.",
)


@dataclass(frozen=True, slots=True)
class _Complaint:
    """A complaint about an order.

    Attributes:
        good: Row of the order's product in the shop.
        cents: Right price, if the complaint is about the price; else None: the product came broken.
    """

    order: int
    good: Row
    cents: int | None

    @property
    def told(self) -> str:
        """Text of its ticket."""
        if self.cents is None:
            return f"Order {self.order}: it came broken, please send a new one."
        return f"Order {self.order}: your catalogue says {money(self.cents)}, your shop does not."

    @property
    def change(self) -> Row:
        """New values of the product."""
        return {"stock": self.good["stock"] - 1} if self.cents is None else {"cents": self.cents}

    @property
    def note(self) -> str:
        """Note in its ticket."""
        return _SENT if self.cents is None else _PRICED

    @property
    def logged(self) -> str:
        """Value of its cell in the workbook."""
        return "new one" if self.cents is None else "price"


def _complaints(dice: random.Random, rows: list[Row], level: int) -> dict[int, _Complaint]:
    """Draw complaints about goods, by the places of these; both kinds occur."""
    places = sorted(dice.sample(range(len(rows)), _COMPLAINTS[level]))
    priced = [True, False, *(dice.random() < 0.5 for _ in places)][: len(places)]
    dice.shuffle(priced)
    orders = dice.sample(range(5000, 7000), len(places))
    return {
        at: _Complaint(order, rows[at], rows[at]["cents"] - dice.randrange(10, 300) if price else None)
        for at, order, price in zip(places, orders, priced, strict=True)
    }


def _draft(dice: random.Random, level: int) -> Draft:
    rows = [{**row, "stock": row["stock"] + 5} for row in goods(dice, _COMPLAINTS[level] + 3 + level)]
    complaints = _complaints(dice, rows, level)
    tables = {"products": rows, "coupons": [], "orders": [], "order_lines": []}
    shop = Served(dice, "shop", "Mill Street Shop", tables, PORT + 1)
    all_orders: list[tuple[int, Row]] = [(one.order, one.good) for one in complaints.values()]
    all_orders += [
        (dice.randrange(7000, 8000) + 1000 * at, dice.choice(rows)) for at in range(_OTHERS[level])
    ]
    all_orders.sort(key=lambda order: order[0])
    grid: list[list[Any]] = [["Order", "Item", "Complaint"], *([no, good["name"]] for no, good in all_orders)]
    asked = [number for number, _ in dice.sample(all_orders, _OTHERS[level] // 2 + 1)]
    desk = tracker(dice, _tickets(dice, complaints.values(), asked))
    window = desk.window
    post = mailbox(dice, ["What did you do about the complaints?"], 2 + level, PORT + 2, window)
    by_order = {one.order: one for one in complaints.values()}
    meant = {at: row for at, row in enumerate(desk.rows) if row["area"] == "Complaints"}
    of = {at: by_order[int(row["title"].split()[1])] for at, row in meant.items()}
    work: dict[int, tuple[Row, str]] = {at: ({"status": "Closed"}, one.note) for at, one in of.items()}
    changes = {at: one.change for at, one in complaints.items()}
    lines = {number: line for line, (number, _) in enumerate(all_orders, 2)}
    values = {f"C{lines[one.order]}": one.logged for one in complaints.values()}
    broken = sum(one.cents is None for one in complaints.values())
    answer = _ANSWER.format(broken, len(complaints) - broken)
    look = [
        step
        for row in meant.values()
        for step in visit(f"/tickets/{row['number']}", f"#{row['number']} {row['title']}", desk.served.url)
    ]
    parts = [
        desk.part(work, 3, before=[(window, look)]),
        replace(goods_part(shop, window, rows, changes), weight=3),
        cells_part(_BOOK, "Orders", values),
        post.part(answer),
    ]
    other = next(at for at in range(len(rows)) if at not in changes)
    mixed = {**dict(list(changes.items())[:-1]), other: {"stock": rows[other]["stock"] - 1}}
    wrong = {
        "one complaint forgotten": replace(
            parts[0], commits=[(window, desk.steps(dict(list(work.items())[:-1])))]
        ),
        "another of the goods": replace(parts[1], commits=[(window, edit_goods(rows, mixed, shop.url))]),
    }
    plan = Plan(
        [window, name_of(_BOOK)],
        parts,
        wrong,
        {"an order renumbered": other_cell(_BOOK, "A2", "1")},
        given_kept(_BOOK, "Orders", grid, f"C2:C{len(grid)}"),
    )
    return plan.draft(
        _WORDINGS,
        _asked(shop, post),
        [
            *serving(desk.served, shop, post.served),
            *browser(desk.served.url, window, shop.url, post.served.url),
            *calc.opened(_BOOK, calc.workbook({"Orders": grid})),
        ],
        (_BOOK,),
    )


def _tickets(dice: random.Random, complaints: Iterable[_Complaint], asked: Sequence[int]) -> list[Row]:
    """Return a ticket for each complaint, and others about the orders with the numbers `asked`, mixed."""
    tickets: list[Row] = [
        {"title": f"Order {one.order}", "area": "Complaints", "text": one.told} for one in complaints
    ]
    for number in asked:
        told = f"Order {number}: {dice.choice(_QUESTIONS)}"
        tickets.append({"title": f"Order {number}", "area": "Questions", "text": told})
    dice.shuffle(tickets)
    return tickets


def _asked(shop: Served, post: Mailbox) -> dict[str, str]:
    return {
        "source": "The tracker in the browser has them: it is about every ticket of the area "
        '"Complaints", '
        f"and {_BOOK} tells the item of each order.",
        "broken": f"If something came broken, take one off its stock in the shop ({shop.url}/keeper).",
        "price": "If the price in the shop is wrong, set it there to the price of the catalogue.",
        "tickets": f'Close each of these tickets, with the note "{_SENT}" for what came broken and '
        f'"{_PRICED}" for prices.',
        "sheet": 'In the workbook, write "new one" or "price" into the column Complaint of their orders, '
        "and save it as xlsx.",
        "answer": f'answer {post.which} at {post.served.url} with exactly "{_ANSWER.format("N", "M")}" '
        "and the two numbers",
    }


FAMILY = Family("long.complaints", 1, _draft, ("chromium", "libreoffice_calc"), "full")
