"""`osgym image`: make, list, inspect and remove golden images and what runtimes make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from osgym_host.cli import image_make, image_registry
from osgym_host.cli.image_output import errors_reported, image_row, print_rows
from osgym_host.images.content_store import ContentStore
from osgym_host.images.derived import DerivedStore
from osgym_host.images.errors import ImageError
from osgym_host.images.lock import PackageLock
from osgym_host.images.store import ImageStore, default_data_dir
from osgym_host.runtime_factory import derived_images
from osgym_host.runtime_registry import how_to_install
from osgym_protocol.plugins import PluginError, PluginGroup, load_plugin, plugin_names

_IMAGE_COLUMNS = {
    "digest": "{digest:.16}",
    "flavor": "{flavor}",
    "tag": "{tag}",
    "size": "{size_mib} MiB",
    "packages": "{packages}",
    "calibrated": "{calibrated}",
    "created": "{created_at}",
}
_PREFIX = "image."


class _ImageGroup(click.Group):
    """Group with the commands below and those that distributions register as `image.NAME`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_registered()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _registered():
            return super().get_command(ctx, cmd_name)
        try:
            command = load_plugin(PluginGroup.COMMANDS, f"{_PREFIX}{cmd_name}")
        except PluginError as error:
            raise click.ClickException(str(error)) from error
        assert isinstance(command, click.Command)
        return command


def _registered() -> list[str]:
    names = plugin_names(PluginGroup.COMMANDS)
    return [name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX)]


@click.group(
    cls=_ImageGroup,
    epilog="\b\nExamples:\n"
    "  osgym image build --flavor small\n"
    "  osgym image ls\n"
    "  osgym image push small s3://our-bucket/images     for other hosts, which pull it\n"
    "  osgym image build --format disk        a disk that boots\n"
    "  osgym image snapshot full              a machine of it, frozen: what runtime qemu clones\n",
)
def image() -> None:
    """Golden images: what every replica is cloned from."""


for command in (image_make.build, image_make.definition, image_registry.push, image_registry.pull):
    image.add_command(command)


@image.command(
    "ls",
    epilog="\b\nExamples:\n  osgym image ls\n  osgym image ls --json\n",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_images(as_json: bool) -> None:
    """List the images in the store; with --json without the disks (see osgym image disks)."""
    store = ImageStore(default_data_dir())
    print_rows([image_row(found, store) for found in store.all()], _IMAGE_COLUMNS, as_json)
    for other in () if as_json else _derived_stores():
        if other.listed and (rows := other.rows()):
            print_rows(rows, other.columns, as_json)


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
        raise click.UsageError("name an image, or give --untagged")
    with errors_reported():
        store = _store(disk=disk, snapshot=snapshot or any("@" in name for name in names))
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


def _derived_stores() -> list[DerivedStore]:
    return [found for images in derived_images() for found in images.stores(default_data_dir())]


def _store(*, disk: bool, snapshot: bool) -> ContentStore[Any, Any]:
    """Return the store of golden images, or that of an installed runtime's disks or snapshots.

    Raises:
        ImageError: No installed runtime has such a store.
    """
    if not disk and not snapshot:
        return ImageStore(default_data_dir())
    kind = "snapshots" if snapshot else "disks"
    for found in _derived_stores():
        if kind == found.store.KIND:
            return found.store
    raise ImageError(f"no installed runtime has {kind}", how_to_install("qemu"))
