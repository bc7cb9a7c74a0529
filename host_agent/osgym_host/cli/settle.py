"""`osgym settle`: fit the waits of `exact` to the applications of an image."""

from __future__ import annotations

import asyncio
import json
import logging
import posixpath
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table as RichTable

from osgym_host.calibration.decision import Bounds, calibrate, table_of
from osgym_host.calibration.run import Exploration, Explorer, Plan, tally
from osgym_host.cli.image_output import errors_reported
from osgym_host.cli.terminal import EXIT_INTERRUPTED, interrupt_once
from osgym_host.images.calibration import (
    MAX_ROWS,
    Calibration,
    CalibrationRow,
    calibration_path,
    forget_calibration,
    read_calibration,
    write_calibration,
)
from osgym_host.images.store import Image, ImageStore, default_data_dir
from osgym_host.logs import escape_lines
from osgym_host.runtimes.local.runtime import LocalRuntime
from osgym_protocol.settle_table import (
    MAX_PROGRAMS,
    PROGRAM,
    ActionKind,
    TimerHorizons,
    parse_table,
    table_json,
)

EXIT_NOTHING = 3
INSTANCE = "calibrate"

EPILOG = """\b
Examples:
  osgym settle calibrate full                          every application of the menu, 30 minutes
  osgym settle calibrate mine --programs geany --minutes 10
  osgym settle check mine --programs geany             what exact is worth now, by other actions
  osgym settle show mine                               what was found out
  osgym settle forget mine                             back to the image's own horizons
\b
Exit codes: 0 done, or there is a calibration already - 1 it cannot be done - 2 wrong usage -
3 no application could be explored - 130 interrupted (nothing is changed).
"""
FOLDERS = ("usr/local/bin", "usr/bin", "usr/local/games", "usr/games")
MAX_LINKS = 8
MAX_ENTRIES = 20_000
COMM_CHARS = 15
"""Length of a name that the kernel keeps."""


@click.group(
    epilog="\b\nExamples:\n"
    "  osgym settle calibrate full\n"
    "  osgym settle check full\n"
    "  osgym settle show full\n",
)
def settle() -> None:
    """Fit the waits of steps to the applications of an image."""


@settle.command("calibrate", epilog=EPILOG)
@click.argument("image")
@click.option("--programs", multiple=True, help="Application to explore; repeatable. Default: all.")
@click.option("--minutes", type=click.FloatRange(0.5, 600), default=30.0, show_default=True,
              help="Minutes for all applications together.")  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of words, places and menus.")
@click.option("--max-horizon", "max_ms", type=click.FloatRange(60, 800), default=600.0, show_default=True,
              help="Longest horizon, in ms.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write instead.")
@click.option("--again", is_flag=True, help="Explore anew if the image is calibrated already.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def calibrate_image(
    image: str,
    programs: tuple[str, ...],
    minutes: float,
    seed: int,
    max_ms: float,
    out: Path | None,
    again: bool,
    as_json: bool,
) -> None:
    """Measure how long `exact` has to wait for the applications of IMAGE, and store it beside the image.

    Each application of the image's menu is started in its own desktop and explored: the command walks menus,
    opens and accepts dialogs, saves and opens files, types text. It records all signals for 2.5 s after each
    action, and chooses the shortest horizons with which at most 1 % of the screens change after the answer.
    From the next start of `osgym host serve` on, every replica of the image uses them with the policy
    `exact` (`--set calibrated_horizons=off` switches that off). Nothing is learned while episodes run.

    A calibrated image is left unchanged; --again explores anew, and --programs replaces only those.
    Use a machine that does nothing else: delays caused by other load count as well.
    """
    with errors_reported("settle"):
        found = ImageStore(default_data_dir()).resolve(image)
        path = out or calibration_path(found.folder)
        before = None if out else read_calibration(found.folder, found.digest)
        if before is not None and not again and not programs:
            _show(before, as_json)
            click.echo(
                f"{found.name} is already calibrated; give --again to repeat the calibration", err=True
            )
            return
        explored = _explore(found, Plan(programs, minutes, seed))
        if not explored.samples or explored.rule is None:
            click.echo("osgym settle: nothing was recorded, so the calibration is unchanged", err=True)
            sys.exit(EXIT_NOTHING)
        rows = calibrate(explored.samples, explored.rule, Bounds(max_horizon_ms=max_ms))
        made = _merged(before, found, explored.explored, rows)
        write_calibration(path, made)
    _show(made, as_json)
    click.echo(f"{len(explored.samples)} actions recorded; the calibration is in {path}", err=True)


