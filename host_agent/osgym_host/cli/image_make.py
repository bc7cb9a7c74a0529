"""`osgym image build` and `definition`: golden images, and what runtimes make of them."""

from __future__ import annotations

import json
from pathlib import Path

import click

from osgym_host.cli.image_output import MIB, bake_progress, errors_reported, image_row, stop_on_signals
from osgym_host.images.additions import Addition
from osgym_host.images.bake import Baker, BakeRequest
from osgym_host.images.definition import ImageSource, find_images_folder, hash_of
from osgym_host.images.derived import DerivedBuild, DerivedImage, DerivedImages
from osgym_host.images.errors import ImageError
from osgym_host.images.lock import PackageLock
from osgym_host.images.progress import BakeProgress, ProgressDisplay
from osgym_host.images.store import Image, ImageStore, default_data_dir
from osgym_host.runtime_factory import derived_images
from osgym_host.runtime_registry import how_to_install

_ROOTFS = "rootfs"


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


def _maker(kind: str) -> DerivedImages:
    """Return the derived images of an installed runtime that have this format.

    Raises:
        BadParameter: No installed runtime makes it.
    """
    known = [_ROOTFS]
    for images in derived_images():
        if kind in images.formats:
            return images
        known += images.formats
    lacking = "" if len(known) > 1 else f" (disks that boot: {how_to_install('qemu')})"
    raise click.BadParameter(f"{kind!r} is not one of {', '.join(known)}{lacking}", param_hint="--format")


def _check_format(ctx: click.Context, param: click.Parameter, kind: str) -> str:
    del ctx, param
    if kind != _ROOTFS:
        _maker(kind)
    return kind


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
    default=_ROOTFS,
    show_default=True,
    callback=_check_format,
    help="Root file system (rootfs), or with the runtime qemu a bootable disk made from it: "
    "qcow2, raw, or disk, which is the one that suits this host.",
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
    progress = bake_progress(as_json)
    maker = None if kind == _ROOTFS else _maker(kind)
    stop_on_signals()
    with errors_reported():
        lock = PackageLock.read(lock_path) if lock_path else None
        source, flavor = _source(flavor, addition)
        baker = Baker(source, store, progress)
        request = BakeRequest(flavor, lock, refresh)
        if dry_run:
            click.echo(json.dumps(baker.plan(request), indent=1))
            return
        image = baker.bake(request)
        derived = DerivedBuild(source, store, image, kind, refresh)
        made = _golden(image, store) if maker is None else maker.build(derived, progress)
    if as_json:
        click.echo(json.dumps({**made.row, "timings_s": progress.timings}))
        return
    click.echo(f"{made.name} {made.digest[:16]}  {made.size_bytes // MIB} MiB  {made.path}")


def _golden(image: Image, store: ImageStore) -> DerivedImage:
    size_bytes = image.manifest.size_bytes
    return DerivedImage(image.name, image.digest, size_bytes, image.folder, image_row(image, store))


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
        baker = Baker(source, ImageStore(default_data_dir()), BakeProgress(ProgressDisplay.NONE))
        found = baker.definition(BakeRequest(flavor, lock))
        if vm:
            parts = [part for images in derived_images() for part in images.definition_parts(source.folder)]
            if not parts:
                raise ImageError("no installed runtime makes bootable disks", how_to_install("qemu"))
            found = hash_of(found, *parts)
    click.echo(found)
