"""`osgym image runner`: the image that runner containers start from."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from osgym_host.errors import OsgymHostError
from osgym_host.images.errors import BakeError
from osgym_host.images.store import default_data_dir


@click.command()
@click.option("--refresh", is_flag=True, help="Build it again with today's packages.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def runner(refresh: bool, as_json: bool) -> None:
    """Build the image that virtual machines run in with `runner: container`; quick when it is there."""
    try:
        report = asyncio.run(_runner(default_data_dir() / "cache", refresh))
    except OsgymHostError as exc:
        if isinstance(exc, BakeError) and exc.log_tail:
            click.echo(exc.log_tail, err=True)
        click.echo(f"osgym image runner: {exc}", err=True)
        sys.exit(1)
    if as_json:
        click.echo(json.dumps(report))
    else:
        state = "built" if report["built"] else "unchanged"
        click.echo(f"{report['tag']}  {state}  QEMU {report['qemu_version']}")


async def _runner(scratch: Path, refresh: bool) -> dict[str, object]:
    """Ask the daemon, building in `scratch` when there is nothing to find."""
    from osgym_host.runtimes.qemu.runner.daemon import Daemon
    from osgym_host.runtimes.qemu.runner.image import build_runner_image

    daemon = Daemon()
    try:
        await daemon.open()
        image, built = await build_runner_image(daemon, scratch, refresh=refresh)
    finally:
        await daemon.close()
    return {**asdict(image), "built": built}
