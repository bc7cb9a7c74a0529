"""A web mail: folders of messages, each of which can be answered, moved and marked, and an address book."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from osgym_tasks.webapps.framework import (
    Answer,
    Page,
    Request,
    Row,
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
    "people": ("address", "name"),
    "folders": ("name",),
    "messages": ("number", "folder", "date", "sender", "receivers", "copies", "subject", "text", "mark"),
    "sent": ("answers", "receivers", "copies", "subject", "text"),
}
"""The first of the people owns the mail. Messages are numbered by their dates; `sender`, `receivers` and
`copies` are addresses, several with commas between. What is sent `answers` a message, or 0."""
MARKS = ("None", "Important", "To do", "Done")
STAYS = "As it is"
PER_PAGE = 12
SITE = Site(SCHEMA, {"/": "Folders", "/sent": "Sent", "/new": "Write", "/people": "Address book"})


def joined(addresses: Sequence[str]) -> str:
    """Addresses as they are kept: sorted, each once."""
    return ", ".join(sorted({address.lower() for address in addresses}))


def split(text: str) -> list[str]:
    """The addresses of a field, however they are separated."""
    return [part for part in re.split(r"[,;\s]+", text) if part]


def reply_heading(subject: str, *, to_all: bool) -> str:
    """The heading of the page that answers a message."""
    return f"Reply to all: {subject}" if to_all else f"Reply: {subject}"


def _named(addresses: str) -> str:
    names = {row["address"]: row["name"] for row in SITE.do("select * from people")}
    return ", ".join(f"{names.get(one, '?')} <{one}>" for one in split(addresses))


@SITE.get("/")
def folders(request: Request) -> Page:
    """The folders, and how much is in each."""
    count = "select count(*) as n from messages where folder = ?"
    names = [row["name"] for row in SITE.do("select name from folders")]
    rows = [(link(f"/folders/{name}", name), str(SITE.one(count, name)["n"])) for name in names]
    return Page("Folders", table(("Folder", "Messages"), rows))


@SITE.get("/folders/<>")
def folder(request: Request, name: str) -> Page:
    """A page of a folder's messages, the newest first, to be opened, or picked and moved or marked."""
    SITE.one("select * from folders where name = ?", name)
    wanted, names = (
        request.text("q"),
        {row["address"]: row["name"] for row in SITE.do("select * from people")},
    )
    found = [
        row
        for row in SITE.do("select * from messages where folder = ? order by number desc", name)
        if wanted.lower() in f"{names[row['sender']]} {row['subject']}".lower()
    ]
    asked, last = request.text("page"), max(1, -(-len(found) // PER_PAGE))
    at = min(max(int(asked), 1), last) if asked.isdecimal() else 1
    rows = [
        (field(names[row["sender"]], "pick", row["number"], "checkbox"),
         link(f"/messages/{row['number']}", row["subject"]), esc(row["date"]), esc(row["mark"]))
        for row in found[(at - 1) * PER_PAGE : at * PER_PAGE]
    ]  # fmt: skip
    search = f"<form>{field('Search', 'q', wanted)}<button>Search</button></form>"
    listed = table(("From", "Subject", "Date", "Mark"), rows)
    body = f"{search}{form('/sort', listed + _sorting(), 'Apply')}"
    said = f"q={quote(wanted)}&" if wanted else ""
    near = {"Newer messages": at - 1, "Older messages": at + 1}
    body += "".join(
        f"<p>{link(f'/folders/{name}?{said}page={to}', text)}</p>"
        for text, to in near.items()
        if 0 < to <= last
    )
    return Page(page_heading(name, at), body)


def page_heading(folder: str, page: int) -> str:
    """The heading of a page of a folder."""
    return folder if page == 1 else f"{folder}, page {page}"


def _sorting() -> str:
    names = [row["name"] for row in SITE.do("select name from folders")]
    return fields(select("Move to", "folder", (STAYS, *names)), select("Mark", "mark", (STAYS, *MARKS)))


@SITE.post("/sort")
def sort(request: Request) -> To:
    """Move and mark what is picked."""
    picked = [int(number) for number in request.several.get("pick", ()) if number.isdecimal()]
    names = [row["name"] for row in SITE.do("select name from folders")]
    to, mark = request.text("folder"), request.text("mark")
    for number in picked:
        if to in names:
            SITE.do("update messages set folder = ? where number = ?", to, number)
        if mark in MARKS:
            SITE.do("update messages set mark = ? where number = ?", mark, number)
    return To("/", f"Messages chosen: {len(picked)}.")


def _message(number: str) -> Row:
    return SITE.one("select * from messages where number = ?", int(number) if number.isdecimal() else 0)


@SITE.get("/messages/<>")
def message(request: Request, number: str) -> Page:
    """A message, to be answered, moved or marked."""
    row = _message(number)
    answers = [link(f"/messages/{number}/{path}", text) for path, text in _ANSWERS.items()]
    pick = f'<input type="hidden" name="pick" value="{row["number"]}">'
    body = f"{_shown(row)}<p>{' &nbsp; '.join(answers)}</p>{form('/sort', pick + _sorting(), 'Apply')}"
    return Page(row["subject"], body)


_ANSWERS = {"reply": "Reply", "reply-all": "Reply to all"}


def _shown(row: Row) -> str:
    heads = {"From": _named(row["sender"]), "To": _named(row["receivers"]), "Copy to": _named(row["copies"]),
             "Date": row["date"], "Folder": row["folder"], "Mark": row["mark"]}  # fmt: skip
    said = "".join(f"<br>{esc(name)}: {esc(value)}" for name, value in heads.items() if value)
    lines = "".join(f"<p>{esc(line)}</p>" for line in row["text"].splitlines())
    return f"<p>{said.removeprefix('<br>')}</p>{lines}"


@SITE.get("/messages/<>/reply")
def reply(request: Request, number: str) -> Page:
    """An answer to who sent a message."""
    return _answer(_message(number), to_all=False)


@SITE.get("/messages/<>/reply-all")
def reply_to_all(request: Request, number: str) -> Page:
    """An answer to who sent a message, with copies to all others who have it."""
    return _answer(_message(number), to_all=True)


def _answer(row: Row, *, to_all: bool) -> Page:
    owner = SITE.one("select address from people")["address"]
    others = [*split(row["receivers"]), *split(row["copies"])] if to_all else []
    copies = joined([one for one in others if one not in (owner, row["sender"])])
    subject = f"Re: {row['subject'].removeprefix('Re: ')}"
    values = {"answers": row["number"], "to": row["sender"], "copies": copies, "subject": subject}
    asked = f"<h2>The message that you answer</h2>{_shown(row)}"
    return _writing(reply_heading(row["subject"], to_all=to_all), values, asked)


def _writing(title: str, values: Mapping[str, object], more: str = "") -> Page:
    kept = f'<input type="hidden" name="answers" value="{esc(values.get("answers", 0))}">'
    body = fields(
        field("To", "to", values.get("to", "")),
        field("Copy to", "copies", values.get("copies", "")),
        field("Subject", "subject", values.get("subject", "")),
    )
    body += area("Text", "text", str(values.get("text", "")))
    return Page(title, form("/send", kept + body, "Send") + more)


@SITE.get("/new")
def write(request: Request) -> Page:
    """A message that answers none."""
    return _writing("Write", {})


@SITE.post("/send")
def send(request: Request) -> Answer:
    """Send a message; without addresses, a subject and a text it stays where it is."""
    to, copies = split(request.text("to")), split(request.text("copies"))
    known = {row["address"] for row in SITE.do("select address from people")}
    subject, text, answers = (request.text(name) for name in ("subject", "text", "answers"))
    if not to or not subject or not text or not known.issuperset({one.lower() for one in (*to, *copies)}):
        alert = '<p role="alert">A message needs addresses of the address book, a subject and a text.</p>'
        return _writing("Not sent", request.fields, alert)
    SITE.add(
        "sent",
        answers=int(answers) if answers.isdecimal() else 0,
        receivers=joined(to),
        copies=joined(copies),
        subject=subject,
        text=text,
    )
    return To("/sent", "The message was sent.")


@SITE.get("/sent")
def sent(request: Request) -> Page:
    """What was sent, the newest first."""
    rows = [
        (esc(_named(row["receivers"])), esc(_named(row["copies"])), esc(row["subject"]), esc(row["text"]))
        for row in SITE.do("select * from sent order by rowid desc")
    ]
    return Page("Sent", table(("To", "Copy to", "Subject", "Text"), rows))


@SITE.get("/people")
def people(request: Request) -> Page:
    """Names and addresses."""
    rows = [(esc(row["name"]), esc(row["address"])) for row in SITE.do("select * from people order by name")]
    return Page("Address book", table(("Name", "Address"), rows))


if __name__ == "__main__":
    serve(SITE)
