"""`osgym task check` and `osgym task reference`: what task files need, and what they can name."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from osgym_cli.evals.jobs import find_task_files
from osgym_host.images.errors import ImageError
from osgym_host.images.store import ImageStore, default_data_dir
from osgym_host.logs import escape_controls
from osgym_host.tasks.needs import HasProgram, Needs, Verdict, needs_of, programs_of

MAX_FILE_BYTES = 32 << 20
WIDTH = 140
"""Columns of the table where there is no terminal."""
_STYLES = {
    Verdict.RUNS: "green",
    Verdict.FETCHES: "green",
    Verdict.INTERNET: "yellow",
    Verdict.ACCOUNT: "yellow",
    Verdict.PROGRAM: "yellow",
    Verdict.MISSING: "red",
    Verdict.INVALID: "bold red",
}
EPILOG = """
\b
Examples:
  osgym task check tasks                         # every task below the folder
  osgym task check evaluation_examples/examples --json | jq .summary
  osgym task check my-task.json --image small

\b
Exit codes: 0 each runs here, given its files - 1 some need more - 2 wrong usage, or no file there.
"""


@click.command(epilog="\b\nExamples:\n  osgym task reference > docs/tasks.md\n")
def reference() -> None:
    """Print all setup steps, getters and metrics that a task can name, as Markdown."""
    from osgym_host.tasks.reference import page

    click.echo(page(), nl=False)


@click.command(epilog=EPILOG)
@click.argument("tasks", nargs=-1, required=True, metavar="FILE|DIR...")
@click.option("--image", default="full", show_default=True, help="Golden image to look programs up in.")
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), envvar="OSGYM_DATA_DIR",
              help="Folder of images and fetched files.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(tasks: tuple[str, ...], image: str, data_dir: Path | None, as_json: bool) -> None:
    """Find out which tasks run here, and what the others need.

    EVIDENCE is the source of what the check reads: "host" for files alone, "guest" if the check asks
    programs of the desktop, which a policy could replace or imitate. Nothing is run and nothing is fetched.
    """
    data = data_dir or default_data_dir()
    files = find_task_files(tasks)
    has_program, looked = _programs(data, image)
    rows = [(str(path), _needs(path, has_program, data / "cache" / "downloads")) for path in files]
    summary = Counter(needs.verdict for _, needs in rows)
    if as_json:
        click.echo(json.dumps(_as_json(rows, summary, looked), indent=2))
    else:
        _print(rows, summary, looked)
    sys.exit(0 if summary[Verdict.RUNS] + summary[Verdict.FETCHES] == len(rows) else 1)


def _programs(data: Path, image: str) -> tuple[HasProgram | None, str | None]:
    """Return what looks programs up, and the image's name; None for both without the image."""
    try:
        found = ImageStore(data).resolve(image)
    except (ImageError, OSError):
        return None, None
    return programs_of(found.rootfs), found.name


def _needs(path: Path, has_program: HasProgram | None, cache: Path) -> Needs:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return Needs(invalid=f"the file is larger than {MAX_FILE_BYTES} bytes")
        found = json.loads(path.read_bytes())
    except OSError as error:
        return Needs(invalid=f"the file cannot be read: {error.strerror or error}")
    except (ValueError, RecursionError) as error:
        return Needs(invalid=f"the file is not JSON: {error}")
    return needs_of(found, has_program, cache)


def _as_json(
    rows: Sequence[tuple[str, Needs]], summary: Counter[Verdict], looked: str | None
) -> dict[str, object]:
    return {
        "image": looked,
        "summary": {verdict.value: summary[verdict] for verdict in Verdict},
        "tasks": [
            {
                "file": path,
                "verdict": needs.verdict.value,
                "evidence": needs.evidence,
                "invalid": needs.invalid or None,
                "accounts": needs.accounts,
                "missing": needs.missing,
                "programs": needs.programs,
                "internet": needs.internet,
                "files_to_fetch": needs.fetches,
                "to_fetch": [{"url": url, "name_in_cache": name} for url, name in needs.to_fetch],
            }
            for path, needs in rows
        ],
    }


def _print(rows: Sequence[tuple[str, Needs]], summary: Counter[Verdict], looked: str | None) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    table = Table(box=None, pad_edge=False)
    table.add_column("TASK", no_wrap=True, overflow="ellipsis", max_width=60)
    table.add_column("VERDICT", no_wrap=True)
    table.add_column("EVIDENCE", no_wrap=True)
    table.add_column("WHAT IT NEEDS", overflow="fold")
    for path, needs in rows:
        style, words = _STYLES[needs.verdict], escape(escape_controls("; ".join(needs.words)))
        name = escape(escape_controls("/".join(Path(path).parts[-2:])))
        table.add_row(name, f"[{style}]{needs.verdict}[/{style}]", needs.evidence or "", words)
    console.print(table)
    console.print()
    missing = Counter(word for _, needs in rows for word in needs.missing)
    for verdict in Verdict:
        if summary[verdict]:
            console.print(f"[{_STYLES[verdict]}]{summary[verdict]:5} {verdict}[/{_STYLES[verdict]}]")
    console.print(f"{len(rows):5} in all")
    if summary[Verdict.INTERNET]:
        console.print(
            "Tasks that need internet can be recorded once and replayed without it (settings web, "
            "web_archive)."
        )
    if missing:
        often = ", ".join(f"{escape_controls(name)} ({count})" for name, count in missing.most_common(10))
        console.print(f"Missing most often: {escape(often)}")
    if looked is None:
        console.print(
            "[yellow]The golden image does not exist here, so programs were not looked up.[/yellow]"
        )
    else:
        console.print(f"Programs were looked up in the golden image {escape(looked)}.")
