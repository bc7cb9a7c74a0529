"""shop.buy: order goods in the right variant and quantity, to an address, with a coupon.

A terminal may look at the shop by curl; an order that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.goods import TOWNS, goods
from osgym_tasks.pieces import DONE, key
from osgym_tasks.targets import click
from osgym_tasks.web import APPS, Served, pick, typed, visit
from osgym_tasks.webapps.shop import DELIVERIES, total

_GOODS = {1: 4, 2: 10, 3: 20, 4: 32, 5: 48}
_LINES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 6}
_NAMES = (
    "Ida Lund",
    "Omar Haddad",
    "Petra Novak",
    "Luis Ortega",
    "Keiko Mori",
    "Jonas Weber",
    "Anya Petrova",
)
_STREETS = (
    "4 Quay Street",
    "19 Elm Road",
    "62 Bridge Lane",
    "8 Castle Hill",
    "27 Orchard Way",
    "51 North Row",
)
_SHOPS = ("Corner Shop", "Old Mill Store", "Harbour Goods", "Market Hall")
WORDINGS = (
    "In the shop that is open in the browser, place one order: {lines}. It goes to {address}.{more} Order "
    "nothing else.",
    "Order for me, all in one order, in the shop in the browser: {lines}. Send it to {address}.{more} "
    "Nothing else is to be ordered.",
    "Please buy {lines} in the open shop, as a single order to {address}.{more} Leave everything else alone.",
    "It's for a birthday, so it has to be right. In the open shop, please order {lines}. It all goes in "
    "one order to {address}.{more} Nothing else, please.",
    "We are out of a few things at home. Could you order {lines} in the shop in the browser, together in "
    "one order, to {address}?{more} Buy nothing more.",
    "My neighbour can't use a computer, so I order for others. Get {lines} from the shop that you see, as "
    "a single order. The address is {address}.{more}",
)


@dataclass(frozen=True, slots=True)
class Order:
    """An order that is asked for: its lines, receiver, and coupon, empty for none."""

    lines: list[dict[str, Any]]
    to: dict[str, str]
    coupon: str

    def named(self, by_id: Mapping[int, Mapping[str, Any]]) -> dict[str, str]:
        """Return the values that the wordings name."""
        said = [
            f"{row['quantity']} of {by_id[row['product']]['name']} in {row['colour']}, size {row['size']}"
            for row in self.lines
        ]
        coupon = f" Use the coupon {self.coupon}." if self.coupon else " There is no coupon."
        return {
            "lines": "; ".join(said),
            "address": f"{self.to['name']}, {self.to['street']}, {self.to['town']}",
            "more": f" The delivery is {self.to['delivery']}.{coupon}",
        }


COUPONS: list[dict[str, Any]] = [
    {"code": f"{word}{percent}", "percent": percent}
    for word in ("SPRING", "FRIEND", "LUCKY")
    for percent in (5, 10, 15)
]


def drawn(dice: random.Random, level: int) -> tuple[list[dict[str, Any]], Order]:
    """Draw the goods of a shop, and an order of some of them."""
    products = goods(dice, _GOODS[level])
    picked = dice.sample([row for row in products if row["sold"] == "yes"], _LINES[level])
    lines = [
        {
            "product": row["id"],
            "colour": dice.choice(row["colours"].splitlines()),
            "size": dice.choice(row["sizes"].splitlines()),
            "quantity": dice.randrange(2, 10) if level >= 2 else 1,
        }
        for row in picked
    ]
    to = {
        "name": dice.choice(_NAMES),
        "street": dice.choice(_STREETS),
        "town": dice.choice(TOWNS),
        "delivery": dice.choice(DELIVERIES[1:]) if level >= 3 else DELIVERIES[0],
    }
    coupon = dice.choice(COUPONS)["code"] if level >= 2 else ""
    return products, Order(lines, to, coupon)


def served_shop(dice: random.Random, products: list[dict[str, Any]]) -> Served:
    """Return a shop with these goods, coupons and no order."""
    tables = {"products": products, "coupons": COUPONS, "orders": [], "order_lines": []}
    return Served(dice, "shop", dice.choice(_SHOPS), tables)


def _draft(dice: random.Random, level: int) -> Draft:
    products, order = drawn(dice, level)
    lines, to, coupon = order.lines, order.to, order.coupon
    served = served_shop(dice, products)
    by_id = {row["id"]: row for row in products}
    cents = total(
        ((by_id[row["product"]]["cents"], row["quantity"]) for row in lines),
        next((row["percent"] for row in COUPONS if row["code"] == coupon), 0),
    )
    last = {**lines[-1]}
    options = by_id[last["product"]]["colours"].splitlines()
    twin = {**last, "colour": next(colour for colour in options if colour != last["colour"])}
    near = {
        "another colour": [*buy(by_id, [*lines[:-1], twin], to, coupon), DONE],
        "not ordered": [*buy(by_id, lines, to, coupon)[:-1], DONE],
    }
    if level == 2:
        near["no coupon"] = [*buy(by_id, lines, to, ""), DONE]
    if len(lines) > 1:
        near["one forgotten"] = [*buy(by_id, lines[:-1], to, coupon), DONE]
    return Draft(
        WORDINGS,
        order.named(by_id),
        served.config(),
        served.evaluator(
            {
                "orders": [{"number": 1, **to, "coupon": coupon, "cents": cents}],
                "order_lines": [{"number": 1, **row} for row in lines],
            }
        ),
        Ways([*buy(by_id, lines, to, coupon), DONE], near),
        changes=(),
    )


def buy(
    by_id: dict[int, dict[str, Any]], lines: list[dict[str, Any]], to: dict[str, str], coupon: str
) -> Steps:
    """Return steps that put each good into the basket, then fill the form of the order field by field."""
    steps: Steps = []
    for row in lines:
        goods = by_id[row["product"]]
        colours, sizes = (goods[name].splitlines() for name in ("colours", "sizes"))
        colour, size = pick(colours, colours[0], row["colour"]), pick(sizes, sizes[0], row["size"])
        steps += [
            *visit(f"/goods/{row['product']}", goods["name"]),
            [key("tab"), *colour, key("tab"), *size],
            [key("tab"), typed(str(row["quantity"])), key("enter")],
            [click("heading", "Basket")],
        ]
    name, street, town = (typed(to[part]) for part in ("name", "street", "town"))
    delivery = pick(DELIVERIES, DELIVERIES[0], to["delivery"])
    told = [key("tab"), name, key("tab"), street, key("tab"), town, key("tab"), *delivery]
    told += [key("tab"), *([typed(coupon)] if coupon else [])]
    return [*steps, *visit("/checkout", "Checkout"), told, [key("tab"), key("enter")]]


FAMILY = Family("shop.buy", 2, _draft, APPS, "full")
