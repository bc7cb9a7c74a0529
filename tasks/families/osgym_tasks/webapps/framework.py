"""A web application: pages by path, forms, sessions, rows in SQLite, and what changed since it began.

It runs inside the desktop as another user than the desktop's, with its rows in memory, on no disk. A form
is taken only from a browser's page: with its session's cookie, its token, and what a browser says of itself.
"""

from __future__ import annotations

import html
import json
import os
import re
import secrets
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

PORT = 8000
MAX_FORM_BYTES = 1 << 20
TOKEN = "<!--token-->"  # noqa: S105 - its place in a page
STYLE = """
body{font:16px/1.4 sans-serif;margin:0;color:#222;background:#fafafa}
header{background:#27496d;color:#fff;padding:8px 24px}header a{color:#fff;margin-left:24px}nav{display:inline}
main{padding:4px 24px;max-width:1500px}h1{font-size:24px;margin:12px 0}h2{font-size:19px;margin:10px 0}
table{border-collapse:collapse;background:#fff}td,th{border:1px solid #ccc;padding:3px 10px;text-align:left}
.fields{display:grid;grid-template-columns:repeat(3,minmax(300px,1fr));gap:8px 24px;max-width:1400px}
.fields label,.fields fieldset,.fields select,textarea{display:block}.fields fieldset label{display:inline}
.fields input:not([type=checkbox]):not([type=radio]){display:block}
input,select,textarea,button{font:inherit}input,select{min-width:220px}textarea{width:900px;height:220px}
input[type=checkbox],input[type=radio]{min-width:0}button{padding:4px 20px;margin:10px 0}
[role=status]{background:#dff2df;padding:6px 12px}[role=alert]{background:#f8dcdc;padding:6px 12px}
"""
Row = dict[str, Any]
Tables = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Request:
    """What the browser asks.

    Attributes:
        fields: of the address, or of the form that was sent, without space around them.
        several: the same with every value of a name.
        session: what is kept of this browser; handlers may write to it.
    """

    fields: Mapping[str, str]
    several: Mapping[str, Sequence[str]]
    session: dict[str, Any]

    def text(self, name: str) -> str:
        """A field, or nothing."""
        return self.fields.get(name, "")


@dataclass(frozen=True, slots=True)
class Page:
    """A page to show; its body is HTML."""

    title: str
    body: str
    status: int = 200


@dataclass(frozen=True, slots=True)
class To:
    """Go on to another page, which says `notice`."""

    path: str
    notice: str = ""


@dataclass(frozen=True, slots=True)
class Raw:
    """A file, or what only the evaluator reads."""

    data: bytes
    headers: Mapping[str, str]
    status: int = 200


Answer = Page | To | Raw
Handler = Callable[..., Answer]


