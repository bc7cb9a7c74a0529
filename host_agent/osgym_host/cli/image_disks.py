"""Disk images for `osgym image`: bootable disks made from golden images, and imported ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table

from osgym_host.images.definition import Source, find_images_folder, tree_hash
from osgym_host.images.disks.bake import BUILDER_VERSION, DiskBaker, DiskRequest
from osgym_host.images.disks.cow import can_reflink, choose
from osgym_host.images.disks.definition import VmSource
from osgym_host.images.disks.manifest import DiskFormat
from osgym_host.images.disks.store import DiskImage, DiskStore
from osgym_host.images.progress import Progress
from osgym_host.images.store import Image, ImageStore, default_data_dir

_MIB = 1 << 20


def build(
    images: ImageStore, image: Image, kind: str, progress: Progress, *, refresh: bool, as_json: bool
) -> None:
    """Make a bootable disk of a golden image.

    Raises:
        ImageError: Making the disk failed.
    """
    disks = DiskStore(images.data_dir)
    folder = find_images_folder()
    definition = Source(folder).definition
    if kind == "disk":
        images.prepare()
        choice = choose(reflink=can_reflink(images.data_dir))
        progress.note(f"{choice.format}: {choice.reason}")
        kind = choice.format
    baker = DiskBaker(definition, VmSource(folder), images, disks, progress)
    made = baker.bake(DiskRequest(image, DiskFormat(kind), refresh))
    if as_json:
        click.echo(json.dumps({**row(made, disks), "timings_s": progress.timings}))
    else:
        size = made.manifest.size_bytes // _MIB
        click.echo(f"{made.name} {made.digest[:16]}  {size} MiB  {made.disk}")


def definition(image: str) -> str:
    """Digest of everything that a disk and its snapshots are made from.

    Args:
        image: The digest of the golden image's definition.
    """
    folder = find_images_folder()
    parts = [image, VmSource(folder).key(), tree_hash([folder / "warmups"]), str(BUILDER_VERSION)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def disks(as_json: bool) -> None:
    """List the bootable disks in the store."""
    store = DiskStore(default_data_dir())
    if as_json:
        click.echo(json.dumps([row(found, store) for found in store.all()]))
    else:
        print_table()


def print_table() -> None:
    """Print the bootable disks, if there are any."""
    store = DiskStore(default_data_dir())
    rows = [row(found, store) for found in store.all()]
    if not rows:
        return
    columns = ("digest", "disk", "tag", "format", "guest", "size", "virtual", "created")
    table = Table(*columns, box=None)
    for found in rows:
        tag = "*" if found["tagged"] else ""
        cells = [str(found["digest"])[:16], found["name"], tag, found["format"], found["guest"]]
        cells += [f"{found['size_mib']} MiB", f"{found['virtual_mib']} MiB", found["created_at"]]
        table.add_row(*(str(cell) for cell in cells))
    Console().print(table)


def remove(names: Sequence[str], *, untagged: bool) -> None:
    """Remove bootable disks, named by name or digest prefix.

    Raises:
        ImageError: One of the names means none, or more than one.
    """
    store = DiskStore(default_data_dir())
    chosen = [store.resolve(name) for name in names]
    if untagged:
        tagged = store.tagged().values()
        chosen += [found for found in store.all() if found.digest not in tagged]
    for found in chosen:
        store.remove(found)
        click.echo(f"removed {found.digest[:16]} ({found.name})")


def row(disk: DiskImage, store: DiskStore) -> dict[str, object]:
    """What lists show of a disk image."""
    manifest = disk.manifest
    return {
        "digest": disk.digest,
        "name": disk.name,
        "tagged": store.tagged().get(disk.name) == disk.digest,
        "format": str(manifest.format),
        "guest": str(manifest.guest),
        "size_mib": manifest.size_bytes // _MIB,
        "virtual_mib": manifest.virtual_size_bytes // _MIB,
        "created_at": manifest.created_at,
        "disk": str(disk.disk),
        "source": manifest.source,
        "bake_s": manifest.bake_s,
    }
