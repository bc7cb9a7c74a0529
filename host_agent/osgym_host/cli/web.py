"""`osgym web`: looks into archives of recorded sites."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from osgym_host.runtimes.web.archive import Archive, open_archive
from osgym_host.runtimes.web.har import ArchiveError

EXAMPLES = """\b
Examples:
  osgym host serve --set web=record --set web_archive=shop.har --set egress=open
  osgym web ls shop.har
  osgym host serve --set web=replay --set web_archive=shop.har
"""


@click.group(epilog=EXAMPLES)
def web() -> None:
    """Look into archives of sites that a host agent or a browser recorded.

    An archive is a HAR file. The host agent records and replays it with the settings `web` and `web_archive`.
    """


@web.command(
    name="ls",
    epilog="\b\nExamples:\n"
    "  osgym web ls shop.har\n"
    "  osgym web ls --json shop.har\n"
    "\n\b\nExit codes: 0 done - 1 it is no archive that can be replayed - 2 wrong usage.\n",
)
@click.argument("archive", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ls(archive: Path, as_json: bool) -> None:
    """List what ARCHIVE answers: status, size in bytes, URL."""
    kept = Archive()
    try:
        fd = open_archive(archive, to_record=False)
        try:
            kept.load(fd)
        finally:
            os.close(fd)
    except (ArchiveError, OSError) as exc:
        raise click.ClickException(f"{archive}: {exc}") from exc
    rows = []
    for url in kept.urls:
        stored = kept.find(url)
        assert stored is not None
        rows.append({"url": url, "status": int(kept.head(stored)[9:12]), "bytes": stored.body_bytes})
    if as_json:
        click.echo(json.dumps({"answers": rows, "left_out": kept.skipped}, indent=1))
        return
    for row in rows:
        click.echo(f"{row['status']} {row['bytes']:>10} {row['url']}")
    click.echo(f"{len(rows)} answers; {kept.skipped} entries cannot be replayed and were skipped")
