"""Golden snapshots for `osgym image`: booted, warmed up and frozen machines, to be cloned."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click
from rich.console import Console
from rich.table import Table

from osgym_host.freeze.build import SnapshotBuilder, SnapshotFailed, SnapshotRequest
from osgym_host.freeze.warmup import Warmup, find_warmup, load_warmup
from osgym_host.images.cache import exclusive
from osgym_host.images.definition import find_images_folder
from osgym_host.images.disks.manifest import GuestKind
from osgym_host.images.disks.store import DiskImage, DiskStore
from osgym_host.images.errors import DefinitionError, ImageError
from osgym_host.images.progress import Display, Progress
from osgym_host.images.snapshots import DEFAULT_NAME, NAME, Snapshot, SnapshotStore
from osgym_host.images.store import default_data_dir
from osgym_host.runtimes.base import RuntimeFault

_MIB = 1 << 20
_RAM_MIB = {"small": 1024}
_OTHER_RAM_MIB = 2048


@click.command()
@click.argument("disk")
@click.option("--name", default=DEFAULT_NAME, show_default=True, help="What it is called: disk@name.")
@click.option(
    "--warmup",
    type=click.Path(path_type=Path),
    help="What is done before it is frozen: a file, or the name of one in images/warmups. "
    "Without it, the one that is called like the snapshot, if there is one.",
)
@click.option("--ram", "ram_mib", type=click.IntRange(256, 65536), help="RAM of the guest in MiB.")
@click.option("--cpus", "vcpus", type=click.IntRange(1, 16), help="Processors; else the disk's, or 1.")
@click.option(
    "--accel",
    type=click.Choice(["auto", "kvm", "tcg"]),
    default="auto",
    show_default=True,
    help="auto: KVM where a kernel boots under it.",
)
@click.option("--screen", help="Size of the desktop in pixels, such as 1920x1080; else the disk's.")
@click.option("--refresh", is_flag=True, help="Make it anew although it is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def snapshot(
    disk: str,
    name: str,
    warmup: Path | None,
    ram_mib: int | None,
    vcpus: int | None,
    accel: str,
    screen: str | None,
    refresh: bool,
    as_json: bool,
) -> None:
    """Boot a bootable disk, warm it up, freeze it: what virtual machines are cloned from.

    Nothing is done when there is one of this disk and warm-up already.
    """
    data_dir = default_data_dir()
    store = SnapshotStore(data_dir)
    display = Display.NONE if as_json else Display.BARS if sys.stderr.isatty() else Display.LINES
    progress = Progress(display)
    try:
        image = DiskStore(data_dir).resolve(disk)
        request = SnapshotRequest(
            image,
            name,
            _warmup(image, name, warmup),
            ram_mib=ram_mib or _usual_ram_mib(image),
            vcpus=vcpus or (1 if image.manifest.hardware is None else image.manifest.hardware.vcpus),
            accel=accel,
            screen=_screen(screen),
            refresh=refresh,
        )
        if not NAME.fullmatch(name):
            raise click.BadParameter("letters, digits, dot, underscore, hyphen", param_hint="--name")
        store.prepare()
        store.reap()
        lock = store.folder / f".{request.reference}.lock"
        with progress.shown(), exclusive(lock):
            made = asyncio.run(_build(SnapshotBuilder(store, progress), request))
        if made is None:
            sys.exit(130)
    except SnapshotFailed as exc:
        if exc.log_tail:
            click.echo(exc.log_tail, err=True)
        _fail(str(exc))
    except ImageError as exc:
        _fail(str(exc), exc.hint)
    except (RuntimeFault, ValueError) as exc:
        _fail(str(exc))
    if as_json:
        click.echo(json.dumps({**row(made, store), "timings_s": progress.timings}))
        return
    manifest = made.manifest
    size = f"RAM {manifest.ram_data_bytes // _MIB} MiB, disk {manifest.disk_bytes // _MIB} MiB"
    click.echo(f"{made.reference} {made.digest[:16]}  {size}, booted in {manifest.boot_s} s  {made.folder}")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def snapshots(as_json: bool) -> None:
    """List the snapshots in the store."""
    store = SnapshotStore(default_data_dir())
    rows = [row(found, store) for found in store.all()]
    if as_json:
        click.echo(json.dumps(rows))
        return
    columns = ("digest", "snapshot", "tag", "accel", "RAM", "in file", "disk", "screen", "created")
    table = Table(*columns, box=None)
    for found in rows:
        cells = [
            str(found["digest"])[:16],
            found["reference"],
            "*" if found["tagged"] else "",
            found["accel"],
        ]
        cells += [f"{found['ram_mib']} MiB", f"{found['ram_data_mib']} MiB", f"{found['disk_mib']} MiB"]
        table.add_row(*(str(cell) for cell in [*cells, found["screen"], found["created_at"]]))
    Console().print(table)


def remove(names: Sequence[str], *, untagged: bool) -> None:
    """Remove snapshots, named by reference or digest prefix.

    Raises:
        ImageError: One of the names means none, or more than one.
    """
    store = SnapshotStore(default_data_dir())
    chosen = [store.resolve(name) for name in names]
    if untagged:
        tagged = store.tagged().values()
        chosen += [found for found in store.all() if found.digest not in tagged]
    for found in chosen:
        store.remove(found)
        click.echo(f"removed {found.digest[:16]} ({found.reference})")


def row(found: Snapshot, store: SnapshotStore) -> dict[str, object]:
    """What lists show of a snapshot."""
    manifest = found.manifest
    return {
        "digest": found.digest,
        "reference": found.reference,
        "tagged": store.tagged().get(found.reference) == found.digest,
        "accel": manifest.shape.get("accel"),
        "ram_mib": manifest.ram_mib,
        "ram_data_mib": manifest.ram_data_bytes // _MIB,
        "disk_mib": manifest.disk_bytes // _MIB,
        "state_kib": manifest.state_bytes // 1024,
        "screen": "{}x{}".format(*manifest.screen),
        "qemu_version": manifest.qemu_version,
        "created_at": manifest.created_at,
        "folder": str(found.folder),
        "boot_s": manifest.boot_s,
        "build_s": manifest.build_s,
    }


async def _build(builder: SnapshotBuilder, request: SnapshotRequest) -> Snapshot | None:
    """Build; SIGINT, SIGTERM and SIGHUP cancel it, so that it cleans up after itself: None then."""
    building = asyncio.create_task(builder.build(request))
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if not building.cancelling():  # a second signal would cancel the cleaning up
            building.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    await asyncio.wait((building,))
    return None if building.cancelled() else building.result()


def _usual_ram_mib(image: DiskImage) -> int:
    hardware = image.manifest.hardware
    return hardware.ram_mib if hardware is not None else _RAM_MIB.get(image.name, _OTHER_RAM_MIB)


def _warmup(image: DiskImage, name: str, given: Path | None) -> Warmup | None:
    """The warm-up that was asked for, or that goes with the snapshot's name on a disk of ours."""
    folder = find_images_folder()
    if given is None:
        return find_warmup(name, folder) if image.manifest.guest is GuestKind.OSGYM else None
    if given.suffix:
        return load_warmup(given)
    found = find_warmup(str(given), folder)
    if found is None:
        raise DefinitionError(f"no warm-up is called {str(given)!r}", f"look into {folder / 'warmups'}")
    return found


def _screen(text: str | None) -> tuple[int, int] | None:
    found = re.fullmatch(r"([1-9]\d{1,4})x([1-9]\d{1,4})", text or "")
    if text is not None and found is None:
        raise click.BadParameter("such as 1920x1080", param_hint="--screen")
    return None if found is None else (int(found.group(1)), int(found.group(2)))


def _fail(message: str, hint: str = "") -> NoReturn:
    click.echo(f"osgym image: {message}" + (f"\n  {hint}" if hint else ""), err=True)
    sys.exit(1)
