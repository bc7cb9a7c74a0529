"""`osgym doctor`: what this machine can run, and how to get what is missing."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from osgym_host.doctor.examination import can_run, examine
from osgym_host.doctor.result import DoctorContext, Finding, Status
from osgym_host.images.store import default_data_dir

_STYLES = {Status.OK: "green", Status.WARN: "yellow", Status.MISSING: "bold red"}


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym doctor\n"
    "  osgym doctor --quick --json | jq .local_runtime\n"
    "  osgym doctor --replicas 128\n"
    "\n\b\nExit codes: 0 the local runtime can run here - 1 it cannot.\n",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--quick", is_flag=True, help="Do not boot virtual machines.")
@click.option(
    "--replicas", default=0, help="Number of replicas to check limits for; default: what memory allows."
)
@click.option(
    "--kernel", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Kernel to boot."
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="OSGYM_DATA_DIR",
    help="Folder for images and replicas.",
)
def doctor(as_json: bool, quick: bool, replicas: int, kernel: Path | None, data_dir: Path | None) -> None:
    """Find out by trying what this machine can run, and how to get what is missing.

    Takes up to 20 seconds. The exit code is 1 when the local runtime cannot run here.
    """
    context = DoctorContext(
        data_dir=data_dir or default_data_dir(),
        replicas=replicas or _replicas_that_fit(),
        kernel=kernel,
        deep=not quick,
    )
    results = asyncio.run(examine(context))
    works = can_run(results)
    if as_json:
        rows = [dataclasses.asdict(result) for result in results]
        click.echo(json.dumps({"local_runtime": works, "checks": rows}, indent=2))
    else:
        _print(results, works)
    sys.exit(0 if works else 1)


def _replicas_that_fit() -> int:
    """As many busy desktops as the memory of this machine holds."""
    total_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return max(4, total_mib // 600)


def _print(results: list[Finding], works: bool) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for result in results:
        style = _STYLES[result.status]
        text = result.found if not result.remedy else f"{result.found}\n[dim]{result.remedy}[/dim]"
        table.add_row(result.name, f"[{style}]{result.status}[/{style}]", text)
    console = Console(highlight=False)
    console.print(table)
    console.print()
    if works:
        console.print("[green]The local runtime works here.[/green]")
    else:
        console.print(
            "[bold red]The local runtime cannot run here[/bold red]; the red rows give the reasons."
        )
