"""Building blocks of HTML pages: one style, everything in one file, every text escaped."""

from __future__ import annotations

import html
from functools import cache
from importlib import resources


def text(value: object) -> str:
    """Return the value as escaped text, safe within an attribute too."""
    return html.escape(str(value), quote=True)


def page(title: str, body: str) -> str:
    """Return a whole page that fetches nothing; `body` is HTML."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data: file:"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{_style()}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def tiles(values: dict[str, object]) -> str:
    """Return a row of figures with their labels."""
    made = (
        f'<div class="tile"><b>{text(value)}</b><span>{text(name)}</span></div>'
        for name, value in values.items()
    )
    return f'<div class="tiles">{"".join(made)}</div>'


def cell(value: object, kind: str = "") -> str:
    return f'<td class="{text(kind)}">{text(value)}</td>' if kind else f"<td>{text(value)}</td>"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table of HTML cells (`cell`), with headings aligned as their columns."""
    kinds = ["text" if rows and rows[0][at].startswith('<td class="text"') else "" for at in range(len(head))]
    first = "".join(f'<th class="{kind}">{text(name)}</th>' for name, kind in zip(head, kinds, strict=True))
    lines = "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows)
    return f'<div class="wide"><table><thead><tr>{first}</tr></thead><tbody>{lines}</tbody></table></div>'


@cache
def _style() -> str:
    return (resources.files("osgym_tasks") / "pages.css").read_text("utf-8")
