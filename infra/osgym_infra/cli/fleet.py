"""`osgym fleet`: what a fleet's hosts fetch, and what its clients get."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from osgym_infra.archives.pack import PackedArchive, config_lines, pack_agent, pack_image
from osgym_infra.cli.common import exits
from osgym_infra.errors import BadInput, OsgymInfraError
from osgym_infra.fleet.export import export as make_export

ROOT = Path(__file__).resolve().parents[3]
ENGINE_S = 120


@click.group()
def fleet() -> None:
    """Pack what hosts fetch; write fleet.json for clients."""


@fleet.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default="out/fleet", show_default=True, help="Folder."
)
@click.option("--image", "image", default="full", show_default=True, help="Image of this machine's store.")
@click.option("--vm", is_flag=True, help="With its bootable disk and snapshots, for runtime: qemu.")
@click.option(
    "--data-dir", type=click.Path(path_type=Path, exists=True), envvar="OSGYM_DATA_DIR",
    default="/var/lib/osgym", show_default=True, help="The store.",
)  # fmt: skip
@click.option(
    "--only",
    type=click.Choice(["agent", "image"]),
    help="One of both; printed as JSON, named by its content.",
)
@exits
def pack(out: Path, image: str, vm: bool, data_dir: Path, only: str | None) -> None:
    """Pack host agent and golden image, and print the configuration that names them."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that it cleans up
    if only == "agent":
        _print_packed(pack_agent(ROOT, out / "agent.tar").named_by_content("agent"))
        return
    if only == "image":
        packed = pack_image(data_dir, image, out / f"{image}.tar", machines=vm)
        _print_packed(packed.named_by_content(image))
        return
    agent = pack_agent(ROOT, out / "agent.tar")
    packed = pack_image(data_dir, image, out / f"{image}.tar", machines=vm)
    click.echo("# file:// means this machine; upload both and change the URIs for hosts in a cloud.")
    click.echo(config_lines(agent, packed, image), nl=False)


def _print_packed(made: PackedArchive) -> None:
    """One line, the last on stdout."""
    found = {"path": str(made.path.resolve()), "sha256": made.sha256, "digest": made.digest}
    click.echo(json.dumps({**found, "size_bytes": made.path.stat().st_size}))


@fleet.command()
@click.option("--stack", default="", help="Stack; default: the selected one.")
@click.option("--cwd", "folder", type=click.Path(path_type=Path, exists=True), default=".", help="Project.")
@click.option(
    "--token-file", type=click.Path(path_type=Path),
    help="Write the agents' token there, for you only, and name it in fleet.json (own machines).",
)  # fmt: skip
@exits
def export(stack: str, folder: Path, token_file: Path | None) -> None:
    """Print fleet.json: the hosts that serve, for Client.from_fleet."""
    chosen = ["--stack", stack] if stack else []
    outputs = _engine(folder, ["stack", "output", "--json", *chosen])
    state = _engine(folder, ["stack", "export", "--show-secrets", *chosen])
    found = make_export(state, outputs)
    if token_file is not None:
        if not found.token:
            raise BadInput(
                "--token-file", "the token is in a cloud's secret", "read it with the cloud's tools"
            )
        _write_secret(token_file, found.token)
        found.fleet["token_secret"] = f"file:{token_file.resolve()}"
    for name, why in found.left_out.items():
        click.echo(f"fleet export: {name} is left out: {why.splitlines()[0]}", err=True)
    click.echo(json.dumps(found.fleet, indent=2))


def _engine(folder: Path, arguments: list[str]) -> Any:
    """What the `pulumi` command answers, as JSON. It may hold secrets: it is never shown."""
    if shutil.which("pulumi") is None:
        raise OsgymInfraError("there is no `pulumi` on PATH: https://www.pulumi.com/docs/install")
    argv = ["pulumi", *arguments, "--non-interactive", "--cwd", str(folder)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=ENGINE_S, check=False)
        if done.returncode != 0:
            raise OsgymInfraError(f"{' '.join(argv[:3])} failed: {done.stderr.strip()}")
        return json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise OsgymInfraError(f"{' '.join(argv[:3])}: no answer that could be read") from error


def _write_secret(path: Path, text: str) -> None:
    """A file for us only, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".token-")  # mode 0600
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    Path(name).replace(path)
