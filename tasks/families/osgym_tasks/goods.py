"""Goods of a shop, for the families that buy them or keep the shop."""

from __future__ import annotations

import random
from typing import Any

TOWNS = ("Aarhus", "Brno", "Cork", "Delft", "Evora", "Gdansk", "Innsbruck", "Kaunas", "Maribor", "Tartu")
_KINDS = {
    "Clothes": ("jacket", "jumper", "shirt", "scarf", "trousers", "socks"),
    "Kitchen": ("kettle", "bowl", "pan", "jug", "plate"),
    "Garden": ("watering can", "glove", "pot", "bench"),
    "Office": ("folder", "lamp", "stapler", "notebook"),
}
_MAKES = ("Alpine", "Boreal", "Classic", "Dune", "Everyday", "Fjord", "Granite", "Heritage")
_COLOURS = ("Black", "Blue", "Green", "Orange", "Red", "White", "Yellow")
_SIZES = {"Clothes": ("Small", "Medium", "Large"), "Kitchen": ("1 litre", "2 litres", "3 litres")}


def names(category: str) -> list[str]:
    """Return all names that goods of a category may have."""
    return [f"{make} {kind}" for make in _MAKES for kind in _KINDS[category]]


def goods(dice: random.Random, count: int) -> list[dict[str, Any]]:
    """Draw rows of the table `products`; every fourth is not for sale."""
    everything = [(make, kind, group) for make in _MAKES for group, kinds in _KINDS.items() for kind in kinds]
    return [
        {
            "id": 101 + number,
            "name": f"{make} {kind}",
            "category": group,
            "colours": "\n".join(sorted(dice.sample(_COLOURS, dice.randrange(2, 5)))),
            "sizes": "\n".join(_SIZES.get(group, ("Standard",))),
            "cents": dice.randrange(4, 120) * 100 + dice.choice((0, 50, 90, 95)),
            "stock": dice.randrange(0, 200),
            "sold": "no" if number % 4 == 3 else "yes",
        }
        for number, (make, kind, group) in enumerate(dice.sample(everything, count))
    ]
