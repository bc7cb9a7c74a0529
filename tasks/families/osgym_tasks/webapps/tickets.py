"""A tracker of tickets: a list to look through, and a page for each to work on."""

from __future__ import annotations

from osgym_tasks.webapps.framework import (
    Page,
    Request,
    Site,
    To,
    area,
    esc,
    field,
    fields,
    form,
    link,
    select,
    serve,
    table,
)

SCHEMA = {
    "tickets": ("number", "title", "customer", "area", "status", "priority", "team", "days", "text"),
    "notes": ("ticket", "text"),
}
"""`days` is how old a ticket is; `text` is seen on its own page only."""
STATUSES = ("Open", "Waiting", "Closed")
PRIORITIES = ("Low", "Normal", "High")
TEAMS = ("Unassigned", "Billing", "Network", "Hardware", "Accounts")
SITE = Site(SCHEMA, {"/": "Tickets"})


@SITE.get("/")
def tickets(request: Request) -> Page:
    """All tickets that have a text."""
    wanted = request.text("q").lower()
    rows = [
        (
            link(f"/tickets/{row['number']}", f"#{row['number']}"),
            *(esc(row[column]) for column in SCHEMA["tickets"][1:-1]),
        )
        for row in SITE.do("select * from tickets order by number desc")
        if wanted in f"{row['number']} {row['title']} {row['customer']} {row['area']} {row['status']}".lower()
    ]
    search = f"<form>{field('Search', 'q', request.text('q'))}<button>Search</button></form>"
    heads = ("Number", "Title", "Customer", "Area", "Status", "Priority", "Team", "Age in days")
    return Page("Tickets", search + table(heads, rows))


@SITE.get("/tickets/<>")
def ticket(request: Request, number: str) -> Page:
    """One ticket."""
    row = SITE.one("select * from tickets where number = ?", int(number) if number.isdecimal() else 0)
    notes = SITE.do("select text from notes where ticket = ?", row["number"])
    said = "".join(f"<p>Note: {esc(note['text'])}</p>" for note in notes)
    about = f"<p>{esc(row['customer'])}, {esc(row['area'])}, {row['days']} days old</p>"
    about += f"<p>{esc(row['text'])}</p>{said}"
    body = fields(
        select("Status", "status", STATUSES, row["status"]),
        select("Priority", "priority", PRIORITIES, row["priority"]),
        select("Team", "team", TEAMS, row["team"]),
    )
    body += area("New note", "note")
    return Page(f"#{row['number']} {row['title']}", about + form(f"/tickets/{row['number']}", body, "Save"))


@SITE.post("/tickets/<>")
def work(request: Request, number: str) -> To:
    """Change a ticket, and keep a note if there is one."""
    row = SITE.one("select * from tickets where number = ?", int(number) if number.isdecimal() else 0)
    status, priority, team = (request.text(name) for name in ("status", "priority", "team"))
    if status in STATUSES and priority in PRIORITIES and team in TEAMS:
        SITE.do(
            "update tickets set status = ?, priority = ?, team = ? where number = ?",
            *(status, priority, team, row["number"]),
        )
    if note := request.text("note"):
        SITE.add("notes", ticket=row["number"], text=note)
    return To("/", f"#{row['number']} was saved.")


if __name__ == "__main__":
    serve(SITE)
