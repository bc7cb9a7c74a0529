"""`osgym fleet ssh`: a shell on one host."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import click

from osgym_infra.cli.common import exits
from osgym_infra.cli.fleet_ops.discover import with_found
from osgym_infra.cli.fleet_ops.options import fleet_option, interruptible, needs_ops, ssh_options
from osgym_infra.errors import BadInput, OsgymInfraError
from osgym_infra.fleet.managed import read_fleet
from osgym_infra.links.access import ProgramAccess, SshAccess


@click.command(
    "ssh",
    epilog="\b\nExamples:\n"
    "  osgym fleet ssh host-3\n"
    "  osgym fleet ssh --print host-3         the command line only\n",
)
@fleet_option
@ssh_options
@click.option("--print", "only_print", is_flag=True, help="Print the command line that would enter it.")
@click.argument("host")
@interruptible
@exits
def ssh(fleet_path: Path, ssh_user: str | None, ssh_key: Path | None, only_print: bool, host: str) -> None:
    """Open a shell on HOST: by ssh, at AWS by Session Manager, at Google Cloud by Identity-Aware Proxy.

    What the host sends reaches your terminal as it is, as with any ssh. The exit code is the shell's.
    """
    needs_ops()
    from osgym_infra.cli.fleet_ops.group import with_login

    found = with_login(with_found(read_fleet(fleet_path)).select([host]), ssh_user, ssh_key)
    if len(found) != 1:
        raise BadInput("HOST", f"{host!r} fits {len(found)} hosts", "one id")
    match found[0].access:
        case SshAccess() as access if access.is_local:
            argv = [os.environ.get("SHELL", "/bin/sh")]
        case SshAccess() as access:
            argv = ssh_argv(access)
            if not only_print:
                sys.exit(_ssh_shell(access))
        case ProgramAccess() as program:
            argv = program.shell_argv()
        case None:
            raise OsgymInfraError(
                f"fleet.json does not say how {found[0].id} can be logged in to: run "
                "`osgym fleet export` again"
            )
    if only_print:
        click.echo(shlex.join(argv))
        return
    if shutil.which(argv[0]) is None:
        raise OsgymInfraError(f"there is no `{argv[0]}` on PATH, which is needed to log in to {found[0].id}")
    os.execvp(argv[0], argv)  # noqa: S606 - a program of this machine, without a shell


def ssh_argv(access: SshAccess) -> list[str]:
    """Return the command line of OpenSSH's client, which needs the host key in known_hosts."""
    argv = ["ssh", "-o", "StrictHostKeyChecking=yes", "-p", str(access.port)]
    argv += ["-i", access.key_file] if access.key_file else []
    if access.jump is not None:
        argv += ["-J", f"{access.jump.user}@{access.jump.address}:{access.jump.port}"]
    return [*argv, f"{access.user}@{access.address}"]


def _ssh_shell(access: SshAccess) -> int:
    from osgym_infra.cli.fleet_ops.terminal import shell
    from osgym_infra.links.ssh import SshLink

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput("HOST", "this is not a terminal", "`osgym fleet run --host HOST -- COMMAND`")
    link = SshLink(access, root=False)
    client = None
    try:
        client = link.open_client()
        return shell(client, access.name)
    finally:
        link.close_client(client)
