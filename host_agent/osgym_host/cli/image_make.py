"""`osgym image build`, `definition`, `snapshot` and `runner`: what makes images and snapshots."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import FrameType

import click

from osgym_host.cli.image_rows import MIB, disk_row, image_row, snapshot_row
from osgym_host.core.warm_apps import parse_warm_apps
from osgym_host.errors import OsgymHostError
from osgym_host.images.additions import Addition
from osgym_host.images.bake import Baker, BakeRequest
from osgym_host.images.content_store import NAME
from osgym_host.images.definition import ImageSource, VmSource, find_images_folder, hash_of, tree_hash
from osgym_host.images.disks.bake import BUILDER_VERSION, DiskBaker, DiskRequest
from osgym_host.images.disks.manifest import DiskFormat, GuestKind
from osgym_host.images.disks.overlay import can_reflink, choose
from osgym_host.images.disks.store import DiskImage, DiskStore
from osgym_host.images.errors import BakeError, DefinitionError, ImageError
from osgym_host.images.lock import PackageLock
from osgym_host.images.progress import BakeProgress, ProgressDisplay
from osgym_host.images.snapshots import DEFAULT_NAME, Snapshot, SnapshotStore
from osgym_host.images.store import Image, ImageStore, default_data_dir
from osgym_host.logs import escape_lines
from osgym_host.runtimes.qemu.snapshotting.build import SnapshotBuilder
from osgym_host.runtimes.qemu.snapshotting.request import SnapshotFailed, SnapshotRequest
from osgym_host.warmups import Preparation, Warmup, find_warmup, load_warmup

_RAM_MIB = {"small": 1024}
_OTHER_RAM_MIB = 2048
_SCREEN = re.compile(r"([1-9]\d{1,4})x([1-9]\d{1,4})")


@contextlib.contextmanager
def errors_reported(command: str = "image") -> Iterator[None]:
    """Say what went wrong in the block of a command and what to do about it, and leave with 1."""
    try:
        yield
    except OsgymHostError as exc:
        if isinstance(exc, BakeError | SnapshotFailed) and exc.log_tail:
            # A guest's console: each line is marked as its own.
            click.echo("  | " + escape_lines(exc.log_tail).replace("\n", "\n  | "), err=True)
        click.echo(f"osgym {command}: {escape_lines(str(exc))}", err=True)
        if isinstance(exc, ImageError) and exc.hint:
            click.echo(f"  {exc.hint}", err=True)
        sys.exit(1)


def parse_screen(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[int, int] | None:
    """Read a size in pixels, such as 1920x1080.

    Raises:
        click.BadParameter: It is not of this form.
    """
    del ctx, param
    if text is None:
        return None
    found = _SCREEN.fullmatch(text)
    if found is None:
        raise click.BadParameter("such as 1920x1080")
    return int(found.group(1)), int(found.group(2))


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


def _progress(as_json: bool) -> BakeProgress:
    bars = ProgressDisplay.BARS if sys.stderr.isatty() else ProgressDisplay.LINES
    return BakeProgress(ProgressDisplay.NONE if as_json else bars)


_add = click.option(
    "--add",
    "addition",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder with addition.toml: packages, files and scripts laid over the flavor that it names.",
)


def _source(flavor: str | None, addition: Path | None) -> tuple[ImageSource, str]:
    """Return the definition and the chosen flavor.

    Raises:
        UsageError: a flavor and an addition, which names its own, are both given.
        DefinitionError: the definition or the addition cannot be read, or there is no such flavor.
    """
    if addition is None:
        flavor = flavor or "full"
        return ImageSource.of_flavor(find_images_folder(), flavor), flavor
    if flavor is not None:
        raise click.UsageError(
            "--add names the flavor it is laid over in addition.toml (base); leave out --flavor"
        )
    found = Addition(addition)
    return ImageSource(find_images_folder(), found), found.definition.name


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym image build                      full: with office suite and browser\n"
    "  osgym image build --flavor small --dry-run\n"
    "  osgym image build --flavor osworld     full, and what OSWorld's tasks expect besides\n"
    "  osgym image build --format disk --json\n"
    "  osgym image build --lock mine.lock     exactly those package versions\n"
    "  osgym image build --add mine           full, with what the folder mine lays over it\n"
    "\n\b\nExit codes: 0 there is one - 1 it cannot be made - 2 wrong usage.\n",
)
@click.option("--flavor", help="Image: full, small or osworld.  [default: full]")
@_add
@click.option("--lock", "lock_path", type=click.Path(path_type=Path), help="File of package versions.")
@click.option("--refresh", is_flag=True, help="Use today's packages of the mirror.")
@click.option("--dry-run", is_flag=True, help="Print what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option(
    "--format",
    "kind",
    default="rootfs",
    show_default=True,
    type=click.Choice(["rootfs", "disk", "qcow2", "raw"]),
    help="Root file system, or a bootable disk made from it. disk: qcow2 or raw, as suits this host.",
)
def build(
    flavor: str | None,
    addition: Path | None,
    lock_path: Path | None,
    refresh: bool,
    dry_run: bool,
    as_json: bool,
    kind: str,
) -> None:
    """Bake an image from Debian packages; fast if only the desktop layer changed."""
    store = ImageStore(default_data_dir())
    progress = _progress(as_json)
    _stop_on_signals()
    with errors_reported():
        lock = PackageLock.read(lock_path) if lock_path else None
        source, flavor = _source(flavor, addition)
        baker = Baker(source, store, progress)
        request = BakeRequest(flavor, lock, refresh)
        if dry_run:
            click.echo(json.dumps(baker.plan(request), indent=1))
            return
        image = baker.bake(request)
        disk = None if kind == "rootfs" else _build_disk(source, store, image, kind, progress, refresh)
    if as_json:
        row = image_row(image, store) if disk is None else disk_row(disk, DiskStore(store.data_dir))
        click.echo(json.dumps({**row, "timings_s": progress.timings}))
        return
    made, place = (image, image.folder) if disk is None else (disk, disk.disk)
    click.echo(f"{made.name} {made.digest[:16]}  {made.manifest.size_bytes // MIB} MiB  {place}")


def _build_disk(
    source: ImageSource, store: ImageStore, image: Image, kind: str, progress: BakeProgress, refresh: bool
) -> DiskImage:
    if kind == "disk":
        choice = choose(reflink=can_reflink(store.data_dir))
        progress.note(f"{choice.format}: {choice.reason}")
        kind = choice.format
    disks = DiskStore(store.data_dir)
    baker = DiskBaker(source.definition, VmSource(source.folder), store, disks, progress)
    return baker.bake(DiskRequest(image, DiskFormat(kind), refresh))


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym image definition --flavor small\n"
    "  osgym image definition --vm --lock mine.lock\n",
)
@click.option("--flavor", help="Image: full, small or osworld.  [default: full]")
@_add
@click.option("--lock", "lock_path", type=click.Path(path_type=Path), help="File of package versions.")
@click.option("--vm", is_flag=True, help="Include the definitions of the bootable disk and its snapshots.")
def definition(flavor: str | None, addition: Path | None, lock_path: Path | None, vm: bool) -> None:
    """Print the digest of an image's definition; an image with the same digest needs no new bake."""
    with errors_reported():
        lock = PackageLock.read(lock_path) if lock_path else None
        source, flavor = _source(flavor, addition)
        folder, store = source.folder, ImageStore(default_data_dir())
        baker = Baker(source, store, BakeProgress(ProgressDisplay.NONE))
        found = baker.definition(BakeRequest(flavor, lock))
        if vm:
            warmups = tree_hash([folder / "warmups"])
            found = hash_of(found, VmSource(folder).key(), warmups, str(BUILDER_VERSION))
    click.echo(found)


def _stop_on_signals() -> None:
    """Let SIGTERM and SIGHUP unwind the bake as Ctrl-C does, so that it cleans up after itself."""

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


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
    progress = _progress(as_json)
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
        raise DefinitionError(f"no warm-up is called {str(given)!r}", f"look into {folder / 'warmups'}")
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
    from osgym_host.runtimes.qemu.runner.daemon import DockerDaemon
    from osgym_host.runtimes.qemu.runner.runner_image import build_runner_image

    daemon = DockerDaemon()
    try:
        await daemon.open()
        image, built = await build_runner_image(daemon, scratch, refresh=refresh)
    finally:
        await daemon.close()
    return {**asdict(image), "built": built}
