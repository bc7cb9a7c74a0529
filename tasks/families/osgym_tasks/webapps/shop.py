"""A shop: goods in variants, a basket, coupons, orders; and for its keeper, prices and stock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from osgym_tasks.webapps.framework import (
    Answer,
    Page,
    Request,
    Site,
    To,
    cents_of,
    esc,
    field,
    fields,
    form,
    link,
    money,
    select,
    serve,
    table,
)

SCHEMA = {
    "products": ("id", "name", "category", "colours", "sizes", "cents", "stock", "sold"),
    "coupons": ("code", "percent"),
    "orders": ("number", "name", "street", "town", "delivery", "coupon", "cents"),
    "order_lines": ("number", "product", "colour", "size", "quantity"),
}
"""`colours` and `sizes` have one a line; `sold` is "yes" or "no"."""
DELIVERIES = ("Standard", "Express", "Pick up")
SITE = Site(SCHEMA, {"/": "Goods", "/basket": "Basket", "/checkout": "Checkout", "/keeper": "For the keeper"})


@SITE.get("/")
def goods(request: Request) -> Page:
    """What is for sale, by category or name."""
    wanted = request.text("q").lower()
    found = SITE.do("select * from products where sold = 'yes' order by id")
    rows = [
        (link(f"/goods/{row['id']}", row["name"]), esc(row["category"]), money(row["cents"]))
        for row in found
        if wanted in f"{row['name']} {row['category']}".lower()
    ]
    search = f"<form>{field('Search', 'q', request.text('q'))}<button>Search</button></form>"
    return Page("Goods", search + table(("Name", "Category", "Price"), rows))


@SITE.get("/goods/<>")
def product(request: Request, number: str) -> Page:
    """One of the goods, to be put into the basket."""
    row = SITE.one(
        "select * from products where id = ? and sold = 'yes'", int(number) if number.isdecimal() else 0
    )
    body = fields(
        select("Colour", "colour", row["colours"].splitlines()),
        select("Size", "size", row["sizes"].splitlines()),
        field("Quantity", "quantity", 1, "number", 'min="1" max="99"'),
    )
    body += f'<input type="hidden" name="product" value="{row["id"]}">'
    said = f"<p>{esc(row['category'])}, {money(row['cents'])} each</p>"
    return Page(row["name"], said + form("/basket", body, "Add to basket"))


@SITE.post("/basket")
def put(request: Request) -> Answer:
    """Put into the basket."""
    row = SITE.one("select * from products where id = ?", int(request.text("product")))
    quantity, colour, size = (request.text(name) for name in ("quantity", "colour", "size"))
    fits = colour in row["colours"].splitlines() and size in row["sizes"].splitlines()
    if not fits or not quantity.isdecimal() or not 0 < int(quantity) < 100:
        return To(f"/goods/{row['id']}", "Choose a colour, a size and a quantity from 1 to 99.")
    basket = request.session.setdefault("basket", {})
    entry = (row["id"], colour, size)
    basket[entry] = basket.get(entry, 0) + int(quantity)
    return To("/basket", f"{row['name']} was added.")


def _lines(request: Request) -> list[tuple[dict[str, Any], str, str, int]]:
    entries = request.session.get("basket", {}).items()
    return [
        (SITE.one("select * from products where id = ?", number), colour, size, quantity)
        for (number, colour, size), quantity in entries
    ]


@SITE.get("/basket")
def basket(request: Request) -> Page:
    """What is in the basket."""
    rows = [
        (
            esc(row["name"]),
            esc(colour),
            esc(size),
            str(quantity),
            money(row["cents"] * quantity),
            form(f"/basket/remove/{place}", "", f"Remove {row['name']}"),
        )
        for place, (row, colour, size, quantity) in enumerate(_lines(request))
    ]
    more = f"<p>{link('/checkout', 'Go to checkout')}</p>" if rows else "<p>The basket is empty.</p>"
    return Page("Basket", table(("Name", "Colour", "Size", "Quantity", "Price", ""), rows) + more)


@SITE.post("/basket/remove/<>")
def remove(request: Request, place: str) -> To:
    """Take one line out of the basket."""
    entries = list(request.session.get("basket", {}))
    if place.isdecimal() and int(place) < len(entries):
        del request.session["basket"][entries[int(place)]]
    return To("/basket", "It was removed.")


@SITE.get("/checkout")
def checkout(request: Request) -> Page:
    """Where the basket is to go."""
    total = sum(row["cents"] * quantity for row, _, _, quantity in _lines(request))
    body = fields(
        field("Name", "name"),
        field("Street", "street"),
        field("Town", "town"),
        select("Delivery", "delivery", DELIVERIES),
        field("Coupon", "coupon"),
    )
    return Page("Checkout", f"<p>The goods cost {money(total)}.</p>{form('/checkout', body, 'Place order')}")


@SITE.post("/checkout")
def order(request: Request) -> To:
    """Place the order."""
    lines = _lines(request)
    said = {name: request.text(name) for name in ("name", "street", "town", "delivery")}
    coupon = request.text("coupon").upper()
    percents = {row["code"]: row["percent"] for row in SITE.do("select * from coupons")}
    if not lines or not all(said.values()):
        return To("/checkout", "An order needs goods in the basket, a name, a street and a town.")
    if coupon and coupon not in percents:
        return To("/checkout", "There is no such coupon.")
    number = SITE.one("select count(*) as n from orders")["n"] + 1
    cents = total(((row["cents"], quantity) for row, _, _, quantity in lines), percents.get(coupon, 0))
    SITE.add("orders", number=number, **said, coupon=coupon, cents=cents)
    for row, colour, size, quantity in lines:
        SITE.add("order_lines", number=number, product=row["id"], colour=colour, size=size, quantity=quantity)
    request.session.pop("basket")
    return To("/", f"Thank you. Your order has the number {number}.")


def total(lines: Any, percent: int) -> int:
    """What goods cost in cents, less the coupon's part."""
    cents: int = sum(cents * quantity for cents, quantity in lines)
    return cents - cents * percent // 100


