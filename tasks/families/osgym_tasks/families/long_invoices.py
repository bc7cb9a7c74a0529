"""long.invoices: price orders by a shop, complete their invoices, take paid goods from the stock, report.

A terminal may read the services by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import chain

from osgym_tasks import calc, writer
from osgym_tasks.desk import quoted_list
from osgym_tasks.family import Draft, Family
from osgym_tasks.goods import goods
from osgym_tasks.long import Plan
from osgym_tasks.long_parts import (
    Filled,
    Mailbox,
    Row,
    cells_part,
    document_opened,
    document_part,
    formulas_part,
    given_kept,
    goods_part,
    mailbox,
    name_of,
    other_cell,
)
from osgym_tasks.pieces import HOME
from osgym_tasks.services import edit_goods
from osgym_tasks.web import Served, browser, serving
from osgym_tasks.webapps.framework import PORT, money

_ORDERS = {1: 2, 2: 3, 3: 4, 4: 6, 5: 10}
_CUSTOMERS = ("Acorn Bakery", "Bluestone Hotel", "Copper Cinema", "Delta Dental", "Elm Street School",
              "Fern Nursery", "Gale Theatre", "Hill Farm", "Inlet Museum", "Jasper Studio", "Kestrel Inn",
              "Lime Gallery")  # fmt: skip
_SHOPS = ("Corner Shop", "Old Mill Store", "Harbour Goods", "Market Hall")
_BOOK = f"{HOME}/Documents/orders.xlsx"
_ANSWER = "{} are still open."
_LINES = ("Goods:", "Price of one:", "Amount:", "Paid:")
_WORDINGS = (
    "Please do the invoices. Our orders are in {book}. {price} {paid} {formula} Save the workbook as xlsx. "
    "{invoices} {stock} At last, {answer}. Change nothing else.",
    "It is time to write invoices for the orders of {book}. {price} {paid} {formula} Save it in the same "
    "format. {invoices} {stock} Then {answer}. All else stays as it is.",
    "Could you take over the invoices? {book} lists what was ordered. {price} {paid} {formula} Keep xlsx "
    "when you save. {invoices} {stock} When that is done, {answer}. Leave other things alone.",
    "The orders in {book} need invoices today. {price} {paid} {formula} Save the xlsx file. {invoices} "
    "{stock} Finally {answer}. Nothing else is to change.",
    "I have to send out the invoices for {book}, and need your help. {price} {paid} {formula} The workbook "
    "stays xlsx. {invoices} {stock} In the end, {answer}. Please touch nothing else.",
    "Go through the orders in the open workbook {book}. {price} {paid} {formula} Save it as xlsx. {invoices} "
    "{stock} After all that, {answer}. Other content remains.",
)


@dataclass(frozen=True, slots=True)
class _Order:
    number: str
    customer: str
    place: int
    item: str
    units: int
    cents: int
    is_paid: bool

    @property
    def amount(self) -> int:
        """Amount in cents."""
        return self.units * self.cents

    @property
    def path(self) -> str:
        """Path of its invoice."""
        return f"{HOME}/Documents/invoice-{self.number}.docx"

    @property
    def paid(self) -> str:
        return "yes" if self.is_paid else "no"

    @property
    def ends(self) -> Filled:
        """Ends of the lines of its invoice."""
        texts = (f"{self.units} x {self.item}", money(self.cents), money(self.amount), self.paid)
        return dict(zip(_LINES, texts, strict=True))


def _orders(dice: random.Random, rows: list[Row], count: int) -> list[_Order]:
    """Draw orders, at least one of them paid and one not."""
    paid = [True, False, *(dice.random() < 0.6 for _ in range(count))][:count]
    dice.shuffle(paid)
    return [
        _Order(str(number), customer, at, rows[at]["name"], dice.randrange(2, 20), rows[at]["cents"], is_paid)
        for number, customer, at, is_paid in zip(
            sorted(dice.sample(range(1000, 9999), count)),
            dice.sample(_CUSTOMERS, count),
            dice.sample(range(len(rows)), count),
            paid,
            strict=True,
        )
    ]


def _post(dice: random.Random, orders: list[_Order], window: str) -> Mailbox:
    """Draw a web mail with the treasurer's question, then a message about each order."""
    texts = [
        f"We paid for order {one.number} today."
        if one.is_paid
        else f"We will pay for order {one.number} soon."
        for one in orders
    ]
    subjects = [f"Order {one.number}" for one in orders]
    return mailbox(
        dice, ["How much is still open?", *texts], 2, PORT + 1, window, ["Open invoices", *subjects]
    )


