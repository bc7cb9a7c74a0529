"""A wiki: pages of sections, each of which is edited by itself."""

from __future__ import annotations

import re

from osgym_tasks.webapps.framework import Answer, Page, Request, Row, Site, To, area, esc, form, link, serve

SCHEMA = {"sections": ("page", "place", "heading", "text")}
SITE = Site(SCHEMA, {"/": "All pages"})


def slug(page: str) -> str:
    """How a page is called in its address."""
    return re.sub(r"[^a-z0-9]+", "-", page.lower())


@SITE.get("/")
def pages(request: Request) -> Page:
    """All pages."""
    names = [row["page"] for row in SITE.do("select distinct page from sections order by page")]
    return Page("All pages", "".join(f"<p>{link(f'/wiki/{slug(name)}', name)}</p>" for name in names))


def _sections(name: str) -> list[Row]:
    found = [
        row for row in SITE.do("select * from sections order by page, place") if slug(row["page"]) == name
    ]
    if not found:
        raise LookupError(name)
    return found


@SITE.get("/wiki/<>")
def page(request: Request, name: str) -> Page:
    """A page; `[[Name]]` in a text is a link to the page of that name."""
    rows = _sections(name)
    body = "".join(
        f"<h2>{esc(row['heading'])}</h2>{_shown(row['text'])}"
        f"<p>{link(f'/edit/{name}/' + str(row['place']), 'Edit ' + row['heading'])}</p>"
        for row in rows
    )
    return Page(rows[0]["page"], body)


def _shown(text: str) -> str:
    lines = "".join(f"<p>{esc(line)}</p>" for line in text.splitlines())
    return re.sub(
        r"\[\[([^\]]+)\]\]", lambda found: f'<a href="/wiki/{slug(found[1])}">{found[1]}</a>', lines
    )


def _section(name: str, place: str) -> Row:
    for row in _sections(name):
        if str(row["place"]) == place:
            return row
    raise LookupError(place)


@SITE.get("/edit/<>/<>")
def edit(request: Request, name: str, place: str) -> Page:
    """The text of a section, to be changed."""
    row = _section(name, place)
    body = area("Text", "text", row["text"])
    said = f"<p>On the page {esc(row['page'])}</p>"
    return Page(f"Edit {row['heading']}", said + form(f"/edit/{name}/{place}", body, "Save"))


@SITE.post("/edit/<>/<>")
def save(request: Request, name: str, place: str) -> Answer:
    """Keep the text of a section."""
    row = _section(name, place)
    SITE.do(
        "update sections set text = ? where page = ? and place = ?",
        *(request.text("text"), row["page"], row["place"]),
    )
    return To(f"/wiki/{name}", f"{row['heading']} was saved.")


if __name__ == "__main__":
    serve(SITE)
