"""`osgym image push` and `pull`: golden images between hosts, through any OCI image layout."""

from __future__ import annotations

import json
from pathlib import Path

import click

from osgym_host.cli.image_output import MIB, bake_progress, errors_reported, stop_on_signals
from osgym_host.images.registry import pull as pulls
from osgym_host.images.registry import push as pushes
from osgym_host.images.registry.places import open_place
from osgym_host.images.store import ImageStore, default_data_dir

_EXIT = "\n\b\nExit codes: 0 done - 1 failed; the message begins with a stable code - 2 wrong usage.\n"
_PLACES = "PLACE is a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym image push small /mnt/images\n"
    "  osgym image push full s3://our-bucket/images --tag full-2026-11\n" + _EXIT,
    help=f"Store the image NAME, with what has changed since the last version there. {_PLACES}.",
)
@click.argument("name")
@click.argument("place")
@click.option("--tag", help="Name of the image there.  [default: its flavor]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def push(name: str, place: str, tag: str | None, as_json: bool) -> None:
    store = ImageStore(default_data_dir())
    stop_on_signals()
    with errors_reported("image push"):
        image = store.resolve(name)
        moved = pushes.push(store, image, open_place(place), tag or image.flavor, bake_progress(as_json))
    _print(moved, "sent", as_json)


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym image pull small /mnt/images\n"
    "  osgym image pull full s3://our-bucket/images --mirror http://10.0.0.7:8000\n"
    "  osgym image pull full s3://our-bucket/images --keep /srv/images     others can pull from there\n"
    + _EXIT,
    help=f"Fetch the image NAME (a tag, or a digest) and what the local store lacks of it. {_PLACES}, or "
    "https://… with the same files. Every layer is verified; an interrupted pull goes on where it stopped.",
)
@click.argument("name")
@click.argument("place")
@click.option("--mirror", "mirrors", multiple=True, metavar="PLACE",
              help="Ask this place for layers first; repeatable, in random order.")  # fmt: skip
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False),
              help="Keep the layers in this folder, for other hosts to pull from.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def pull(name: str, place: str, mirrors: tuple[str, ...], keep: Path | None, as_json: bool) -> None:
    store = ImageStore(default_data_dir())
    stop_on_signals()
    with errors_reported("image pull"):
        others = [open_place(mirror) for mirror in mirrors]
        moved = pulls.pull(store, open_place(place), name, others, bake_progress(as_json), keep)
    _print(moved, "fetched", as_json)


def _print(moved: pushes.Moved, verb: str, as_json: bool) -> None:
    image = moved.image
    if as_json:
        row = {
            "name": image.name,
            "digest": image.digest,
            "manifest_digest": moved.manifest_digest,
            "layers": moved.layers,
            "moved_layers": moved.moved_layers,
            "moved_bytes": moved.moved_bytes,
        }
        click.echo(json.dumps(row))
        return
    told = f"{verb} {moved.moved_layers} of {moved.layers} layers, {moved.moved_bytes / MIB:.1f} MiB"
    click.echo(f"{image.name} {image.digest[:16]}  {told}  {moved.manifest_digest}")
