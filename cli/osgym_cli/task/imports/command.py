"""`osgym task import`: task sets of other projects as task files, and a report of what is missing."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from osgym_cli.task.imports.layouts import LAYOUTS, detected
from osgym_cli.task.imports.results import Attempt, ImportOptions, Outcome, Row
from osgym_cli.task.imports.source import SourceError, SourceFolder
from osgym_cli.task.imports.writing import write_all
from osgym_host.logs import escape_controls

AUTO = "auto"
WIDTH = 140
"""Columns of the table where there is no terminal."""
_STYLES = {Outcome.CONVERTED: "green", Outcome.INCOMPLETE: "yellow", Outcome.REFUSED: "red"}
EPILOG = """
\b
Layouts:
  osworld        task files of OSWorld, copied with the files that they name
  cua-gym        folders with meta.json, instruction.md, exec/, hidden/, setup.sh, gt/, check.sh
  gym-anything   env.json and tasks/NAME/task.json with hooks and verifier.py::function
  opencomputer   task.json with env.files and verification; verifiers/APP/APP.py or --verifiers
  rows           JSON lines or Parquet of trainers whose rows carry tasks of OSGym
  auto           the layout that the files show

\b
Examples:
  osgym task import auto ~/CUA-Gym/output/final --out imported
  osgym task import opencomputer task_generator/tasks --verifiers verifiers --out imported
  osgym task import rows train.parquet --out imported --json | jq .summary
  osgym task check imported                              # what the tasks need from a host
  osgym task run imported --policy noop --expect 0       # doing nothing must earn nothing

\b
Nothing of the set is run by this command. Its scripts run in desktops only, its verifiers in the
host's confined evaluator only. A second import leaves unchanged files alone.

\b
Exit codes: 0 each task was converted completely - 1 some lack something or were refused -
2 wrong usage, or no task was found.
"""


@click.command(name="import", epilog=EPILOG)
@click.argument("layout", type=click.Choice([*LAYOUTS, AUTO]), metavar="LAYOUT")
@click.argument("source", type=click.Path(exists=True, path_type=Path), metavar="SOURCE")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path),
              help="Folder for the task files.")  # fmt: skip
@click.option("--flavor", type=click.Choice(["small", "full"]), default="full", show_default=True,
              help="Golden image that the tasks ask for, unless their originals say so.")  # fmt: skip
@click.option("--verifiers", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Folder of OpenComputer's verifier programs, if it is not part of SOURCE.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def import_tasks(
    layout: str,
    source: Path,
    out: Path,
    flavor: Literal["small", "full"],
    verifiers: Path | None,
    as_json: bool,
) -> None:
    """Convert a task set of another project into task files, and name what is missing.

    SOURCE is the set's folder, or one file of rows.
    """
    try:
        name, tried = _conversions(layout, source, ImportOptions(flavor, verifiers))
        rows = write_all(name, tried, out)
    except SourceError as error:
        raise click.UsageError(escape_controls(str(error))) from None
    except OSError as error:
        raise click.UsageError(f"{error.filename or out}: {error.strerror or error}") from None
    if not rows:
        raise click.UsageError(f"{source}: no task of the layout {name} was found")
    if as_json:
        click.echo(json.dumps(as_object(name, rows), indent=2))
    else:
        _print(name, rows)
    sys.exit(0 if all(row.outcome is Outcome.CONVERTED for row in rows) else 1)


def _conversions(layout: str, source: Path, options: ImportOptions) -> tuple[str, Iterator[Attempt]]:
    """Return the layout's name and its conversions, which are made one by one.

    Raises:
        SourceError: The layout is not clear.
    """
    folder = SourceFolder(source if source.is_dir() else source.parent)
    if source.is_file():
        if layout not in {AUTO, "rows"}:
            raise SourceError(f"{source}: a set of the layout {layout} is a folder")
        folder = _OneFile(source)
        layout = "rows"
    if layout == AUTO:
        found = detected(folder)
        if len(found) != 1:
            which = ", ".join(f"{name} ({count})" for name, count in found.items()) or "none"
            raise SourceError(
                f"{source}: layouts of the tasks found: {which}; name one of {', '.join(LAYOUTS)}"
            )
        (layout,) = found
    return layout, LAYOUTS[layout].convert_all(folder, options)


class _OneFile(SourceFolder):
    """One file of a folder, as a set of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.parent)
        self._name = path.name

    def names_ending(self, end: str) -> list[str]:
        """Return the file's name if it has the ending."""
        return [self._name] if f"/{self._name}".endswith(end) else []


def as_object(layout: str, rows: list[Row]) -> dict[str, object]:
    """Return the report as JSON."""
    counts = Counter(row.outcome for row in rows)
    return {
        "layout": layout,
        "summary": {outcome.value: counts[outcome] for outcome in Outcome},
        "tasks": [
            {
                "original": row.place,
                "id": row.original_id,
                "outcome": row.outcome.value,
                "file": row.file,
                "change": row.change,
                "missing": row.missing,
                "to_fetch": row.to_fetch,
                "reason": row.reason or None,
            }
            for row in rows
        ],
    }


def _print(layout: str, rows: list[Row]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    table = Table(box=None, pad_edge=False)
    table.add_column("ORIGINAL", no_wrap=True, overflow="ellipsis", max_width=50)
    table.add_column("OUTCOME", no_wrap=True)
    table.add_column("FILE", no_wrap=True)
    table.add_column("WHAT IS MISSING, OR WHY IT WAS REFUSED", overflow="fold")
    for row in rows:
        style, words = _STYLES[row.outcome], row.reason or "; ".join(row.missing)
        if row.to_fetch:
            words = f"{words}; " * bool(words) + f"{len(row.to_fetch)} files to fetch once"
        table.add_row(
            escape(escape_controls(row.place)),
            f"[{style}]{row.outcome}[/{style}]",
            row.change or "",
            escape(escape_controls(words)),
        )
    console.print(table)
    console.print()
    counts = Counter(row.outcome for row in rows)
    for outcome in Outcome:
        if counts[outcome]:
            console.print(f"[{_STYLES[outcome]}]{counts[outcome]:5} {outcome}[/{_STYLES[outcome]}]")
    console.print(f"{len(rows):5} tasks of the layout {layout}")
    often = Counter(name for row in rows for name in row.missing).most_common(10)
    if often:
        names = ", ".join(f"{escape_controls(name)} ({count})" for name, count in often)
        console.print(f"Missing most often: {escape(names)}")
