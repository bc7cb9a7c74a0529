"""`osgym image`: make, list, inspect and remove golden images, bootable disks and snapshots."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from osgym_host.cli import image_import, image_make
from osgym_host.cli.image_make import errors_reported
from osgym_host.cli.image_rows import disk_row, image_row, snapshot_row
from osgym_host.images.content_store import ContentStore
from osgym_host.images.disks.store import DiskStore
from osgym_host.images.lock import PackageLock
from osgym_host.images.snapshots import SnapshotStore
from osgym_host.images.store import ImageStore, default_data_dir

_IMAGE_COLUMNS = {
    "digest": "{digest:.16}",
    "flavor": "{flavor}",
    "tag": "{tag}",
    "size": "{size_mib} MiB",
    "packages": "{packages}",
    "calibrated": "{calibrated}",
    "created": "{created_at}",
}
_DISK_COLUMNS = {
    "digest": "{digest:.16}",
    "disk": "{name}",
    "tag": "{tag}",
    "format": "{format}",
    "guest": "{guest}",
    "size": "{size_mib} MiB",
    "virtual": "{virtual_mib} MiB",
    "created": "{created_at}",
}
_SNAPSHOT_COLUMNS = {
    "digest": "{digest:.16}",
    "snapshot": "{reference}",
    "tag": "{tag}",
    "accel": "{accel}",
    "RAM": "{ram_mib} MiB",
    "in file": "{ram_data_mib} MiB",
    "disk": "{disk_mib} MiB",
    "screen": "{screen}",
    "created": "{created_at}",
}


@click.group(
    epilog="\b\nExamples:\n"
    "  osgym image build --flavor small\n"
    "  osgym image ls\n"
    "  osgym image build --format disk        a disk that boots\n"
    "  osgym image snapshot full              a machine of it, frozen: what runtime qemu clones\n",
)
def image() -> None:
    """Golden images: what every replica is cloned from."""


for command in (
    image_make.build,
    image_make.definition,
    image_make.snapshot,
    image_make.runner,
    image_import.import_disk,
):
    image.add_command(command)


@image.command(
    "ls",
    epilog="\b\nExamples:\n  osgym image ls\n  osgym image ls --json\n",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_images(as_json: bool) -> None:
    """List the images in the store; with --json without the disks (see osgym image disks)."""
    store = ImageStore(default_data_dir())
    _print([image_row(found, store) for found in store.all()], _IMAGE_COLUMNS, as_json)
    disks = [] if as_json else _disk_rows()
    if disks:
        _print(disks, _DISK_COLUMNS, as_json)


@image.command(
    "disks",
    epilog="\b\nExamples:\n  osgym image disks\n  osgym image disks --json\n",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_disks(as_json: bool) -> None:
    """List the bootable disks in the store."""
    _print(_disk_rows(), _DISK_COLUMNS, as_json)


@image.command(
    "snapshots",
    epilog="\b\nExamples:\n  osgym image snapshots\n  osgym image snapshots --json\n",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_snapshots(as_json: bool) -> None:
    """List the snapshots in the store."""
    store = SnapshotStore(default_data_dir())
    _print([snapshot_row(found, store) for found in store.all()], _SNAPSHOT_COLUMNS, as_json)


@image.command(
    epilog="\b\nExamples:\n"
    "  osgym image inspect small | jq .packages\n"
    "  osgym image inspect --disk ubuntu\n"
    "  osgym image inspect full@desktop\n",
)
@click.argument("name")
@click.option("--disk", is_flag=True, help="NAME is a bootable disk instead of a root file system.")
def inspect(name: str, disk: bool) -> None:
    """Print the manifest of an image, named by flavor or digest prefix, or of a snapshot (disk@name)."""
    with errors_reported():
        found = _store(disk=disk, snapshot="@" in name).resolve(name)
        click.echo(found.manifest.model_dump_json(indent=1))


@image.command(
    epilog="\b\nExamples:\n"
    "  osgym image rm 3f2a9c10\n"
    "  osgym image rm --untagged              all but the newest of each flavor\n"
    "  osgym image rm --snapshot full@desktop\n",
)
@click.argument("names", nargs=-1)
@click.option("--untagged", is_flag=True, help="Remove all that are not the newest of their flavor.")
@click.option("--disk", is_flag=True, help="NAMES are bootable disks instead of root file systems.")
@click.option("--snapshot", is_flag=True, help="NAMES are snapshots instead of root file systems.")
def rm(names: tuple[str, ...], untagged: bool, disk: bool, snapshot: bool) -> None:
    """Remove images, named by flavor or digest prefix, or snapshots (disk@name)."""
    if not names and not untagged:
        raise click.UsageError("name an image, or say --untagged")
    store = _store(disk=disk, snapshot=snapshot or any("@" in name for name in names))
    with errors_reported():
        for found in store.select(names, untagged=untagged):
            store.remove(found)
            click.echo(f"removed {found.digest[:16]} ({found.name})")


@image.command(
    epilog="\b\nExamples:\n  osgym image lock full --out mine.lock\n",
)
@click.argument("name")
@click.option("--out", type=click.Path(path_type=Path), help="Write to this file instead of printing.")
def lock(name: str, out: Path | None) -> None:
    """Print the package versions of an image in the form that `build --lock` reads."""
    with errors_reported():
        text = PackageLock(ImageStore(default_data_dir()).resolve(name).manifest.packages).text()
    if out is None:
        click.echo(text, nl=False)
    else:
        out.write_text(text)


def _store(*, disk: bool, snapshot: bool) -> ContentStore[Any, Any]:
    if snapshot:
        return SnapshotStore(default_data_dir())
    return DiskStore(default_data_dir()) if disk else ImageStore(default_data_dir())


def _disk_rows() -> list[dict[str, object]]:
    store = DiskStore(default_data_dir())
    return [disk_row(found, store) for found in store.all()]


def _print(rows: Sequence[Mapping[str, object]], columns: Mapping[str, str], as_json: bool) -> None:
    """Print rows as JSON, or as a table; `columns` gives each heading the format of its cells."""
    if as_json:
        click.echo(json.dumps(rows))
        return
    table = Table(*columns, box=None)
    for row in rows:
        cells = {**row, "tag": "*" if row["tagged"] else ""}
        cells["calibrated"] = "*" if row.get("calibrated") else ""
        table.add_row(*(form.format(**cells) for form in columns.values()))
    Console().print(table)