class Site:
    """The rows and pages of an application.

    Args:
        schema: columns by table.
        nav: what every page links to, by path.
    """

    def __init__(self, schema: Mapping[str, Sequence[str]], nav: Mapping[str, str]) -> None:
        self.title, self.port = "", PORT
        self._schema = schema
        self._nav = nav
        self._routes: list[tuple[str, re.Pattern[str], Handler]] = []
        self._sessions: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._key = ""
        self._before: dict[str, list[Row]] = {}
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._database.row_factory = sqlite3.Row

    def load(self, seed: Mapping[str, Any]) -> None:
        """Begin with a title, a port, the evaluator's key and rows by table."""
        self.title, self.port, self._key = str(seed["title"]), int(seed["port"]), str(seed["key"])
        for table, columns in self._schema.items():
            self.do(f"create table {table} ({', '.join(columns)})")
            for row in seed["tables"].get(table, ()):
                self.add(table, **row)
        self._before = self.state()

    def get(self, pattern: str) -> Callable[[Handler], Handler]:
        """Declare the handler of a path; `<>` stands for a part, which it is given."""
        return self._declare("GET", pattern)

    def post(self, pattern: str) -> Callable[[Handler], Handler]:
        """The same of a form that is sent there."""
        return self._declare("POST", pattern)

    def _declare(self, method: str, pattern: str) -> Callable[[Handler], Handler]:
        def declare(handler: Handler) -> Handler:
            self._routes.append((method, re.compile(pattern.replace("<>", "([^/]+)")), handler))
            return handler

        return declare

    def do(self, sql: str, *values: Any) -> list[Row]:
        """Run a statement; return its rows."""
        return [dict(row) for row in self._database.execute(sql, values)]

    def one(self, sql: str, *values: Any) -> Row:
        """The first row of a statement.

        Raises:
            LookupError: there is none; the browser is told that there is no such page.
        """
        for row in self.do(sql, *values):
            return row
        raise LookupError(sql)

    def add(self, table: str, **row: Any) -> None:
        """Add a row."""
        marks = ", ".join("?" * len(row))
        self.do(f"insert into {table} ({', '.join(row)}) values ({marks})", *row.values())  # noqa: S608

    def state(self) -> dict[str, list[Row]]:
        """All rows by table."""
        return {table: self.do(f"select * from {table}") for table in self._schema}  # noqa: S608

    def handle(self, method: str, target: str, headers: Mapping[str, str], form: str = "") -> Raw:
        """Answer a request; never two at a time."""
        with self._lock:
            path = urlsplit(target).path
            if path == "/state":
                good = secrets.compare_digest(headers.get("X-Key", ""), self._key)
                said = difference(self._before, self.state()) if good else ""
                return Raw(said.encode(), {"Content-Type": "text/plain"}, 200 if good else 403)
            asked = re.search(rf"session{self.port}=(\w+)", headers.get("Cookie", ""))
            name = asked[1] if asked and asked[1] in self._sessions else secrets.token_hex(16)
            session = self._sessions.setdefault(name, {"token": secrets.token_hex(8)})
            found = parse_qs(form if method == "POST" else urlsplit(target).query, keep_blank_values=True)
            several = {key: [clean(value) for value in values] for key, values in found.items()}
            if method == "POST" and not _from_page(headers, several, session):
                answer: Answer = Page("Not accepted", "<p>Forms are sent from their page.</p>", 403)
            else:
                fields = {key: values[-1] for key, values in several.items()}
                answer = self._answer(method, path, Request(fields, several, session))
            return self._sent(answer, name, session)

    def _answer(self, method: str, path: str, request: Request) -> Answer:
        for its_method, pattern, handler in self._routes:
            if its_method == method and (parts := pattern.fullmatch(path)):
                try:
                    return handler(request, *parts.groups())
                except LookupError:
                    break
        return Page("Not found", "<p>There is no such page.</p>", 404)

    def _sent(self, answer: Answer, name: str, session: dict[str, Any]) -> Raw:
        cookie = {
            "Set-Cookie": f"session{self.port}={name}; Path=/; HttpOnly; SameSite=Strict",
            "Cache-Control": "no-store",
        }
        match answer:
            case Raw():
                return answer
            case To():
                session["notice"] = answer.notice
                return Raw(b"", {"Location": answer.path, **cookie}, 303)
            case Page():
                notice = session.pop("notice", "")
                said = f'<p role="status">{esc(notice)}</p>' if notice else ""
                nav = "".join(f'<a href="{path}">{esc(text)}</a>' for path, text in self._nav.items())
                body = answer.body.replace(
                    TOKEN, f'<input type="hidden" name="token" value="{session["token"]}">'
                )
                text = (
                    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
                    '<link rel="icon" href="data:,">'
                    f"<title>{esc(answer.title)} - {esc(self.title)}</title><style>{STYLE}</style></head>"
                    f"<body><header><strong>{esc(self.title)}</strong><nav>{nav}</nav></header>"
                    f"<main><h1>{esc(answer.title)}</h1>{said}{body}</main></body></html>"
                )
                return Raw(
                    text.encode(), {"Content-Type": "text/html; charset=utf-8", **cookie}, answer.status
                )


