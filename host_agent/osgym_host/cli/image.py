"""`osgym image`: bake, list, inspect and remove golden images."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click
from rich.console import Console
from rich.table import Table

from osgym_host.cli import image_disks, image_import, image_runner, image_snapshots
from osgym_host.images.bake import Baker, Request
from osgym_host.images.definition import Source, find_images_folder
from osgym_host.images.disks.store import DiskStore
from osgym_host.images.errors import BakeError, ImageError
from osgym_host.images.lock import Lock
from osgym_host.images.progress import Display, Progress
from osgym_host.images.snapshots import SnapshotStore
from osgym_host.images.store import Image, ImageStore, default_data_dir

_MIB = 1 << 20


@click.group()
def image() -> None:
    """Golden images: what every replica is cloned from."""


@image.command()
@click.option("--flavor", default="full", show_default=True, help="Which image: full or small.")
@click.option("--lock", "lock_path", type=click.Path(path_type=Path), help="Exact package versions.")
@click.option("--refresh", is_flag=True, help="Ask the mirror for today's packages again.")
@click.option("--dry-run", is_flag=True, help="Say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option(
    "--format",
    "kind",
    default="rootfs",
    show_default=True,
    type=click.Choice(["rootfs", "disk", "qcow2", "raw"]),
    help="A root file system, or a bootable disk made from it; disk: qcow2 or raw, as suits this host.",
)
def build(
    flavor: str, lock_path: Path | None, refresh: bool, dry_run: bool, as_json: bool, kind: str
) -> None:
    """Bake an image from Debian packages; quick when only the desktop layer changed."""
    store = ImageStore(default_data_dir())
    display = Display.NONE if as_json else Display.BARS if sys.stderr.isatty() else Display.LINES
    progress = Progress(display)
    _stop_on_signals()
    try:
        lock = Lock.read(lock_path) if lock_path else None
        baker = Baker(Source(find_images_folder()), store, progress)
        request = Request(flavor, lock, refresh)
        if dry_run:
            click.echo(json.dumps(baker.plan(request), indent=1))
            return
        made = baker.bake(request)
        if kind != "rootfs":
            image_disks.build(store, made, kind, progress, refresh=refresh, as_json=as_json)
            return
    except ImageError as exc:
        _fail(exc)
    if as_json:
        click.echo(json.dumps({**_row(made, store), "timings_s": progress.timings}))
    else:
        manifest = made.manifest
        click.echo(f"{flavor} {made.digest[:16]}  {manifest.size_bytes // _MIB} MiB  {made.rootfs.parent}")


@image.command()
@click.option("--flavor", default="full", show_default=True, help="Which image: full or small.")
@click.option("--lock", "lock_path", type=click.Path(path_type=Path), help="Exact package versions.")
@click.option("--vm", is_flag=True, help="With its bootable disk and snapshots.")
def definition(flavor: str, lock_path: Path | None, vm: bool) -> None:
    """Print the digest of what an image is made from: while it is the same, no bake is needed."""
    try:
        lock = Lock.read(lock_path) if lock_path else None
        baker = Baker(Source(find_images_folder()), ImageStore(default_data_dir()), Progress(Display.NONE))
        found = baker.definition(Request(flavor, lock))
        click.echo(image_disks.definition(found) if vm else found)
    except ImageError as exc:
        _fail(exc)


@image.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def list_images(as_json: bool) -> None:
    """List the images in the store; with --json without the disks (see osgym image disks)."""
    store = ImageStore(default_data_dir())
    rows = [_row(found, store) for found in store.all()]
    if as_json:
        click.echo(json.dumps(rows))
        return
    table = Table("digest", "flavor", "tag", "size", "packages", "created", box=None)
    for row in rows:
        tag = "*" if row["tagged"] else ""
        size = f"{row['size_mib']} MiB"
        table.add_row(
            str(row["digest"])[:16],
            str(row["flavor"]),
            tag,
            size,
            str(row["packages"]),
            str(row["created_at"]),
        )
    Console().print(table)
    image_disks.print_table()


@image.command()
@click.argument("name")
@click.option("--disk", is_flag=True, help="A bootable disk instead of a root file system.")
def inspect(name: str, disk: bool) -> None:
    """Print the manifest of an image, named by flavor or digest prefix, or of a snapshot (disk@name)."""
    data_dir = default_data_dir()
    store: ImageStore | DiskStore | SnapshotStore = DiskStore(data_dir) if disk else ImageStore(data_dir)
    if "@" in name:
        store = SnapshotStore(data_dir)
    try:
        click.echo(store.resolve(name).manifest.model_dump_json(indent=1))
    except ImageError as exc:
        _fail(exc)


@image.command()
@click.argument("names", nargs=-1)
@click.option("--untagged", is_flag=True, help="All that are not the newest of their flavor.")
@click.option("--disk", is_flag=True, help="Bootable disks instead of root file systems.")
@click.option("--snapshot", is_flag=True, help="Snapshots instead of root file systems.")
def rm(names: tuple[str, ...], untagged: bool, disk: bool, snapshot: bool) -> None:
    """Remove images, named by flavor or digest prefix, or snapshots (disk@name)."""
    if not names and not untagged:
        raise click.UsageError("name an image, or say --untagged")
    store = ImageStore(default_data_dir())
    try:
        if snapshot or any("@" in name for name in names):
            image_snapshots.remove(names, untagged=untagged)
            return
        if disk:
            image_disks.remove(names, untagged=untagged)
            return
        chosen = [store.resolve(name) for name in names]
        if untagged:
            tagged = store.tagged().values()
            chosen += [found for found in store.all() if found.digest not in tagged]
        for found in chosen:
            store.remove(found)
            click.echo(f"removed {found.digest[:16]} ({found.flavor})")
    except ImageError as exc:
        _fail(exc)


@image.command()
@click.argument("name")
@click.option("--out", type=click.Path(path_type=Path), help="Write to this file instead of printing.")
def lock(name: str, out: Path | None) -> None:
    """Print the package versions of an image in the form that `build --lock` reads."""
    try:
        found = ImageStore(default_data_dir()).resolve(name)
    except ImageError as exc:
        _fail(exc)
    text = Lock(found.manifest.packages).text()
    if out is None:
        click.echo(text, nl=False)
    else:
        out.write_text(text)


def _row(found: Image, store: ImageStore) -> dict[str, object]:
    manifest = found.manifest
    return {
        "digest": found.digest,
        "flavor": found.flavor,
        "tagged": store.tagged().get(found.flavor) == found.digest,
        "size_mib": manifest.size_bytes // _MIB,
        "packages": len(manifest.packages),
        "created_at": manifest.created_at,
        "rootfs": str(found.rootfs),
        "bake_s": manifest.bake_s,
    }


def _fail(exc: ImageError) -> NoReturn:
    """Say what went wrong and what to do about it, and leave with 1."""
    if isinstance(exc, BakeError) and exc.log_tail:
        click.echo(exc.log_tail, err=True)
    click.echo(f"osgym image: {exc}", err=True)
    if exc.hint:
        click.echo(f"  {exc.hint}", err=True)
    sys.exit(1)


def _stop_on_signals() -> None:
    """Let SIGTERM and SIGHUP unwind the bake as Ctrl-C does, so that it cleans up after itself."""

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


image.add_command(image_runner.runner)
image.add_command(image_disks.disks)
image.add_command(image_import.import_disk)
image.add_command(image_snapshots.snapshot)
image.add_command(image_snapshots.snapshots)