@settle.command(
    epilog="\b\nExamples:\n"
    "  osgym settle check mine --programs geany\n"
    "  osgym settle check mine --uncalibrated --minutes 30 --json\n"
    "\n\b\nExit codes: 0 done - 1 it cannot be done - 2 wrong usage -\n"
    "3 no application could be explored - 130 Ctrl-C.\n",
)
@click.argument("image")
@click.option("--programs", multiple=True, help="Application to explore; repeatable. Default: all.")
@click.option("--minutes", type=click.FloatRange(0.5, 600), default=15.0, show_default=True,
              help="Minutes for all applications together.")  # fmt: skip
@click.option("--seed", type=int, default=2, show_default=True, help="Seed, another than calibrate's.")
@click.option("--uncalibrated", is_flag=True, help="Use the image's own horizons, for comparison.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(
    image: str, programs: tuple[str, ...], minutes: float, seed: int, uncalibrated: bool, as_json: bool
) -> None:
    """Count how often `exact` answers too early in IMAGE, with actions that calibrate did not use.

    An answer was too early if the screen changes within 2.5 s; text carets and the panel do not count.
    """
    with errors_reported("settle"):
        found = ImageStore(default_data_dir()).resolve(image)
        kept = None if uncalibrated else read_calibration(found.folder, found.digest)
        explored = _explore(found, Plan(programs, minutes, seed, kept.environment() if kept else ()))
    rows = tally(explored.verdicts)
    if as_json:
        click.echo(json.dumps({"calibrated": kept is not None, "rows": rows, "failures": explored.failures}))
    else:
        _print(("application", "kind", "actions", "premature", "mean_wait_ms"), rows)
        late, count = sum(judged.premature for _, _, judged in explored.verdicts), len(explored.verdicts)
        click.echo(f"{late} of {count} too early" + (f", {late / count:.1%}" if count else ""))
    if not rows:
        sys.exit(EXIT_NOTHING)


@settle.command(
    epilog="\b\nExamples:\n"
    "  osgym settle show full\n"
    "  osgym settle show mine --json\n"
    "\n\b\nExit codes: 0 there is a calibration - 1 there is no such image - 3 it has no calibration.\n",
)
@click.argument("image")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(image: str, as_json: bool) -> None:
    """Print the calibration of IMAGE; exit code 3 when it has none."""
    with errors_reported("settle"):
        found = ImageStore(default_data_dir()).resolve(image)
        kept = read_calibration(found.folder, found.digest)
    if kept is None:
        click.echo(
            f"{found.name} {found.digest[:16]} is not calibrated: osgym settle calibrate {image}", err=True
        )
        sys.exit(EXIT_NOTHING)
    _show(kept, as_json)


@settle.command(
    epilog="\b\nExamples:\n  osgym settle forget mine\n",
)
@click.argument("image")
def forget(image: str) -> None:
    """Remove the calibration of IMAGE: its replicas use the image's own horizons again."""
    with errors_reported("settle"):
        found = ImageStore(default_data_dir()).resolve(image)
        done = forget_calibration(found.folder)
    click.echo(f"{found.name} {found.digest[:16]}: " + ("forgotten" if done else "was not calibrated"))


