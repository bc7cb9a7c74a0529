"""`osgym shot ID out.png`: a picture of a replica's screen."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import click

from osgym_host.cli.client import get, url_option


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym shot r12 now.png\n"
    "  osgym shot --url http://10.0.0.5:20000 r12 now.png\n"
    "\n\b\nExit codes: 0 written - 1 there is no such replica, or the host agent does not answer.\n",
)
@click.argument("replica_id")
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@url_option
def shot(replica_id: str, out: Path, url: str) -> None:
    """Save a picture of a replica's screen as PNG."""
    data = get(url, f"/v1/replicas/{quote(replica_id, safe='')}/screenshot").content
    try:
        out.write_bytes(data)
    except OSError as error:
        raise click.ClickException(f"cannot write {out}: {error}") from error
    click.echo(f"{out}: {len(data)} bytes")
