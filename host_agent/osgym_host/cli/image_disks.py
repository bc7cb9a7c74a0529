"""Disk images for `osgym image`: bootable disks made from golden images, and imported ones."""

from __future__ import annotations

import json

import click

from osgym_host.images.definition import Source, find_images_folder
from osgym_host.images.disks.bake import DiskBaker, DiskRequest
from osgym_host.images.disks.definition import VmSource
from osgym_host.images.disks.manifest import DiskFormat
from osgym_host.images.disks.store import DiskImage, DiskStore
from osgym_host.images.progress import Progress
from osgym_host.images.store import ImageStore

_MIB = 1 << 20


def build(
    images: ImageStore, flavor: str, kind: str, progress: Progress, *, refresh: bool, as_json: bool
) -> None:
    """Make a bootable disk of the flavor's golden image as it is in the store.

    Raises:
        ImageError: There is no such golden image, or making the disk failed.
    """
    disks = DiskStore(images.data_dir)
    folder = find_images_folder()
    definition = Source(folder).definition
    baker = DiskBaker(definition, VmSource(folder), images, disks, progress)
    made = baker.bake(DiskRequest(images.resolve(flavor), DiskFormat(kind), refresh))
    if as_json:
        click.echo(json.dumps({**row(made, disks), "timings_s": progress.timings}))
    else:
        size = made.manifest.size_bytes // _MIB
        click.echo(f"{flavor} {made.digest[:16]}  {size} MiB  {made.disk}")


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
