"""none.goods: as shop.buy, but the shop lacks one of the goods, so only failing is right.

Goods of another name are there, which must not be ordered in their place.
"""

from __future__ import annotations

import random

from osgym_tasks.families.shop_buy import WORDINGS, buy, drawn, served_shop
from osgym_tasks.family import Draft, Family, Ways
from osgym_tasks.goods import names
from osgym_tasks.pieces import DONE, FAIL, infeasible, key
from osgym_tasks.web import APPS, typed, visit


def _draft(dice: random.Random, level: int) -> Draft:
    products, order = drawn(dice, level)
    by_id = {row["id"]: row for row in products}
    *others, last = order.lines
    gone = by_id[last["product"]]
    taken = {row["name"] for row in products}
    free = [name for name in names(gone["category"]) if name not in taken]
    kind = gone["name"].partition(" ")[2]
    like = dice.choice([name for name in free if name.partition(" ")[2] == kind] or free)
    there = {number: {**row, "name": like} if row is gone else row for number, row in by_id.items()}
    served = served_shop(dice, list(there.values()))
    similar = buy(there, order.lines, order.to, order.coupon)
    looks = [
        step
        for row in order.lines
        for step in (
            *visit("/", "Goods"),
            [key("tab"), typed(by_id[row["product"]]["name"]), key("enter")],
        )
    ]
    near = {
        "goods like them": [*similar, DONE],
        "goods like them, then given up": [*similar, FAIL],
    }
    if others:
        near["the others only"] = [*buy(there, others, order.to, order.coupon), DONE]
    else:
        near["done without a change"] = [*looks, DONE]
    return Draft(
        WORDINGS,
        order.named(by_id),
        served.config(),
        infeasible(served.check({})),
        Ways([*looks, FAIL], near),
        changes=(),
    )


FAMILY = Family("none.goods", 1, _draft, APPS, "full")
