"""`osgym image snapshot` and `runner`: make snapshots of disks, and the container image that QEMU runs in."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path

import click

from osgym_host.cli.image_output import MIB, bake_progress, errors_reported
from osgym_host.core.warm_apps import parse_warm_apps
from osgym_host.images.content_store import NAME
from osgym_host.images.definition import find_images_folder
from osgym_host.images.errors import DefinitionError
from osgym_host.images.store import default_data_dir
from osgym_host.warmups import Preparation, Warmup, find_warmup, load_warmup
from osgym_qemu.cli.image_import import parse_screen
from osgym_qemu.derived import snapshot_row
from osgym_qemu.disks.manifest import GuestKind
from osgym_qemu.disks.store import DiskImage, DiskStore
from osgym_qemu.runner.daemon import DockerDaemon
from osgym_qemu.runner.runner_image import build_runner_image
from osgym_qemu.snapshots import DEFAULT_NAME, Snapshot, SnapshotStore
from osgym_qemu.snapshotting.build import SnapshotBuilder
from osgym_qemu.snapshotting.request import SnapshotRequest

_RAM_MIB = {"small": 1024}
_OTHER_RAM_MIB = 2048


def parse_apps(ctx: click.Context, param: click.Parameter, text: str) -> tuple[str, ...]:
    """Read names of programs, divided by commas, each perhaps with options.

    Raises:
        click.BadParameter: One cannot be kept open.
    """
    del ctx, param
    entries = tuple(entry.strip() for entry in text.split(",") if entry.strip())
    try:
        parse_warm_apps(entries)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return entries


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym image snapshot full\n"
    "  osgym image snapshot full --accel tcg --ram 2048 --cpus 2\n"
    "  osgym image snapshot full --name office --warm-apps calc\n"
    "  osgym image snapshot full --name mine --warmup my-warmup.toml\n"
    "\n\b\nExit codes: 0 there is one - 1 it cannot be made - 2 wrong usage - 130 Ctrl-C.\n",
)
@click.argument("disk")
@click.option("--name", default=DEFAULT_NAME, show_default=True, help="Name of the snapshot: disk@name.")
@click.option(
    "--warmup",
    type=click.Path(path_type=Path),
    help="Warm-up before the freeze: a file, or a name in images/warmups. "
    "Default: the one with the snapshot's name, if it exists.",
)
@click.option(
    "--warm-apps",
    callback=parse_apps,
    default="",
    help="Programs that run in each clone without a window, such as calc,chromium; tasks open them faster.",
)
@click.option("--ram", "ram_mib", type=click.IntRange(256, 65536), help="RAM of the guest in MiB.")
@click.option("--cpus", "vcpus", type=click.IntRange(1, 16), help="Processors; default: the disk's, or 1.")
@click.option(
    "--accel",
    type=click.Choice(["auto", "kvm", "tcg"]),
    default="auto",
    show_default=True,
    help="Accelerator. auto: KVM if a kernel boots under it.",
)
@click.option(
    "--screen",
    callback=parse_screen,
    help="Size of the desktop in pixels, such as 1920x1080; default: the disk's.",
)
@click.option("--refresh", is_flag=True, help="Make the snapshot anew if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def snapshot(
    disk: str,
    name: str,
    warmup: Path | None,
    warm_apps: tuple[str, ...],
    ram_mib: int | None,
    vcpus: int | None,
    accel: str,
    screen: tuple[int, int] | None,
    refresh: bool,
    as_json: bool,
) -> None:
    """Boot a bootable disk, warm it up and freeze it, for virtual machines to be cloned from.

    If a snapshot of this disk and warm-up exists, nothing is done.
    """
    if not NAME.fullmatch(name):
        raise click.BadParameter("letters, digits, dot, underscore, hyphen", param_hint="--name")
    store = SnapshotStore(default_data_dir())
    progress = bake_progress(as_json)
    with errors_reported():
        image = DiskStore(store.data_dir).resolve(disk)
        hardware = image.manifest.hardware
        usual_ram_mib = _RAM_MIB.get(image.name, _OTHER_RAM_MIB) if hardware is None else hardware.ram_mib
        request = SnapshotRequest(
            image,
            Preparation(_warmup(image, name, warmup), warm_apps),
            name,
            ram_mib=ram_mib or usual_ram_mib,
            vcpus=vcpus or (1 if hardware is None else hardware.vcpus),
            accel=accel,
            screen=screen,
            refresh=refresh,
        )
        with progress.shown(), store.making(request.reference, progress.wait):
            made = asyncio.run(_build_snapshot(SnapshotBuilder(store, progress), request))
    if made is None:
        sys.exit(130)
    if as_json:
        click.echo(json.dumps({**snapshot_row(made, store), "timings_s": progress.timings}))
        return
    manifest = made.manifest
    size = f"RAM {manifest.ram_data_bytes // MIB} MiB, disk {manifest.disk_bytes // MIB} MiB"
    click.echo(f"{made.reference} {made.digest[:16]}  {size}, booted in {manifest.boot_s} s  {made.folder}")


async def _build_snapshot(builder: SnapshotBuilder, request: SnapshotRequest) -> Snapshot | None:
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


def _warmup(image: DiskImage, name: str, given: Path | None) -> Warmup | None:
    """Return the warm-up that was asked for, or that goes with the snapshot's name on a disk of ours."""
    if given is not None and given.suffix:
        return load_warmup(given)
    if given is None and image.manifest.guest is not GuestKind.OSGYM:
        return None
    folder = find_images_folder()
    found = find_warmup(name if given is None else str(given), folder)
    if given is not None and found is None:
        raise DefinitionError(f"there is no warm-up {str(given)!r}", f"its folder is {folder / 'warmups'}")
    return found


@click.command(
    epilog="\b\nExamples:\n  osgym image runner\n  osgym image runner --refresh --json\n",
)
@click.option("--refresh", is_flag=True, help="Build the image again with today's packages.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def runner(refresh: bool, as_json: bool) -> None:
    """Build the container image for `runner: container`; fast if it exists."""
    with errors_reported():
        report = asyncio.run(_build_runner(default_data_dir() / "cache", refresh))
    state = "built" if report["built"] else "unchanged"
    text = f"{report['tag']}  {state}  QEMU {report['qemu_version']}"
    click.echo(json.dumps(report) if as_json else text)


async def _build_runner(scratch: Path, refresh: bool) -> dict[str, object]:
    """Ask the daemon, building in `scratch` when there is nothing to find."""
    daemon = DockerDaemon()
    try:
        await daemon.open()
        image, built = await build_runner_image(daemon, scratch, refresh=refresh)
    finally:
        await daemon.close()
    return {**asdict(image), "built": built}
