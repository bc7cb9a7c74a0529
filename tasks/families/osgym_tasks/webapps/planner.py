"""A calendar that several people share: a week of theirs, and a form for a new meeting."""

from __future__ import annotations

from osgym_tasks.webapps.framework import (
    Answer,
    Page,
    Request,
    Row,
    Site,
    To,
    esc,
    field,
    fields,
    form,
    link,
    select,
    serve,
    table,
)

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
SCHEMA = {
    "people": ("name",),
    "meetings": ("title", "day", "start", "end", "people"),
}
"""`start` and `end` are minutes after midnight; `people` has one a line, sorted."""
SITE = Site(SCHEMA, {"/": "Week", "/new": "New meeting"})
TIMES = range(8 * 60, 18 * 60 + 1, 30)


def clock(minutes: int) -> str:
    """A time of day."""
    return f"{minutes // 60:02}:{minutes % 60:02}"


@SITE.get("/")
def week(request: Request) -> Page:
    """The days of the week, and how much there is on each."""
    counts = [SITE.one("select count(*) as n from meetings where day = ?", day)["n"] for day in DAYS]
    rows = [(link(f"/days/{day}", day), str(count)) for day, count in zip(DAYS, counts, strict=True)]
    return Page("Week", table(("Day", "Meetings"), rows))


@SITE.get("/days/<>")
def day(request: Request, name: str) -> Page:
    """The meetings of a day, of all or of one person."""
    if name not in DAYS:
        raise LookupError(name)
    person = request.text("person")
    found = SITE.do("select * from meetings where day = ? order by start, title", name)
    rows = [_row(row) for row in found if not person or person in row["people"].splitlines()]
    names = [row["name"] for row in SITE.do("select * from people")]
    who = f"<form>{select('Person', 'person', ['', *names], person)}<button>Show</button></form>"
    return Page(name, who + table(("From", "To", "Title", "People"), rows))


def _row(row: Row) -> tuple[str, ...]:
    people = ", ".join(row["people"].splitlines())
    return clock(row["start"]), clock(row["end"]), esc(row["title"]), esc(people)


@SITE.get("/new")
def ask(request: Request) -> Page:
    """What a new meeting needs."""
    times = [clock(minutes) for minutes in TIMES]
    people = "".join(
        field(row["name"], "people", row["name"], "checkbox") for row in SITE.do("select * from people")
    )
    body = fields(
        field("Title", "title"),
        select("Day", "day", DAYS),
        select("From", "start", times),
        select("To", "end", times),
    )
    body += f"<fieldset><legend>People</legend>{people}</fieldset>"
    return Page("New meeting", form("/new", body, "Save meeting"))


@SITE.post("/new")
def put(request: Request) -> Answer:
    """Keep a meeting."""
    times = {clock(minutes): minutes for minutes in TIMES}
    start, end = (times.get(request.text(name), 0) for name in ("start", "end"))
    title, on = request.text("title"), request.text("day")
    known = {row["name"] for row in SITE.do("select * from people")}
    people = sorted(known & set(request.several.get("people", ())))
    if not title or on not in DAYS or not 0 < start < end or not people:
        return To("/new", "A meeting needs a title, people, and an end after its beginning.")
    SITE.add("meetings", title=title, day=on, start=start, end=end, people="\n".join(people))
    return To(f"/days/{on}", f"{title} was saved.")


if __name__ == "__main__":
    serve(SITE)
