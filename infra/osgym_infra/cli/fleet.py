"""`osgym fleet`: the group of all commands, and those that pack archives and write fleet.json."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from osgym_infra.archives.pack import PackedArchive, config_lines, pack_agent, pack_image
from osgym_infra.cli.catalogue import catalogue
from osgym_infra.cli.common import exits, write_whole
from osgym_infra.cli.fit import fit
from osgym_infra.cli.fleet_ops.dashboard import dashboard
from osgym_infra.cli.fleet_ops.doctor import doctor
from osgym_infra.cli.fleet_ops.drain import drain
from osgym_infra.cli.fleet_ops.prometheus import prometheus
from osgym_infra.cli.fleet_ops.run import logs, run
from osgym_infra.cli.fleet_ops.shell import ssh
from osgym_infra.cli.fleet_ops.status import status
from osgym_infra.cli.fleet_sudo import sudo
from osgym_infra.cli.fleet_wait import wait
from osgym_infra.cli.plan import plan
from osgym_infra.errors import BadInput, OsgymInfraError
from osgym_infra.fleet.export import export as make_export

ROOT = Path(__file__).resolve().parents[3]
ENGINE_S = 120


@click.group(
    epilog="\b\nExamples:\n"
    "  osgym fleet plan --replicas 1024\n"
    "  osgym fleet export --out fleet.json\n"
    "  osgym fleet status\n"
    "  osgym fleet logs --host host-3 -f\n"
    "  osgym fleet drain --host host-3 --wait-s 600\n"
    "  osgym fleet dashboard\n"
)
def fleet() -> None:
    """Plan what a fleet costs; pack what hosts fetch; write fleet.json for clients; operate the hosts."""


_COMMANDS = (
    *(plan, catalogue, fit, status, dashboard, logs, doctor),
    *(run, drain, ssh, prometheus, sudo, wait),
)
for _command in _COMMANDS:
    fleet.add_command(_command)


@fleet.command(
    epilog="\b\nExamples:\n"
    "  osgym fleet pack --image full --out out/fleet\n"
    "  osgym fleet pack --vm --only image\n"
)
@click.option(
    "--out", type=click.Path(path_type=Path), default="out/fleet", show_default=True, help="Folder."
)
@click.option("--image", "image", default="full", show_default=True, help="Image of this machine's store.")
@click.option("--vm", is_flag=True, help="Pack the bootable disk and snapshots too, for runtime: qemu.")
@click.option(
    "--emulated", is_flag=True, help="With --vm: pack snapshots made without KVM too, for hosts without KVM."
)
@click.option(
    "--data-dir", type=click.Path(path_type=Path), envvar="OSGYM_DATA_DIR",
    default="/var/lib/osgym", show_default=True, help="Data directory with the store of images.",
)  # fmt: skip
@click.option(
    "--only",
    type=click.Choice(["agent", "image"]),
    help="Pack only this one, name it by its content, and print JSON.",
)
@exits
def pack(out: Path, image: str, vm: bool, emulated: bool, data_dir: Path, only: str | None) -> None:
    """Pack host agent and golden image, and print the configuration that names them."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that it cleans up
    if only == "agent":
        _print_packed(pack_agent(ROOT, out / "agent.tar").named_by_content("agent"))
        return
    if only == "image":
        packed = pack_image(data_dir, image, out / f"{image}.tar", machines=vm, emulated=emulated)
        _print_packed(packed.named_by_content(image))
        return
    agent = pack_agent(ROOT, out / "agent.tar")
    packed = pack_image(data_dir, image, out / f"{image}.tar", machines=vm, emulated=emulated)
    click.echo("# file:// means this machine; upload both and change the URIs for hosts in a cloud.")
    click.echo(config_lines(agent, packed, image), nl=False)


def _print_packed(made: PackedArchive) -> None:
    """Print one line of JSON; through sudo, give the archive to the caller, who uploads it."""
    if os.geteuid() == 0 and (owner := os.environ.get("SUDO_UID", "")).isdecimal():
        os.chown(made.path, int(owner), int(os.environ.get("SUDO_GID", "-1")))
    found = {"path": str(made.path.resolve()), "sha256": made.sha256, "digest": made.digest}
    click.echo(json.dumps({**found, "size_bytes": made.path.stat().st_size}))


@fleet.command(
    epilog="\b\nExamples:\n"
    "  osgym fleet plan --replicas 1024\n"
    "  osgym fleet export --out fleet.json\n"
    "  osgym fleet export --stack prod --token-file token --out fleet.json\n"
    "\n\b\nExit codes: 0 done - 1 no host serves, or the stack cannot be read - 2 wrong usage.\n"
)
@click.option("--stack", default="", help="Stack; default: the selected one.")
@click.option("--cwd", "folder", type=click.Path(path_type=Path, exists=True), default=".", help="Project.")
@click.option(
    "--token-file", type=click.Path(path_type=Path),
    help="File for the agents' token, readable by you only and named in fleet.json (own machines).",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; a failure leaves an existing one unchanged. Default: print.",
)  # fmt: skip
@exits
def export(stack: str, folder: Path, token_file: Path | None, out: Path | None) -> None:
    """Write fleet.json: the hosts that serve, for `Client.from_fleet`."""
    chosen = ["--stack", stack] if stack else []
    outputs = _engine(folder, ["stack", "output", "--json", *chosen])
    state = _engine(folder, ["stack", "export", "--show-secrets", *chosen])
    found = make_export(state, outputs)
    if token_file is not None:
        if not found.token:
            raise BadInput(
                "--token-file",
                "the token is stored in a secret of the cloud",
                "Read it with the cloud's tools",
            )
        write_whole(token_file, found.token + "\n", 0o600)
        found.fleet["token_secret"] = f"file:{token_file.resolve()}"
    for name, why in found.left_out.items():
        click.echo(f"fleet export: host {name} is not exported: {why.splitlines()[0]}", err=True)
    text = json.dumps(found.fleet, indent=2)
    if out is None:
        click.echo(text)
        return
    write_whole(out, text + "\n", 0o644)
    click.echo(f"{out}: {len(found.fleet['hosts'])} hosts, {found.fleet['capacity']} replicas", err=True)


def _engine(folder: Path, arguments: list[str]) -> Any:
    """Return the JSON that the `pulumi` command prints; it may hold secrets and is never shown."""
    if shutil.which("pulumi") is None:
        raise OsgymInfraError("`pulumi` is not on PATH. Install it: https://www.pulumi.com/docs/install")
    argv = ["pulumi", *arguments, "--non-interactive", "--cwd", str(folder)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=ENGINE_S, check=False)
        if done.returncode != 0:
            raise OsgymInfraError(f"{' '.join(argv[:3])} failed: {done.stderr.strip()}")
        return json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise OsgymInfraError(f"{' '.join(argv[:3])}: the answer could not be parsed") from error
