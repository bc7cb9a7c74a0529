"""none.payee: as bank.transfer, but one of the payees is not at the bank, so only failing is right.

A payee of the same name in another town is there, who must not be paid in that place.
"""

from __future__ import annotations

import random
from dataclasses import replace

from osgym_tasks.families.bank_transfer import WORDINGS, drawn
from osgym_tasks.family import Draft, Family, Ways
from osgym_tasks.pieces import DONE, FAIL, infeasible, key
from osgym_tasks.services import pay
from osgym_tasks.web import APPS, visit


def _draft(dice: random.Random, level: int) -> Draft:
    whole = drawn(dice, level)
    *others, last = whole.asked
    gone, twin = last["payee"], whole.twin(last["payee"])
    bank = replace(
        whole,
        payees=[row for row in whole.payees if row["number"] != gone],
        old=[{**row, "payee": twin} if row["payee"] == gone else row for row in whole.old],
    )
    served = bank.served(dice)
    similar = pay([*others, {**last, "payee": twin}], *bank.lists)
    names = {row["number"]: row["name"] for row in whole.payees}
    looks = [
        step
        for row in whole.asked
        for step in (
            *visit("/payees", "Payees"),
            [key("ctrl", "f"), {"op": "type", "text": names[row["payee"]], "press_enter": True}, key("esc")],
        )
    ]
    near = {
        "the payee of the same name": [*similar, DONE],
        "the payee of the same name, then given up": [*similar, FAIL],
    }
    if others:
        near["the others only"] = [*pay(others, *bank.lists), DONE]
    else:
        near["done without a change"] = [*looks, DONE]
    return Draft(
        WORDINGS,
        whole.named(),
        served.config(),
        infeasible(served.check({})),
        Ways([*looks, FAIL], near),
        changes=(),
    )


FAMILY = Family("none.payee", 1, _draft, APPS, "full")
