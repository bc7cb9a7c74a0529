"""shop.admin: change prices, stock and sale of similar goods, as the keeper of a shop.

A terminal may read the shop by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from typing import Any

from osgym_tasks.family import Draft, Family, Ways
from osgym_tasks.goods import goods
from osgym_tasks.pieces import DONE
from osgym_tasks.services import edit_goods
from osgym_tasks.web import APPS, Served, replaced
from osgym_tasks.webapps.framework import money

_GOODS = {1: 4, 2: 10, 3: 20, 4: 34, 5: 60}
_EDITS = {1: 1, 2: 1, 3: 3, 4: 5, 5: 8}
_SHOPS = ("Corner Shop", "Old Mill Store", "Harbour Goods", "Market Hall")
_WORDINGS = (
    "In the keeper's pages of the shop that is open in the browser, {edits}. Save each; all other goods "
    "and values stay.",
    "You keep the shop in the browser. There, {edits}. Save that, and change nothing else.",
    "Please {edits} in the pages for the keeper of the open shop, and save. No other value may change.",
    "New prices and deliveries have come in. In the shop that is open, please {edits}, and save each. "
    "Nothing else in the shop may change.",
    "I keep the shop in the browser, and some entries are wrong. Could you {edits}? Save what you change, "
    "and leave the other goods alone.",
    "Before we open again, {edits}. The shop's own pages are in the browser. All other goods and figures "
    "stay.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    rows = goods(dice, _GOODS[level])
    chosen = dice.sample(range(len(rows)), _EDITS[level])
    kinds = ["cents", "stock", "sold"]
    changes: dict[int, dict[str, Any]] = {}
    for number, at in enumerate(chosen):
        first = kinds[number % 3] if level >= 3 else dice.choice(kinds)
        both = level >= 2 and (first != "sold") and (level == 2 or dice.randrange(2) == 0)
        names = ["cents", "stock"] if both else [first]
        changes[at] = {name: _other(dice, rows[at], name) for name in names}
    served = Served(
        dice, "shop", dice.choice(_SHOPS), {"products": rows, "coupons": [], "orders": [], "order_lines": []}
    )
    last = chosen[-1]
    makes = [row["name"].split()[0] == rows[last]["name"].split()[0] for row in rows]
    twin = next((at for at, same in enumerate(makes) if same and at not in changes), None)
    if twin is None:
        twin = next(at for at in range(len(rows)) if at not in changes)
    wrong = {at: change for at, change in changes.items() if at != last} | {
        twin: _for(rows[twin], changes[last])
    }
    near = {
        "another of the goods": [*edit_goods(rows, wrong), DONE],
        "not saved": [*edit_goods(rows, changes)[:-1], DONE],
    }
    if len(chosen) > 1:
        near["one forgotten"] = [*edit_goods(rows, {at: changes[at] for at in chosen[:-1]}), DONE]
    return Draft(
        _WORDINGS,
        {"edits": ", and ".join(_said(rows[at], change) for at, change in changes.items())},
        served.config("/keeper"),
        served.evaluator({"products": replaced(rows, changes)}),
        Ways([*edit_goods(rows, changes), DONE], near),
        changes=(),
    )


def _other(dice: random.Random, row: dict[str, Any], name: str) -> Any:
    if name == "sold":
        return "no" if row["sold"] == "yes" else "yes"
    if name == "stock":
        return dice.choice([number for number in range(200, 999) if number != row["stock"]])
    return dice.randrange(130, 400) * 100 + dice.choice((0, 25, 50, 80))


def _for(row: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return the change, or its reverse where it would change nothing."""
    return {**change, "sold": "no" if row["sold"] == "yes" else "yes"} if "sold" in change else change


def _said(row: dict[str, Any], change: dict[str, Any]) -> str:
    names = {"cents": "the price", "stock": "the stock", "sold": '"For sale"'}
    values = {name: money(value) if name == "cents" else value for name, value in change.items()}
    return " and ".join(f"set {names[name]} of {row['name']} to {value}" for name, value in values.items())


FAMILY = Family("shop.admin", 2, _draft, APPS, "full")
