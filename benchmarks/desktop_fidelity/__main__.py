"""Windows and clipboards of a desktop, compared with a user's expectations of a real one.

Each cell is done several times in a real replica. It is right, wrong (with what was seen), or refused, with
the reason: such a window or content cannot have it. The tables can be written into docs/desktop.md.

    python -m benchmarks.desktop_fidelity                     # all cells on the image `full`
    python -m benchmarks.desktop_fidelity --only windows --repeat 10
    python -m benchmarks.desktop_fidelity --only text --image small
    python -m benchmarks.desktop_fidelity --list
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.guest_rig import Guest, GuestFault
from tests.support.osworld_replica import image_or_skip, replica

from benchmarks.common import ROOT, argument_parser, machine, save
from benchmarks.desktop_fidelity import clipboards, windows
from benchmarks.desktop_fidelity.stage import Cell, NotApplicable, Stage, Wrong

DOC = ROOT / "docs" / "desktop.md"
GROUPS = {"windows": windows.cells, "clipboards": clipboards.cells}
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


@contextmanager
def served(image: str) -> Iterator[Stage]:
    """Run one replica of an image for the time of the block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    with tempfile.TemporaryDirectory(prefix="osgym-fidelity-") as folder:
        manager = replica(image_or_skip(image), Path(folder))
        try:
            address = asyncio.run_coroutine_threadsafe(manager.__aenter__(), loop).result(120)
            try:
                yield Stage(Guest(address.path))
            finally:
                asyncio.run_coroutine_threadsafe(manager.__aexit__(None, None, None), loop).result(60)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()


def play(stage: Stage, cell: Cell) -> dict[str, Any]:
    """Do a cell once; return what came of it."""
    began = time.monotonic()
    try:
        cell.run(stage)
        outcome, seen = "right", ""
    except Wrong as error:
        outcome, seen = "wrong", str(error)
    except NotApplicable as error:
        outcome, seen = "refused", str(error)
    except (RuntimeError, GuestFault) as error:
        outcome, seen = "failed", str(error)[:500]
    return {"outcome": outcome, "seen": seen, "seconds": round(time.monotonic() - began, 3)}


def run(stage: Stage, chosen: Sequence[tuple[str, Cell]], repeat: int) -> list[dict[str, Any]]:
    """Do all cells; print each when it is done."""
    rows = []
    for group, cell in chosen:
        runs = [play(stage, cell) for _ in range(repeat)]
        counts = {
            name: sum(one["outcome"] == name for one in runs)
            for name in ("right", "wrong", "refused", "failed")
        }
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        seen = next((one["seen"] for one in runs if one["seen"]), "")
        print(f"{group:10} {cell.row:20} {cell.column:12} {told}{': ' if seen else ''}{seen}", flush=True)
        rows.append({"group": group, "row": cell.row, "column": cell.column, "runs": runs})
    return rows


def chosen_cells(only: Sequence[str]) -> list[tuple[str, Cell]]:
    """Return the cells whose group, row or column is one of the names; all without names."""
    found = [(group, cell) for group, make in GROUPS.items() for cell in make()]
    return [(group, cell) for group, cell in found if not only or {group, cell.row, cell.column} & set(only)]


def main(given: Sequence[str] | None = None) -> int:
    parser = argument_parser(__doc__, image="full")
    parser.add_argument("--only", action="append", default=[], help="group, row or column; may be repeated")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each cell (3)")
    parser.add_argument("--write-doc", action="store_true", help="write the tables into docs/desktop.md")
    parser.add_argument("--list", action="store_true", help="name the cells, and end")
    args: argparse.Namespace = parser.parse_args(given)
    chosen = chosen_cells(args.only)
    if not chosen:
        parser.error(f"unknown cells {', '.join(args.only)}; --list shows all")
    if args.list:
        for group, cell in chosen:
            print(f"{group:10} {cell.row:20} {cell.column}")
        return 0
    about = machine()
    with served(args.image) as stage:
        rows = run(stage, chosen, args.repeat)
    for group in GROUPS:
        print(table(rows, group))
    result = {"machine": about, "image": args.image, "repeat": args.repeat, "cells": rows}
    print(f"saved in {save('desktop_fidelity', result, args.out)}")
    if args.write_doc:
        write_tables(DOC, rows, tuple(GROUPS))
    return int(any(one["outcome"] in ("wrong", "failed") for row in rows for one in row["runs"]))


if __name__ == "__main__":
    raise SystemExit(main())
