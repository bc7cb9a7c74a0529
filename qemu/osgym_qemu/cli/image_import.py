"""`osgym image import`: take in a disk that others made."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from osgym_host.cli.image_output import MIB, errors_reported
from osgym_host.images.store import default_data_dir
from osgym_qemu.derived import disk_row
from osgym_qemu.disks.imports import ImportRequest
from osgym_qemu.disks.imports import import_disk as copy_into_store
from osgym_qemu.disks.manifest import Firmware, GuestKind, Hardware
from osgym_qemu.disks.store import DiskStore

_EVERY_PERCENT = 10
_SCREEN = re.compile(r"([1-9]\d{1,4})x([1-9]\d{1,4})")

RAM_MIB, LARGE_RAM_MIB = 2048, 4096
"""Default RAM of a Linux desktop, and of a disk that looks like Windows."""

_GUESTS = """Agent that answers inside on port 5000: ours, OSWorld's server (its published images have it),
or none. Without an agent a replica has screen and input, but no files and commands."""


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


@click.command(
    "import",
    epilog="\b\nExamples:\n"
    "  osgym image import ubuntu.qcow2 --name ubuntu --guest osworld\n"
    "  osgym image import windows.vmdk --name win --machine q35 --disk-bus sata --nic e1000e --ram-mib 4096\n"
    "\n\b\nExit codes: 0 it is in the store - 1 it cannot be taken in - 2 wrong usage.\n",
)
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", required=True, help="Name of the image.")
@click.option(
    "--guest",
    type=click.Choice([str(kind) for kind in GuestKind]),
    default=str(GuestKind.NONE),
    show_default=True,
    help=_GUESTS,
)
@click.option(
    "--firmware",
    type=click.Choice(["auto", *(str(kind) for kind in Firmware)]),
    default="auto",
    show_default=True,
    help="Firmware that boots the disk. auto: by its partition table.",
)
@click.option(
    "--screen",
    default="1920x1080",
    show_default=True,
    callback=parse_screen,
    help="Size of its desktop in pixels.",
)
@click.option("--ram-mib", type=click.IntRange(64, 1 << 20), help="RAM of its machines in MiB.")
@click.option("--vcpus", type=click.IntRange(1, 64), default=1, show_default=True, help="Processors.")
@click.option("--machine", type=click.Choice(["pc", "q35"]), default="pc", show_default=True, help="Chipset.")
@click.option(
    "--disk-bus",
    type=click.Choice(["virtio", "sata"]),
    default="virtio",
    show_default=True,
    help="sata for a system without virtio drivers, such as Windows.",
)
@click.option(
    "--nic",
    type=click.Choice(["virtio", "e1000e"]),
    default="virtio",
    show_default=True,
    help="e1000e for a system without virtio drivers, such as Windows.",
)
@click.option(
    "--screen-from",
    type=click.Choice(["vga", "server"]),
    default="vga",
    show_default=True,
    help="Place of the desktop: the machine's VGA screen, or one that only OSWorld's server sees.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def import_disk(
    source: Path,
    name: str,
    guest: str,
    firmware: str,
    screen: tuple[int, int],
    ram_mib: int | None,
    as_json: bool,
    **hardware: str | int,
) -> None:
    """Import a bootable disk: qcow2 and raw as they are, VMDK, VDI and VHD converted.

    Windows: `--machine q35 --disk-bus sata --nic e1000e --ram-mib 4096` (not tested).
    """
    kind = GuestKind(guest)
    if hardware["screen_from"] == "server" and kind is not GuestKind.OSWORLD:
        raise click.BadParameter("server needs --guest osworld", param_hint="--screen-from")
    boots_by = None if firmware == "auto" else Firmware(firmware)
    expected = Hardware.model_validate(
        {
            **hardware,
            "ram_mib": ram_mib or (LARGE_RAM_MIB if hardware["disk_bus"] == "sata" else RAM_MIB),
            "vga": kind is not GuestKind.OSGYM and hardware["screen_from"] == "vga",
        }
    )
    store = DiskStore(default_data_dir())
    request = ImportRequest(source, name, kind, boots_by, screen, expected)
    with errors_reported(), _shown(source.name, as_json=as_json) as moved:
        disk = copy_into_store(request, store, moved)
    manifest = disk.manifest
    if as_json:
        click.echo(json.dumps({**disk_row(disk, store), "firmware": str(manifest.firmware)}))
        return
    size_mib = manifest.size_bytes // MIB
    click.echo(f"{name} {disk.digest[:16]}  {manifest.firmware}  {size_mib} MiB  {disk.disk}")


@contextlib.contextmanager
def _shown(what: str, *, as_json: bool) -> Iterator[Callable[[int, int], None]]:
    """Show how far it is: a bar on a terminal, plain lines elsewhere, nothing for machines."""
    if as_json:
        yield lambda done, total: None
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bars:
        task = bars.add_task(f"Import {what}", total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def _lines(console: Console) -> Callable[[int, int], None]:
    said = 0

    def moved(done: int, total: int) -> None:
        nonlocal said
        percent = 100 * done // max(1, total)
        if percent >= said + _EVERY_PERCENT:
            said = percent - percent % _EVERY_PERCENT
            console.print(f"{said} % of {total // MIB} MiB", highlight=False)

    return moved
