"""A bank: accounts, payees, and transfers that are confirmed on a page of their own."""

from __future__ import annotations

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
    "accounts": ("number", "name", "cents"),
    "payees": ("number", "name", "town"),
    "transfers": ("account", "payee", "cents", "reference"),
}
SITE = Site(
    SCHEMA, {"/": "Accounts", "/payees": "Payees", "/transfers": "Transfers", "/transfer": "New transfer"}
)


@SITE.get("/")
def accounts(request: Request) -> Page:
    """What is on the accounts."""
    rows = [
        (esc(row["name"]), esc(row["number"]), money(row["cents"]))
        for row in SITE.do("select * from accounts")
    ]
    return Page("Accounts", table(("Account", "Number", "Balance"), rows))


@SITE.get("/payees")
def payees(request: Request) -> Page:
    """Who is paid."""
    found = SITE.do("select * from payees order by name, number")
    rows = [
        (
            esc(row["name"]),
            esc(row["town"]),
            esc(row["number"]),
            link(f"/transfer?payee={row['number']}", "Pay"),
        )
        for row in found
    ]
    return Page("Payees", table(("Name", "Town", "Number", ""), rows))


@SITE.get("/transfers")
def transfers(request: Request) -> Page:
    """What was paid."""
    rows = [
        (esc(row["account"]), esc(row["payee"]), money(row["cents"]), esc(row["reference"]))
        for row in SITE.do("select * from transfers")
    ]
    return Page("Transfers", table(("Account", "Payee", "Amount", "Reference"), rows))


def _name(row: dict[str, str]) -> str:
    return f"{row['number']} {row['name']}"


@SITE.get("/transfer")
def ask(request: Request) -> Page:
    """What is to be paid."""
    names = [_name(row) for row in SITE.do("select * from payees order by number")]
    chosen = next((name for name in names if name.split()[0] == request.text("payee")), "")
    body = fields(
        select("From", "account", [_name(row) for row in SITE.do("select * from accounts")]),
        select("To", "payee", ["", *names], chosen),
        field("Amount", "amount"),
        field("Reference", "reference"),
    )
    return Page("New transfer", form("/transfer", body, "Continue"))


@SITE.post("/transfer")
def check(request: Request) -> Answer:
    """Show once more what is to be paid."""
    account = request.text("account").split(" ")[0]
    payee = request.text("payee").split(" ")[0]
    found = SITE.do("select * from accounts where number = ?", account)
    to = SITE.do("select * from payees where number = ?", payee)
    cents = cents_of(request.text("amount"))
    if not found or not to or not cents or cents > found[0]["cents"]:
        return To("/transfer", "Choose a payee, and an amount that the account has.")
    draft = {"account": account, "payee": payee, "cents": cents, "reference": request.text("reference")}
    request.session["draft"] = draft
    said = (
        f"<p>From: {esc(found[0]['name'])}, {account}</p>"
        f"<p>To: {esc(to[0]['name'])}, {esc(to[0]['town'])}, {payee}</p>"
        f"<p>Amount: {money(cents)}</p><p>Reference: {esc(draft['reference'])}</p>"
    )
    return Page(
        "Confirm the transfer", said + form("/confirm", "", "Confirm") + f"<p>{link('/', 'Cancel')}</p>"
    )


@SITE.post("/confirm")
def pay(request: Request) -> To:
    """Pay what was shown."""
    draft = request.session.pop("draft", None)
    if draft is None:
        return To("/transfer", "There is nothing to confirm.")
    SITE.add("transfers", **draft)
    SITE.do("update accounts set cents = cents - ? where number = ?", draft["cents"], draft["account"])
    return To("/transfers", "The transfer was made.")


if __name__ == "__main__":
    serve(SITE)
