"""long.stock_take: compare counted goods with a shop, correct the shop, and report by a note and a mail.

A terminal may read the services by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from osgym_tasks import calc
from osgym_tasks.desk import quoted_list
from osgym_tasks.family import Draft, Family
from osgym_tasks.goods import goods
from osgym_tasks.long import Plan
from osgym_tasks.long_parts import (
    Mailbox,
    Row,
    cells_part,
    formulas_part,
    given_kept,
    goods_part,
    mailbox,
    name_of,
    note_opened,
    note_part,
    other_cell,
)
from osgym_tasks.pieces import HOME
from osgym_tasks.services import edit_goods
from osgym_tasks.web import Served, browser, serving
from osgym_tasks.webapps.framework import PORT

_COUNTED = {1: 5, 2: 9, 3: 14, 4: 21, 5: 29}
_WRONG = {1: 2, 2: 4, 3: 7, 4: 11, 5: 16}
_SHOPS = ("Corner Shop", "Old Mill Store", "Harbour Goods", "Market Hall")
_BOOK = f"{HOME}/Documents/counts.xlsx"
_NOTE = f"{HOME}/Documents/stock-taking.txt"
_ANSWER = "We corrected {} goods."
_WORDINGS = (
    "We counted our goods; the result is in {book}. {fill} {formula} Save the workbook as xlsx. {shop} Then "
    "complete {note}, and {answer}. Change nothing else.",
    "Please finish the stock-taking. The counted numbers stand in {book}. {fill} {formula} Save that in the "
    "same format. {shop} Fill in {note}. When this is done, {answer}. All else stays as it is.",
    "The numbers in {book} were counted in the shop that the browser shows. {fill} {formula} Save the file "
    "(keep xlsx). {shop} After that, complete {note}. Finally {answer}. Leave other things alone.",
    "Stock-taking is over, and {book} has what was counted. {fill} {formula} Keep the format when you save. "
    "{shop} I need the figures in {note}, too. At last, {answer}. Nothing else is to change.",
    "Compare what we counted ({book}) with the shop in the browser. {fill} {formula} Save the xlsx file. "
    "{shop} Put the results into {note}. Then {answer}. Other data must not change.",
    "I have counted everything and noted it in {book}, which is open. {fill} {formula} Save it as xlsx. "
    "{shop} "
    "Also fill in {note}, and {answer}. Everything else stays untouched.",
)


def _table(dice: random.Random, rows: Sequence[Row], counted: Sequence[int]) -> list[list[Any]]:
    shelves = [f"{dice.choice('ABCD')}{dice.randrange(1, 40)}" for _ in rows]
    lines = [[row["name"], shelf, count] for row, shelf, count in zip(rows, shelves, counted, strict=True)]
    return [["Item", "Shelf", "Counted", "In the shop", "Difference"], *lines]


def _draft(dice: random.Random, level: int) -> Draft:
    rows = goods(dice, _COUNTED[level] + 3)
    places = dice.sample(range(len(rows)), _COUNTED[level])
    differ = sorted(dice.sample(places, _WRONG[level]))
    off = dict(zip(differ, dice.sample([*range(-40, 0), *range(1, 60)], len(differ)), strict=True))
    rows = [{**row, "stock": row["stock"] + 50} for row in rows]
    counted = [rows[at]["stock"] + off.get(at, 0) for at in places]
    tables = {"products": rows, "coupons": [], "orders": [], "order_lines": []}
    shop = Served(dice, "shop", dice.choice(_SHOPS), tables)
    window = shop.title
    post = mailbox(dice, ["How many goods did you have to correct?"], 3 + level, PORT + 1, window)
    table = _table(dice, [rows[at] for at in places], counted)
    last = len(table)
    surplus = max(0, *off.values())
    ends = {
        "Goods counted:": str(len(places)),
        "Goods corrected:": str(len(differ)),
        "Largest difference (counted minus shop):": str(surplus),
    }
    note = ["Stock-taking", *ends, "Signed by the keeper"]
    changes = {at: {"stock": rows[at]["stock"] + off[at]} for at in differ}
    parts = [
        cells_part(_BOOK, "Counts", {f"D{row}": rows[at]["stock"] for row, at in enumerate(places, 2)}),
        formulas_part(_BOOK, "Counts", {f"E2:E{last}": "=C2-D2"}),
        goods_part(shop, window, rows, changes),
        note_part(_NOTE, note, ends),
        post.part(_ANSWER.format(len(differ))),
    ]
    parts[0] = replace(parts[0], legs=[*parts[2].legs, *parts[0].legs])
    fewer = {at: changes[at] for at in differ[:-1]}
    wrong = {
        "one of the goods not corrected": replace(
            parts[2], commits=[(window, edit_goods(rows, fewer, shop.url))]
        ),
        "another number in the reply": post.part(
            _ANSWER.format(len(differ)), sent=_ANSWER.format(len(places))
        ),
    }
    plan = Plan(
        [window, name_of(_BOOK), name_of(_NOTE)],
        parts,
        wrong,
        {"a counted number changed": other_cell(_BOOK, "C2", "1000")},
        given_kept(_BOOK, "Counts", table, f"D2:E{last}"),
    )
    return plan.draft(
        _WORDINGS,
        _asked(post, ends),
        [
            *serving(shop, post.served),
            *browser(shop.url, window, post.served.url),
            *note_opened(_NOTE, note),
            *calc.opened(_BOOK, calc.workbook({"Counts": table})),
        ],
        (_BOOK, _NOTE),
    )


def _asked(post: Mailbox, ends: Mapping[str, str]) -> dict[str, str]:
    return {
        "book": _BOOK,
        "fill": 'Write into the column "In the shop" the stock that the page "For the keeper" of the '
        "shop in "
        "the browser has of each item.",
        "formula": "Each cell of the column Difference gets a formula: counted minus in the shop.",
        "shop": "Where the two differ, set the stock in the shop to the counted number.",
        "note": f"the lines {quoted_list(ends)} of {_NOTE}, each number after the colon and a space, and "
        "save it",
        "answer": f'answer {post.which} at {post.served.url} with exactly "{_ANSWER.format("N")}", where '
        "N is the number of corrected goods",
    }


FAMILY = Family("long.stock_take", 1, _draft, ("chromium", "libreoffice_calc", "mousepad"), "full")