def _explore(image: Image, plan: Plan) -> Exploration:
    """Explore; Ctrl-C and SIGTERM remove the replica and leave with 130."""
    logging.getLogger("osgym_host").setLevel(logging.ERROR)
    began = time.monotonic()

    def say(line: str) -> None:
        click.echo(f"{time.monotonic() - began:6.0f} s  {escape_lines(line)}", err=True)

    async def run() -> Exploration:
        interrupt_once("removing the replica; the calibration stays unchanged …")
        runtime = LocalRuntime(default_data_dir(), INSTANCE)
        await runtime.start()
        try:
            return await Explorer(runtime, image, plan, say).run()
        finally:
            await runtime.stop()

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        sys.exit(EXIT_INTERRUPTED)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc


def _merged(
    before: Calibration | None, image: Image, explored: list[str], rows: list[CalibrationRow]
) -> Calibration:
    """Lay what was found out over what is known of other programs; add the names they also go by."""
    programs = {row.program for row in rows}
    others = [row for row in before.rows if row.program not in programs] if before else []
    whole = sorted([*others, *rows], key=lambda row: (row.program, row.kind))[:MAX_ROWS]
    names = sorted({*(before.applications if before else ()), *explored})
    table = table_json(with_other_names(table_of(whole), names_of_programs(image.rootfs)))
    parse_table(table)
    return Calibration(image_digest=image.digest, applications=names, rows=whole, table=table)


def _show(found: Calibration, as_json: bool) -> None:
    if as_json:
        click.echo(found.model_dump_json())
        return
    rows = [
        {
            "program": row.program,
            "kind": str(row.kind),
            "samples": row.samples,
            "premature before": row.premature_before,
            "after": row.premature_after,
            "horizon": f"{row.horizon_ms:g} ms",
            "from change": f"{row.change_horizon_ms:g} ms",
            "wait": f"{row.wait_before_ms:.0f} → {row.wait_after_ms:.0f} ms",
            "in use": "*" if row.applied else "",
        }
        for row in found.rows
    ]
    _print(tuple(rows[0]) if rows else (), rows)


def _print(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """Print a table of the width that it needs: what is piped is not cut."""
    table = RichTable(*columns, box=None)
    for row in rows:
        table.add_row(*(str(row[column]) for column in columns))
    console = Console()
    if not console.is_terminal:
        console.width = 160
    console.print(table)


def names_of_programs(rootfs: Path) -> list[frozenset[str]]:
    """Return the names that start one file, for each file that has several, as the kernel keeps them.

    Links are read, never followed: they are the image's, and may point anywhere.
    """
    groups: dict[str, set[str]] = defaultdict(set)
    root = rootfs.resolve()
    for folder in FOLDERS:
        place = (root / folder).resolve()
        if not place.is_relative_to(root) or not place.is_dir():
            continue
        for name in sorted(entry.name for entry in place.iterdir())[:MAX_ENTRIES]:
            target = _end_of_links(root, f"{folder}/{name}")
            groups[target] |= {name[:COMM_CHARS], posixpath.basename(target)[:COMM_CHARS]}
    found = [frozenset(filter(PROGRAM.fullmatch, names)) for names in groups.values()]
    return sorted((names for names in found if len(names) > 1), key=sorted)


def _end_of_links(rootfs: Path, path: str) -> str:
    for _ in range(MAX_LINKS):
        try:
            said = str((rootfs / path).readlink())
        except OSError:
            break
        # "/.." is "/": no link leads out of the image.
        path = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), said)).lstrip("/")
    return path


def with_other_names(
    table: Mapping[str, Mapping[ActionKind, TimerHorizons]], groups: Iterable[frozenset[str]]
) -> dict[str, dict[ActionKind, TimerHorizons]]:
    """Return the table with its programs' other names, as far as there is room. Pure."""
    found = {program: dict(kinds) for program, kinds in table.items()}
    for names in groups:
        known = sorted(names & table.keys())
        for name in sorted(names - table.keys()):
            if known and name not in found and len(found) < MAX_PROGRAMS:
                found[name] = dict(table[known[0]])
    return found