def _from_page(
    headers: Mapping[str, str], several: Mapping[str, Sequence[str]], session: Mapping[str, Any]
) -> bool:
    """Return whether a form has its page's token and a browser's headers, which any program can send too."""
    said = headers.get("Sec-Fetch-Site"), headers.get("Sec-Fetch-Mode")
    return said == ("same-origin", "navigate") and several.get("token") == [session["token"]]


def clean(text: str) -> str:
    """A text as it is kept: lines end alike, with no space around them, none empty at the ends."""
    return "\n".join(line.strip() for line in text.strip().splitlines())


def difference(before: Tables, after: Tables) -> str:
    """What rows went and came, one line each, whatever their order."""
    lines = []
    for table in sorted(after):
        old, new = (
            Counter(json.dumps(row, sort_keys=True) for row in tables.get(table, ()))
            for tables in (before, after)
        )
        lines += [f"- {table} {row}\n" for row in sorted((old - new).elements())]
        lines += [f"+ {table} {row}\n" for row in sorted((new - old).elements())]
    return "".join(lines)


def esc(value: Any) -> str:
    """A value as text in HTML, attributes too."""
    return html.escape(str(value))


def money(cents: int) -> str:
    """An amount as it is shown."""
    return f"{cents // 100}.{cents % 100:02}"


def cents_of(text: str) -> int | None:
    """An amount as it is typed, or None."""
    whole, _, rest = text.replace(",", ".").partition(".")
    good = whole.isdecimal() and len(whole) < 9 and (rest + "00")[:2].isdecimal() and len(rest) <= 2
    return int(whole) * 100 + int((rest + "00")[:2]) if good else None


def form(action: str, body: str, button: str) -> str:
    """A form that is sent by its one button."""
    sent = f"<p><button>{esc(button)}</button></p>"
    return f'<form method="post" action="{action}" autocomplete="off">{TOKEN}{body}{sent}</form>'


def field(label: str, name: str, value: Any = "", kind: str = "text", more: str = "") -> str:
    """A labelled input."""
    if kind in ("checkbox", "radio"):
        return f'<label><input type="{kind}" name="{name}" value="{esc(value)}" {more}> {esc(label)}</label>'
    return f'<label>{esc(label)} <input type="{kind}" name="{name}" value="{esc(value)}" {more}></label>'


def area(label: str, name: str, value: str = "") -> str:
    """A labelled text of several lines."""
    return f'<label>{esc(label)} <textarea name="{name}">\n{esc(value)}</textarea></label>'


def select(label: str, name: str, options: Sequence[Any], chosen: Any = "") -> str:
    """A labelled list of which one is chosen."""
    listed = "".join(
        f"<option{' selected' if option == chosen else ''}>{esc(option)}</option>" for option in options
    )
    return f'<label>{esc(label)} <select name="{name}">{listed}</select></label>'


def fields(*parts: str) -> str:
    """Inputs side by side, as wide as the window."""
    return f'<div class="fields">{"".join(parts)}</div>'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; its cells are HTML."""
    head = "".join(f"<th>{esc(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def link(path: str, text: Any) -> str:
    """A link."""
    return f'<a href="{esc(path)}">{esc(text)}</a>'


def serve(site: Site) -> None:
    """Read the seed beside, remove it, and return when the port is open; a child of ours answers there."""
    seed = Path(sys.argv[1])
    site.load(json.loads(seed.read_text(encoding="utf-8")))
    seed.unlink()

    class Handling(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            size = min(int(self.headers.get("Content-Length") or 0), MAX_FORM_BYTES)
            headers = {name.title(): value for name, value in self.headers.items()}
            sent = site.handle(self.command, self.path, headers, self.rfile.read(size).decode())
            self.send_response(sent.status)
            for name, value in {**sent.headers, "Content-Length": str(len(sent.data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(sent.data)

        do_GET = do_POST = _handle

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: nobody listens."""

    server = ThreadingHTTPServer(("127.0.0.1", site.port), Handling)
    if os.fork():
        os._exit(0)
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    server.serve_forever()
