"""long.month_close: pay the open bills of a workbook, complete it and a report, and answer a mail."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from osgym_tasks import calc, writer
from osgym_tasks.family import Draft, Family
from osgym_tasks.long import Plan
from osgym_tasks.long_parts import (
    Bank,
    Mailbox,
    bank,
    cells_part,
    document_opened,
    document_part,
    formulas_part,
    given_kept,
    mailbox,
    name_of,
    other_cell,
)
from osgym_tasks.pieces import HOME
from osgym_tasks.web import browser, serving
from osgym_tasks.webapps.framework import PORT, money

_BILLS = {1: 6, 2: 10, 3: 16, 4: 24, 5: 32}
_OPEN = {1: 2, 2: 3, 3: 5, 4: 8, 5: 12}
_SUPPLIERS = (
    "Akers Timber", "Bloom Paper", "Corvin Tools", "Dray Freight", "Elder Foods", "Finch Cleaning",
    "Grove Print", "Hale Heating", "Ister Glass", "Jarvis Lamps", "Keel Boats", "Lund Textiles",
    "Marsh Catering", "Nile Water", "Orm Security", "Pell Signs", "Quay Storage", "Rudd Electric",
)  # fmt: skip
_BOOK = f"{HOME}/Documents/bills.xlsx"
_ANSWER = "We paid {} today."
_WORDINGS = (
    "Please close the month. {book} lists our bills, and the bank in the browser shows under Transfers which "
    "of them are paid: the reference of a transfer is the number of its bill. {pay} Then {fill}, {sum}, and "
    "save the workbook as xlsx. Complete {report}. At last, {answer}. Change nothing else.",
    "It is the end of the month. Compare {book} with the transfers of the bank in the browser; their "
    "references are numbers of bills. {pay} In the workbook, {fill} and {sum}; save it in the same format. "
    "Fill in {report}. Then {answer}. All else stays as it is.",
    "Some bills in {book} are not paid yet: the bank, open in the browser, has no transfer with their number "
    "as its reference. {pay} Afterwards {fill}, {sum}, and save the xlsx file. Fill in {report}. When that "
    "is done, {answer}. Nothing else is to change.",
    "I need the month closed. Bills are in {book}, payments at the bank in the browser, where the reference "
    "is the bill's number. {pay} Record it in the workbook: {fill}, {sum}, save. Then fill in {report}, and "
    "{answer}. Leave everything else alone.",
    "Go through the bills of {book} and find out at the bank in the browser which have been paid, by the "
    "references of the transfers. {pay} Next, {fill} and {sum}, and save the workbook in its format. Also "
    "complete {report}, and {answer}. Do not change other things.",
    "For the monthly accounts: a bill of {book} is paid if a transfer of the bank in the browser has its "
    "number as reference. {pay} Update the workbook ({fill}; {sum}) and save it as xlsx. Complete {report} "
    "as well. Finally {answer}. Other content stays.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    numbers = sorted(dice.sample(range(1000, 9999), _BILLS[level]))
    bills = [(dice.choice(_SUPPLIERS), dice.randrange(1500, 90000), f"B{number}") for number in numbers]
    open_ = sorted(dice.sample(range(len(bills)), _OPEN[level]))
    due = [bills[at] for at in open_]
    cents = sum(one[1] for one in due)
    payments = bank(dice, _SUPPLIERS, [bill for at, bill in enumerate(bills) if at not in open_])
    window = payments.window
    post = mailbox(dice, ["Please tell me how much you paid today."], 2 + 2 * level, PORT + 1, window)
    rows: calc.Grid = [["Bill", "Supplier", "Amount", "Paid"]]
    rows += [[number, supplier, cents / 100] for supplier, cents, number in bills]
    last, total = len(rows), f"D{len(rows) + 2}"
    marks = {f"D{at + 2}": "now" if at in open_ else "before" for at in range(len(bills))}
    path = writer.path_of(dice)
    ends = {
        "Bills paid before:": str(len(bills) - len(due)),
        "Bills paid now:": str(len(due)),
        "Amount paid now:": money(cents),
    }
    said = writer.sentences(dice, 2 + level)
    report = [*said[:2], *ends, *said[2:]]
    reply = post.part(_ANSWER.format(money(cents)))
    parts = [
        payments.part(due, 3),
        cells_part(_BOOK, "Bills", marks),
        formulas_part(_BOOK, "Bills", {total: f'=SUMIF(D2:D{last},"now",C2:C{last})'}),
        document_part(path, report, ends),
        reply,
    ]
    wrong = {
        "one bill not paid": replace(parts[0], commits=[(window, payments.steps(due[:-1]))]),
        "another amount in the reply": post.part(
            _ANSWER.format(money(cents)), sent=_ANSWER.format(money(cents + due[0][1]))
        ),
    }
    plan = Plan(
        [window, name_of(_BOOK), name_of(path)],
        parts,
        wrong,
        {"another cell changed": other_cell(_BOOK, "B2", "Nobody")},
        [*given_kept(_BOOK, "Bills", rows, f"D2:{total}"), writer.rest_kept(path)],
    )
    return plan.draft(
        _WORDINGS,
        _asked(payments, post, total, path, ends),
        [
            *serving(payments.served, post.served),
            *browser(payments.served.url, window, post.served.url),
            *calc.opened(_BOOK, calc.workbook({"Bills": rows})),
            *document_opened(path, report),
        ],
        (_BOOK, path),
    )


def _asked(payments: Bank, post: Mailbox, total: str, path: str, ends: Mapping[str, str]) -> dict[str, str]:
    lines = ", ".join(f'"{line}"' for line in ends)
    return {
        "book": _BOOK,
        "pay": f"Pay every other bill from the {payments.accounts[0]['name']} to its supplier, with the "
        "number of the bill as reference.",
        "fill": 'write "before" or "now" into the column Paid of each bill',
        "sum": f'put a formula into {total} that sums the amounts of all bills with "now"',
        "report": f"the lines {lines} of {path}, each figure after the colon and a space, and save it "
        "as docx",
        "answer": f'answer {post.which} at {post.served.url} with exactly "{_ANSWER.format("N")}", where '
        "N is the amount paid now, with two decimals",
    }


FAMILY = Family("long.month_close", 2, _draft, ("chromium", "libreoffice_calc", "libreoffice_writer"), "full")
