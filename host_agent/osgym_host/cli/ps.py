"""`osgym ps`: the replicas of a running host agent."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from osgym_host.cli.client import get, url_option


@click.command()
@url_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ps(url: str, as_json: bool) -> None:
    """List the replicas of a running host agent."""
    rows: list[dict[str, Any]] = get(url, "/v1/replicas").json()
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for name in ("ID", "STATE", "EPISODE", "STEP"):
        table.add_column(name)
    for name in ("AGE", "RAM", "DISK", "CPU"):
        table.add_column(name, justify="right")
    for row in rows:
        state = row["state"] if row["reason"] is None else f"{row['state']} ({row['reason']})"
        table.add_row(
            row["replica_id"],
            state,
            row["episode_id"] or "-",
            "-" if row["step"] is None else str(row["step"]),
            _age(row["age_s"]),
            _unit(row["pss_mib"], "MiB"),
            _unit(row["overlay_mib"], "MiB"),
            _unit(row["cpu_s"], "s"),
        )
    Console().print(table)


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _unit(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.1f} {unit}"