@SITE.get("/keeper")
def keeper(request: Request) -> Page:
    """All goods, for who keeps the shop."""
    rows: list[Sequence[str]] = [
        (link(f"/keeper/{row['id']}", f"Edit {row['id']}"), *map(esc, (row["name"], row["category"])),
         money(row["cents"]), esc(row["stock"]), esc(row["sold"]))
        for row in SITE.do("select * from products order by id")
    ]  # fmt: skip
    return Page("For the keeper", table(("", "Name", "Category", "Price", "Stock", "For sale"), rows))


@SITE.get("/keeper/<>")
def edit(request: Request, number: str) -> Page:
    """One of the goods, to be changed."""
    row = SITE.one("select * from products where id = ?", int(number) if number.isdecimal() else 0)
    body = fields(
        field("Name", "name", row["name"]),
        field("Price", "price", money(row["cents"])),
        field("Stock", "stock", row["stock"]),
        select("For sale", "sold", ("yes", "no"), row["sold"]),
    )
    return Page(f"Edit {row['id']}", form(f"/keeper/{row['id']}", body, "Save"))


@SITE.post("/keeper/<>")
def change(request: Request, number: str) -> To:
    """Change one of the goods."""
    row = SITE.one("select * from products where id = ?", int(number) if number.isdecimal() else 0)
    name, stock, sold = (request.text(part) for part in ("name", "stock", "sold"))
    cents = cents_of(request.text("price"))
    if not name or cents is None or not stock.isdecimal() or sold not in ("yes", "no"):
        return To(
            f"/keeper/{row['id']}", "Not saved: a name, a price and a whole number in stock are needed."
        )
    SITE.do(
        "update products set name = ?, cents = ?, stock = ?, sold = ? where id = ?",
        *(name, cents, int(stock), sold, row["id"]),
    )
    return To("/keeper", f"{name} was saved.")


if __name__ == "__main__":
    serve(SITE)
