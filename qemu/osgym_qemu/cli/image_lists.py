"""`osgym image disks` and `osgym image snapshots`: list what virtual machines are made of."""

from __future__ import annotations

import click

from osgym_host.cli.image_output import print_rows
from osgym_host.images.store import default_data_dir
from osgym_qemu.derived import disk_store, snapshot_store


@click.command(
    "disks",
    epilog="\b\nExamples:\n  osgym image disks\n  osgym image disks --json\n",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_disks(as_json: bool) -> None:
    """List the bootable disks in the store."""
    found = disk_store(default_data_dir())
    print_rows(found.rows(), found.columns, as_json)


@click.command(
    "snapshots",
    epilog="\b\nExamples:\n  osgym image snapshots\n  osgym image snapshots --json\n",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_snapshots(as_json: bool) -> None:
    """List the snapshots in the store."""
    found = snapshot_store(default_data_dir())
    print_rows(found.rows(), found.columns, as_json)
