"""`osgym replica`: the replicas of a running host agent, and their screens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from osgym_cli.host_client import HostClient, format_span, host_options, json_option, memory_mib
from osgym_host.cli.terminal import show_table


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym replica ls\n"
    "  osgym replica ls --host http://10.0.0.5:20000\n"
    "  osgym replica ls --json | jq '.[] | select(.state == \"leased\")'\n"
    "\n\b\nExit codes: 0 done - 1 the host agent does not answer, or refuses.\n",
)
@host_options
@json_option
def ls(host: HostClient, as_json: bool) -> None:
    """List the replicas of a running host agent.

    REST says whether a replica is awake, paused, or reclaimed: its memory is in swap, and RAM is what it
    occupies there, compressed. A call wakes it.
    """
    rows: list[dict[str, Any]] = host.get("/v1/replicas").json()
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    lines = []
    for row in rows:
        state = row["state"] if row["reason"] is None else f"{row['state']} ({row['reason']})"
        step = "-" if row["step"] is None else str(row["step"])
        used = (_unit(memory_mib(row), "MiB"), _unit(row["overlay_mib"], "MiB"), _unit(row["cpu_s"], "s"))
        pid = "-" if row["pid"] is None else str(row["pid"])
        names = (row["replica_id"], state, row.get("rest") or "-", row["episode_id"] or "-", step)
        lines.append((*names, pid, format_span(row["age_s"]), *used))
    show_table(("ID", "STATE", "REST", "EPISODE", "STEP"), ("PID", "AGE", "RAM", "DISK", "CPU"), lines)


def _unit(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.1f} {unit}"


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym replica screenshot r12 now.png\n"
    "  osgym replica screenshot --host http://10.0.0.5:20000 r12 now.png\n"
    "\n\b\nExit codes: 0 written - 1 there is no such replica, or the host agent does not answer.\n",
)
@click.argument("replica_id")
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@host_options
def screenshot(replica_id: str, out: Path, host: HostClient) -> None:
    """Save a picture of a replica's screen as PNG."""
    data = host.get(f"/v1/replicas/{quote(replica_id, safe='')}/screenshot").content
    try:
        out.write_bytes(data)
    except OSError as error:
        raise click.ClickException(f"cannot write {out}: {error}") from error
    click.echo(f"{out}: {len(data)} bytes")
