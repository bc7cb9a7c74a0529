"""`osgym ps`: the replicas of a running host agent."""

from __future__ import annotations

import json
from typing import Any

import click

from osgym_host.cli.client import get, show, span, url_option


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym ps\n"
    "  osgym ps --url http://10.0.0.5:20000\n"
    "  osgym ps --json | jq '.[] | select(.state == \"leased\")'\n"
    "\n\b\nExit codes: 0 done - 1 the host agent does not answer, or refuses.\n",
)
@url_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ps(url: str, as_json: bool) -> None:
    """List the replicas of a running host agent."""
    rows: list[dict[str, Any]] = get(url, "/v1/replicas").json()
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    lines = []
    for row in rows:
        state = row["state"] if row["reason"] is None else f"{row['state']} ({row['reason']})"
        step = "-" if row["step"] is None else str(row["step"])
        used = (_unit(row["pss_mib"], "MiB"), _unit(row["overlay_mib"], "MiB"), _unit(row["cpu_s"], "s"))
        pid = "-" if row["pid"] is None else str(row["pid"])
        lines.append(
            (row["replica_id"], state, row["episode_id"] or "-", step, pid, span(row["age_s"]), *used)
        )
    show(("ID", "STATE", "EPISODE", "STEP"), ("PID", "AGE", "RAM", "DISK", "CPU"), lines)


def _unit(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.1f} {unit}"
