"""A form of many kinds of fields, and pages to read beside it."""

from __future__ import annotations

from osgym_tasks.webapps.framework import (
    Page,
    Raw,
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
)

SCHEMA = {
    "questions": ("name", "label", "kind", "options", "value"),
    "answers": ("number", "name", "value"),
    "pages": ("slug", "title", "group_", "body"),
    "files": ("path", "text"),
}
"""`options` has one a line, `body` a paragraph; `value` is what is there at first, of several one a line."""
SITE = Site(SCHEMA, {"/": "Start", "/pages": "Pages", "/form": "Form"})


@SITE.get("/")
def start(request: Request) -> Page:
    """What there is."""
    return Page("Start", f"<p>{link('/form', 'Fill in the form')}</p><p>{link('/pages', 'All pages')}</p>")


@SITE.get("/pages")
def pages(request: Request) -> Page:
    """All pages, by group."""
    found = SITE.do("select * from pages order by group_, title")
    groups = dict.fromkeys(row["group_"] for row in found)
    return Page(
        "Pages",
        "".join(
            f"<h2>{esc(group)}</h2><p>"
            + " &nbsp; ".join(
                link(f"/pages/{row['slug']}", row["title"]) for row in found if row["group_"] == group
            )
            + "</p>"
            for group in groups
        ),
    )


@SITE.get("/pages/<>")
def page(request: Request, slug: str) -> Page:
    """A page; a line that is an address of this site and its name is a link."""
    row = SITE.one("select * from pages where slug = ?", slug)
    return Page(row["title"], "".join(_paragraph(line) for line in row["body"].splitlines()))


def _paragraph(line: str) -> str:
    path, _, text = line.partition(" ")
    return f"<p>{link(path, text) if path.startswith('/') else esc(line)}</p>"


@SITE.get("/files/<>")
def file(request: Request, path: str) -> Raw:
    """A file to download."""
    row = SITE.one("select * from files where path = ?", path)
    return Raw(
        row["text"].encode(),
        {"Content-Type": "application/octet-stream", "Content-Disposition": f'attachment; filename="{path}"'},
    )


@SITE.get("/form")
def ask(request: Request) -> Page:
    """The form."""
    questions = SITE.do("select * from questions")
    return Page("Form", form("/form", fields(*map(_question, questions)), "Send"))


def _question(row: Row) -> str:
    options, values = row["options"].splitlines(), row["value"].splitlines()
    match row["kind"]:
        case "select":
            return select(row["label"], row["name"], options, row["value"])
        case "radio" | "checkbox" as kind:
            marks = (
                field(option, row["name"], option, kind, "checked" if option in values else "")
                for option in options
            )
            return f"<fieldset><legend>{esc(row['label'])}</legend>{' '.join(marks)}</fieldset>"
        case "area":
            return area(row["label"], row["name"], row["value"])
        case "range":
            low, high, step = options
            shown = "this.nextElementSibling.value = this.value"
            more = f'min="{low}" max="{high}" step="{step}" oninput="{shown}"'
            said = field(row["label"], row["name"], row["value"], "range", more)
            return said.removesuffix("</label>") + f"<output>{esc(row['value'])}</output></label>"
        case "number" as kind:  # without limits Chromium crashes when its accessibility tree is read
            return field(row["label"], row["name"], row["value"], kind, 'min="0" max="99"')
        case kind:
            return field(row["label"], row["name"], row["value"], kind)


@SITE.post("/form")
def answer(request: Request) -> To:
    """Keep what was sent: a row for each question."""
    number = SITE.one("select count(distinct number) as n from answers")["n"] + 1
    for row in SITE.do("select name from questions"):
        value = "\n".join(sorted(request.several.get(row["name"], [])))
        SITE.add("answers", number=number, name=row["name"], value=value)
    return To("/thanks")


@SITE.get("/thanks")
def thanks(request: Request) -> Page:
    """After the form was sent."""
    return Page("Thank you", "<p>Your form was sent.</p>")


if __name__ == "__main__":
    serve(SITE)
