"""`osgym checkpoint`: list, remove, export and import the checkpoints of a running host agent."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from osgym_cli.host_client import HostClient, format_span, host_options, json_option
from osgym_host.cli.terminal import show_table

CHUNK_BYTES = 1024 * 1024


@click.group(
    epilog="\b\nExamples:\n"
    "  osgym checkpoint ls\n"
    "  osgym checkpoint export p3f2a9c10 monday.checkpoint\n"
    "  osgym checkpoint import monday.checkpoint --host http://10.0.0.6:20000\n"
    "  osgym checkpoint rm p3f2a9c10\n",
)
def checkpoint() -> None:
    """Manage checkpoints: saved states of episodes, from which other episodes start."""


@checkpoint.command(
    "ls",
    epilog="\b\nExamples:\n  osgym checkpoint ls\n  osgym checkpoint ls --json | jq .used_mib\n",
)
@host_options
@json_option
def list_checkpoints(host: HostClient, as_json: bool) -> None:
    """List the checkpoints, the oldest first."""
    answer: dict[str, Any] = host.get("/v1/checkpoints").json()
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    rows = []
    now = time.time()
    for row in answer["checkpoints"]:
        left = "kept" if row["kept"] else "lease"
        if row["expires_at"] is not None:
            left = format_span(row["expires_at"] - now)
        sizes = (f"{row['ram_mib']:.1f} MiB", f"{row['disk_mib']:.1f} MiB")
        names = (row["checkpoint_id"], row["episode_id"] or "-", row["task_id"] or "-")
        rows.append((*names, str(row["step"]), format_span(now - row["created_at"]), left, *sizes))
    show_table(("ID", "EPISODE", "TASK"), ("STEP", "AGE", "LEFT", "RAM", "DISK"), rows)
    click.echo(f"{answer['used_mib']:.0f} of {answer['max_mib']} MiB used")


@checkpoint.command(
    epilog="\b\nExamples:\n  osgym checkpoint rm p3f2a9c10 p81d2e004\n",
)
@host_options
@click.argument("checkpoint_ids", nargs=-1, required=True)
def rm(host: HostClient, checkpoint_ids: tuple[str, ...]) -> None:
    """Remove checkpoints; episodes that were restored from them go on."""
    for checkpoint_id in checkpoint_ids:
        host.call("DELETE", f"/v1/checkpoints/{checkpoint_id}")
        click.echo(f"removed {checkpoint_id}")


@checkpoint.command(
    epilog="\b\nExamples:\n  osgym checkpoint export p3f2a9c10 monday.checkpoint\n",
)
@host_options
@click.argument("checkpoint_id")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def export(host: HostClient, checkpoint_id: str, file: Path) -> None:
    """Write a kept checkpoint to a file, for `import` on a host with the same golden snapshot."""
    part = file.with_name(f"{file.name}.part-{os.getpid()}")
    try:
        with host.stream(f"/v1/checkpoints/{checkpoint_id}/export") as answer, part.open("wb") as out:
            for chunk in answer.iter_raw(CHUNK_BYTES):
                out.write(chunk)
        part.replace(file)
    except OSError as error:
        raise click.ClickException(f"cannot write {file}: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    click.echo(f"{file}  {file.stat().st_size / CHUNK_BYTES:.1f} MiB")


@checkpoint.command(
    "import",
    epilog="\b\nExamples:\n"
    "  osgym checkpoint import monday.checkpoint\n"
    "  osgym checkpoint import monday.checkpoint --host http://10.0.0.6:20000\n",
)
@host_options
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
def import_checkpoint(host: HostClient, file: Path) -> None:
    """Load a file of `export` and print the id that the checkpoint has here."""
    answer = host.call(
        "POST",
        "/v1/checkpoints/import",
        content=_pieces(file),
        headers={"content-type": "application/octet-stream", "content-length": str(file.stat().st_size)},
    )
    click.echo(answer.json()["checkpoint_id"])


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while chunk := opened.read(CHUNK_BYTES):
            yield chunk