def _draft(dice: random.Random, level: int) -> Draft:
    rows = [{**row, "stock": row["stock"] + 30} for row in goods(dice, _ORDERS[level] + 2 + level)]
    orders = _orders(dice, rows, _ORDERS[level])
    tables = {"products": rows, "coupons": [], "orders": [], "order_lines": []}
    shop = Served(dice, "shop", dice.choice(_SHOPS), tables)
    post = _post(dice, orders, shop.title)
    table: calc.Grid = [["Order", "Customer", "Item", "Units", "Price", "Paid", "Amount"]]
    table += [[int(one.number), one.customer, one.item, one.units] for one in orders]
    last = len(table)
    cells = {f"E{at}": one.cents / 100 for at, one in enumerate(orders, 2)}
    marks = {f"F{at}": one.paid for at, one in enumerate(orders, 2)}
    documents = {
        one.path: [f"Invoice {one.number}", f"To {one.customer}", *_LINES, "Thank you"] for one in orders
    }
    invoices = [
        replace(document_part(one.path, documents[one.path], one.ends, 1), name=f"invoice {one.number}")
        for one in orders
    ]
    changes = {one.place: {"stock": rows[one.place]["stock"] - one.units} for one in orders if one.is_paid}
    due = money(sum(one.amount for one in orders if not one.is_paid))
    stock = goods_part(shop, shop.title, rows, changes)
    filled = cells_part(_BOOK, "Orders", {**cells, **marks})
    parts = [
        replace(filled, legs=[*stock.legs, *post.read(len(orders) + 1), *filled.legs]),
        formulas_part(_BOOK, "Orders", {f"G2:G{last}": "=D2*E2"}),
        *invoices,
        stock,
        post.part(_ANSWER.format(due)),
    ]
    unpaid = {one.place: {"stock": rows[one.place]["stock"] - one.units} for one in orders}
    other = replace(orders[-1], is_paid=not orders[-1].is_paid)
    wrong = {
        "unpaid goods taken from the stock": replace(
            stock, commits=[(shop.title, edit_goods(rows, unpaid, shop.url))]
        ),
        "one invoice with the other word": replace(
            invoices[-1], legs=document_part(other.path, documents[other.path], other.ends).legs
        ),
    }
    plan = Plan(
        [shop.title, name_of(_BOOK), *map(name_of, documents)],
        parts,
        wrong,
        {"the units of an order changed": other_cell(_BOOK, "D2", "1")},
        [
            *given_kept(_BOOK, "Orders", table, f"E2:G{last}"),
            *(writer.rest_kept(path, kept=name_of(path)) for path in documents),
        ],
    )
    return plan.draft(
        _WORDINGS,
        _named(orders, post),
        [
            *serving(shop, post.served),
            *browser(shop.url, shop.title, post.served.url),
            *calc.opened(_BOOK, calc.workbook({"Orders": table})),
            *chain.from_iterable(
                document_opened(path, lines, name_of(path)) for path, lines in documents.items()
            ),
        ],
        (_BOOK, *documents),
    )


def _named(orders: list[_Order], post: Mailbox) -> dict[str, str]:
    """Return the values that the instruction names."""
    return {
        "book": _BOOK,
        "price": 'Write the price of each item into the column Price, from the page "For the keeper" of '
        "the shop in the browser.",
        "paid": f'The web mail at {post.served.url} has a message "Order NUMBER" for each order: write '
        '"yes" into the column Paid if the customer has paid, else "no".',
        "formula": "Each cell of the column Amount gets a formula: units times price.",
        "invoices": "Then complete the open invoices "
        f"{quoted_list(name_of(one.path) for one in orders)} with a "
        f'space and the text after each colon: "{_LINES[0]}" gets the units and the item (as in "12 x '
        f'Alpine jacket"), "{_LINES[1]}" and "{_LINES[2]}" get two decimals, "{_LINES[3]}" gets yes or '
        "no; save each as docx.",
        "stock": "In the shop, lower the stock of each item that is paid by the units of its order.",
        "answer": f'answer {post.which} with exactly "{_ANSWER.format("N")}", where N is the sum of all '
        "amounts that are not paid, with two decimals",
    }


FAMILY = Family("long.invoices", 1, _draft, ("chromium", "libreoffice_calc", "libreoffice_writer"), "full")
