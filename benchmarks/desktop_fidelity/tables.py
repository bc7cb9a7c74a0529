"""Tables of a run, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


def table(rows: Sequence[Row], group: str) -> str:
    """Return the table of a group, with notes on wrong and refused cells below it."""
    cells = {(row["row"], row["column"]): row["runs"] for row in rows if row["group"] == group}
    names = list(dict.fromkeys(row for row, _ in cells))
    columns = list(dict.fromkeys(column for _, column in cells))
    if not cells:
        return ""
    lines = [f"| {group} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    notes: dict[str, int] = {}
    for name in names:
        marks = [_mark(cells.get((name, column), []), notes) for column in columns]
        lines.append(f"| {name} | " + " | ".join(marks) + " |")
    return "\n".join([*lines, "", *(f"{number}. {text}" for text, number in notes.items())])


def _mark(runs: Sequence[Mapping[str, Any]], notes: dict[str, int]) -> str:
    """Return a cell's mark: right, or the number of failures with the number of its note."""
    if not runs:
        return ""
    for outcome in ("failed", "wrong", "refused"):
        found = [one["seen"] for one in runs if one["outcome"] == outcome]
        if found:
            number = notes.setdefault(found[0], len(notes) + 1)
            often = "" if len(found) == len(runs) else f" {len(found)} of {len(runs)}"
            return f"{outcome}{often} ({number})"
    return "right"


def write_tables(path: Path, rows: Sequence[Row], groups: Sequence[str]) -> None:
    """Put the tables between the markers of a document.

    Raises:
        ValueError: a marker is missing.
    """
    text = path.read_text()
    for group in groups:
        if not (made := table(rows, group)):
            continue
        begin, end = f"<!-- {group}: begin -->\n", f"<!-- {group}: end -->"
        if begin not in text or end not in text:
            raise ValueError(f"{path.name} has no markers {begin.strip()} and {end}")
        head, rest = text.split(begin)
        text = head + begin + made + "\n" + rest[rest.index(end) :]
    path.write_text(text)
