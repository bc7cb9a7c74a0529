"""long.budget: compare budgets from mails with what a bank paid, in a workbook, a report and answers.

A terminal may read the services by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from osgym_tasks import calc, writer
from osgym_tasks.desk import sentence
from osgym_tasks.family import Draft, Family
from osgym_tasks.long import Plan
from osgym_tasks.long_parts import (
    Bank,
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
from osgym_tasks.web import browser, serving, visit
from osgym_tasks.webapps.framework import PORT, money

_DEPARTMENTS = {1: 3, 2: 5, 3: 8, 4: 11, 5: 15}
_OVER = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}
_NAMES = ("Archive", "Bakery", "Canteen", "Design", "Events", "Fleet", "Garden", "Hostel", "Ironworks",
          "Joinery", "Kitchen", "Library", "Museum", "Nursery", "Orchard", "Pottery", "Quarry",
          "Repairs")  # fmt: skip
_SUPPLIERS = ("Akers Timber", "Bloom Paper", "Corvin Tools", "Dray Freight", "Elder Foods", "Finch Cleaning")
_BOOK = f"{HOME}/Documents/budgets.xlsx"
_ANSWER = "You are over by {}."
_WORDINGS = (
    "How do our departments stand with their budgets? {source} {sheet} {formulas} Save the workbook as xlsx. "
    "I also want it in words: {report}. {answer} Change nothing else.",
    "The board meets tomorrow and asks for the budgets. {source} {sheet} {formulas} Keep the xlsx format "
    "when "
    "you save. Then {report}. {answer} All else stays as it is.",
    "Could you bring the budgets up to date for me? {source} {sheet} {formulas} Save that as the xlsx file "
    "that it is. After that, {report}. {answer} Please leave everything else alone.",
    "Some departments seem to have spent too much; find out which. {source} {sheet} {formulas} Save it, "
    "still "
    "as xlsx. Next, {report}. {answer} Nothing else is to change.",
    "I need an overview of this year's budgets. {source} {sheet} {formulas} The workbook is saved as xlsx. "
    "For our report, {report}. {answer} Do not touch other data.",
    "Before we plan next year, compare budgets and spending. {source} {sheet} {formulas} Save the xlsx file. "
    "Also {report}. {answer} Other content remains unchanged.",
)


@dataclass(frozen=True, slots=True)
class _Department:
    """A department, with amounts in cents."""

    name: str
    last_year: int
    budget: int
    payments: tuple[int, ...]

    @property
    def spent(self) -> int:
        return sum(self.payments)

    @property
    def told(self) -> str:
        """Text of its mail."""
        return (
            f"{self.name} had {money(self.last_year)} last year. For this year, we were granted "
            f"{money(self.budget)}."
        )

    @property
    def state(self) -> str:
        """End of its line in the report."""
        over = self.spent - self.budget
        return f"{money(over)} over" if over > 0 else f"{money(-over)} left"


def _departments(dice: random.Random, level: int) -> list[_Department]:
    names = sorted(dice.sample(_NAMES, _DEPARTMENTS[level]))
    over = dice.sample(names, _OVER[level])
    made = []
    for name in names:
        last_year, budget = (cents * 5000 for cents in dice.sample(range(30, 120), 2))
        spent = budget + dice.randrange(100, 90000) * (1 if name in over else -1)
        first, second = sorted(dice.sample(range(1000, spent - 1000), 2))
        made.append(_Department(name, last_year, budget, (first, second - first, spent - second)))
    return made


def _draft(dice: random.Random, level: int) -> Draft:
    units = _departments(dice, level)
    over = {
        at: _ANSWER.format(one.state.split()[0]) for at, one in enumerate(units) if one.spent > one.budget
    }
    post = mailbox(
        dice, [one.told for one in units], 2 + level, PORT, "", [f"Budget of {one.name}" for one in units]
    )
    window = post.window
    paid = [(dice.choice(_SUPPLIERS), cents, one.name) for one in units for cents in one.payments]
    house = bank(dice, _SUPPLIERS, paid, PORT + 1, window)
    grid = [["Department", "Budget", "Spent", "Left"], *([one.name] for one in units), ["Total"]]
    last, total = len(units) + 1, len(units) + 2
    values: dict[str, float] = {}
    for row, one in enumerate(units, 2):
        values |= {f"B{row}": one.budget / 100, f"C{row}": one.spent / 100}
    formulas = {f"D2:D{last}": "=B2-C2"}
    formulas |= {f"{column}{total}": f"=SUM({column}2:{column}{last})" for column in "BCD"}
    path = writer.path_of(dice)
    ends = {f"{one.name}:": one.state for one in units}
    said = writer.sentences(dice, 2 + level)
    report = [*said[:2], *ends, *said[2:]]
    look = [*post.read(len(units)), (window, visit("/transfers", "Transfers", house.served.url))]
    cells = cells_part(_BOOK, "Budgets", values, 3)
    parts = [
        replace(cells, legs=[*look, *cells.legs]),
        formulas_part(_BOOK, "Budgets", formulas),
        document_part(path, report, ends),
        post.replies_part(over),
    ]
    older = {**values, f"B{last}": units[-1].last_year / 100}
    wrong = {
        "a budget of last year": cells_part(_BOOK, "Budgets", older),
        "a department without a budget left not told": replace(
            parts[3], commits=post.replies(dict(list(over.items())[:-1]))
        ),
    }
    plan = Plan(
        [window, name_of(_BOOK), name_of(path)],
        parts,
        wrong,
        {"a department renamed": other_cell(_BOOK, "A2", "Nobody")},
        [
            *given_kept(_BOOK, "Budgets", grid, f"B2:D{total}"),
            writer.rest_kept(path),
            house.served.check({}),
        ],
    )
    return plan.draft(
        _WORDINGS,
        _asked(units, house, path),
        [
            *serving(post.served, house.served),
            *browser(post.served.url, window, house.served.url),
            *calc.opened(_BOOK, calc.workbook({"Budgets": grid})),
            *document_opened(path, report),
        ],
        (_BOOK, path),
    )


def _asked(units: Sequence[_Department], house: Bank, path: str) -> dict[str, str]:
    return {
        "source": f"It is about {sentence(one.name for one in units)}. Each department wrote a mail "
        '"Budget of …" about what it was granted this year, which the browser shows. What it spent '
        "are the "
        f"transfers of the bank ({house.served.url}) with its name as reference.",
        "sheet": f"Fill in the columns Budget and Spent of {_BOOK}.",
        "formulas": "Put formulas into the column Left (budget minus spent), and into the row Total "
        "sums of "
        "the three columns.",
        "report": f'write into the line of each department in {path} "N left" or "N over", after the '
        f"colon "
        "and a space, where N is the difference with two decimals, and save it as docx",
        "answer": "Finally answer the mail of every department that spent more than its budget, with "
        f'exactly "{_ANSWER.format("N")}" and the same N.',
    }


FAMILY = Family("long.budget", 2, _draft, ("chromium", "libreoffice_calc", "libreoffice_writer"), "full")
