"""Matrix as a table: on the terminal, and between marks in docs/input.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.input_fidelity.matrix import CELLS, Row
from benchmarks.input_fidelity.toolkits import TOOLKITS

MARKED = re.compile(r"<!-- matrix: (?P<call>[^>]*) -->\n.*?<!-- end -->", re.DOTALL)
CALL = "`python -m benchmarks.input_fidelity --write-doc` writes it"
Shown = Mapping[tuple[str, str, int], str]


def shown(rows: Sequence[Row]) -> Shown:
    """Return what the table shows, by cell, toolkit and load."""
    return {(row.cell, row.toolkit, row.load): row.shown for row in rows}


def printed(rows: Sequence[Row]) -> str:
    found, parts = shown(rows), []
    for load in dict.fromkeys(row.load for row in rows):
        toolkits, cells = _named(rows, load)
        width = max(len(cell) for cell in cells)
        head = " ".join(f"{toolkit[:9]:>9}" for toolkit in toolkits)
        lines = [f"{_load(load)}\n{'':{width}} {head}"]
        for cell in cells:
            values = " ".join(f"{found.get((cell, toolkit, load), ''):>9}" for toolkit in toolkits)
            lines.append(f"{cell:{width}} {values}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def markdown(rows: Sequence[Row]) -> str:
    """Return the same in Markdown, with what each cell does."""
    found, parts = shown(rows), []
    for load in dict.fromkeys(row.load for row in rows):
        toolkits, cells = _named(rows, load)
        lines = [f"| {_load(load)} | " + " | ".join(toolkits) + " |", "|---|" + "---|" * len(toolkits)]
        for cell in cells:
            values = (found.get((cell, toolkit, load), "–") for toolkit in toolkits)
            lines.append(f"| {CELLS[cell].about} (`{cell}`) | " + " | ".join(values) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def typing_times(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return in Markdown the median ms for a character of each text: until typed / until received."""
    texts = list(dict.fromkeys(row["text"] for row in rows))
    by_toolkit: dict[str, dict[str, str]] = {}
    for row in rows:
        typed, received = (median([run[name] for run in row["runs"]]) for name in ("input_ms", "arrived_ms"))
        by_toolkit.setdefault(row["toolkit"], {})[row["text"]] = f"{typed:.2f} / {received:.2f}"
    lines = ["| ms a character | " + " | ".join(texts) + " |", "|---|" + "---|" * len(texts)]
    for toolkit, times in by_toolkit.items():
        lines.append(f"| {toolkit} | " + " | ".join(times.get(text, "–") for text in texts) + " |")
    return "\n".join(lines)


def write(path: Path, text: str) -> None:
    """Put a table between the marks of a document.

    Raises:
        ValueError: The document has no marks.
    """
    document = path.read_text(encoding="utf-8")
    if not MARKED.search(document):
        raise ValueError(f"{path} has no marks: put <!-- matrix: {CALL} --> and <!-- end --> into it")
    path.write_text(
        MARKED.sub(lambda _: f"<!-- matrix: {CALL} -->\n{text}\n<!-- end -->", document), encoding="utf-8"
    )


def differences(rows: Sequence[Row]) -> str:
    """Return a line for each thing that was not right, with how often and what came first."""
    lines = []
    for row in rows:
        for result in ("wrong", "refused", "failed"):
            told = [run.told for run in row.runs if run.result == result]
            if told:
                where = f"{row.toolkit} {row.cell} ({_load(row.load)})"
                lines.append(f"{where}: {result} {len(told)} of {len(row.runs)}: {_told(told[0])}")
    return "\n".join(lines)


def _told(told: Mapping[str, Any]) -> str:
    if "why" in told:
        return str(told["why"])
    return f"{told['what']}: {told['received']!r}, not {told['expected']!r}"[:400]


def _load(load: int) -> str:
    return f"{load} busy processes" if load else "idle"


def _named(rows: Sequence[Row], load: int) -> tuple[list[str], list[str]]:
    toolkits = {row.toolkit for row in rows if row.load == load}
    cells = {row.cell for row in rows if row.load == load}
    return [name for name in TOOLKITS if name in toolkits], [name for name in CELLS if name in cells]
