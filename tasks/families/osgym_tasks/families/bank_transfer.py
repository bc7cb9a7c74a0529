"""bank.transfer: pay the right one of similar payees, from the right account, with a reference.

A terminal may read the bank by curl; a transfer that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from osgym_tasks.family import Draft, Family, Ways
from osgym_tasks.goods import TOWNS
from osgym_tasks.pieces import DONE
from osgym_tasks.services import pay
from osgym_tasks.web import APPS, Served
from osgym_tasks.webapps.framework import money

_PAYEES = {1: 3, 2: 8, 3: 16, 4: 28, 5: 45}
_PAID = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
_FIRST = ("Anna", "Bernd", "Clara", "David", "Erika", "Frank", "Gerda", "Heinz")
_LAST = ("Meier", "Meyer", "Mayer", "Hansen", "Hanssen", "Schmid", "Schmidt", "Olsen")
_FOR = ("Rent", "Piano lessons", "Firewood", "Car repair", "Garden work", "Books", "Concert", "Deposit")
_ACCOUNTS = ("Current account", "Savings account", "Household account")
_BANKS = ("Harbour Bank", "Valley Bank", "Union Savings", "Lakeside Bank")
WORDINGS = (
    "In the bank that is open in the browser, pay what follows, each as a transfer that you confirm: "
    "{payments}. Pay nothing else.",
    "Please pay in the open bank: {payments}. Confirm each, and make no other transfer.",
    "Use the bank in the browser to send the following, each confirmed: {payments}. Nothing more is to be "
    "paid.",
    "My bills are due, and I am already on the train. Could you pay {payments} in the bank that is open? "
    "Each one has to be confirmed, and please pay nothing else.",
    "Before the office closes, I have to get these out of the way: {payments}. The bank is open in the "
    "browser. Confirm every transfer, mind that people can share a name, and make no others.",
    "The treasurer is waiting for some money. In the bank that you see, please transfer {payments}, and go "
    "on until each is confirmed. There must be no other transfers.",
)


Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bank:
    """A bank, and the transfers that are asked for."""

    accounts: list[Row]
    payees: list[Row]
    old: list[Row]
    asked: list[Row]

    @property
    def lists(self) -> tuple[list[str], list[str]]:
        """Numbers of accounts and payees in the order of the form's lists."""
        numbers = ["", *sorted(row["number"] for row in self.payees)]
        return [row["number"] for row in self.accounts], numbers

    def twin(self, number: str) -> str:
        """Return the number of the other payee of the same name."""
        names = {str(row["number"]): row["name"] for row in self.payees}
        return next(one for one, name in names.items() if name == names[number] and one != number)

    def named(self) -> dict[str, str]:
        """Return the values that the wordings name."""
        by_number = {row["number"]: row for row in [*self.accounts, *self.payees]}
        said = [
            f"{money(row['cents'])} from the {by_number[row['account']]['name']} to "
            f"{by_number[row['payee']]['name']} in {by_number[row['payee']]['town']} with the reference "
            f'"{row["reference"]}"'
            for row in self.asked
        ]
        return {"payments": "; ".join(said)}

    def served(self, dice: random.Random) -> Served:
        """Return the bank's site before the transfers."""
        tables = {"accounts": self.accounts, "payees": self.payees, "transfers": self.old}
        return Served(dice, "bank", dice.choice(_BANKS), tables)


def drawn(dice: random.Random, level: int) -> Bank:
    """Draw a bank in which two payees share each name, and transfers."""
    names = [(first, last) for first in _FIRST for last in _LAST]
    dice.shuffle(names)
    paid = _PAID[level]
    people = []
    for given, family in names[: max(paid, (_PAYEES[level] + 1) // 2)]:
        towns = dice.sample(TOWNS, 2)  # the same name twice, in two towns
        people += [(f"{given} {family}", town) for town in towns]
    people = people[: max(_PAYEES[level], 2 * paid)]
    numbers = dice.sample(range(1000, 10000), len(people))
    payees: list[Row] = [{"number": f"P{number}", "name": name, "town": town}
              for number, (name, town) in zip(numbers, people, strict=True)]  # fmt: skip
    accounts: list[Row] = [
        {"number": f"A{dice.randrange(100, 1000)}{at}", "name": name, "cents": dice.randrange(10**6, 10**7)}
        for at, name in enumerate(_ACCOUNTS)
    ]
    chosen = dice.sample(range(2 * paid if level == 1 else len(payees) // 2 * 2), paid)
    transfers: list[Row] = [
        {"account": accounts[0 if level == 1 else dice.randrange(3)]["number"], "payee": payees[at]["number"],
         "cents": dice.randrange(500, 90000), "reference": f"{dice.choice(_FOR)} {dice.randrange(100, 999)}"}
        for at in chosen
    ]  # fmt: skip
    old = [
        {"account": accounts[number % 3]["number"], "payee": dice.choice(payees)["number"],
         "cents": dice.randrange(500, 90000), "reference": f"{dice.choice(_FOR)} {dice.randrange(100, 999)}"}
        for number in range(2 * level)
    ]  # fmt: skip
    dice.shuffle(payees)
    return Bank(accounts, payees, old, transfers)


def _draft(dice: random.Random, level: int) -> Draft:
    bank = drawn(dice, level)
    transfers, lists = bank.asked, bank.lists
    served = bank.served(dice)
    after = [{**row, "cents": row["cents"] - _spent(transfers, row["number"])} for row in bank.accounts]
    last = transfers[-1]
    twin = bank.twin(last["payee"])
    other = next(row["number"] for row in bank.accounts if row["number"] != last["account"])
    near = {
        "the payee of the same name": [*pay([*transfers[:-1], {**last, "payee": twin}], *lists), DONE],
        "not confirmed": [*pay(transfers, *lists)[:-1], DONE],
    }
    if level == 2:
        near["another account"] = [*pay([*transfers[:-1], {**last, "account": other}], *lists), DONE]
    if len(transfers) > 1:
        near["one forgotten"] = [*pay(transfers[:-1], *lists), DONE]
    return Draft(
        WORDINGS,
        bank.named(),
        served.config(),
        served.evaluator({"accounts": after, "transfers": [*bank.old, *transfers]}),
        Ways([*pay(transfers, *lists), DONE], near),
        changes=(),
    )


def _spent(transfers: list[Row], account: str) -> int:
    return sum(row["cents"] for row in transfers if row["account"] == account)


FAMILY = Family("bank.transfer", 2, _draft, APPS, "full")
