"""`osgym fleet sudo`: lets `pulumi up` become root on this machine, for some hours."""

from __future__ import annotations

import os
import pwd
import subprocess
from datetime import UTC, datetime, timedelta

import click

from osgym_infra.cli.common import exits
from osgym_infra.errors import OsgymInfraError
from osgym_infra.links.local import becomes_root
from osgym_infra.links.sudo import HOURS, MOST_HOURS, WRITE, grant, grant_file

ASK_S = 300.0
"""Time to type a password."""


@click.command(epilog="\b\nExamples:\n  osgym fleet sudo --hours 2\n  osgym fleet sudo --end\n")
@click.option(
    "--hours", type=click.FloatRange(min=0, max=MOST_HOURS, min_open=True), default=HOURS, show_default=True,
    help="Hours until the permission ends.",
)  # fmt: skip
@click.option("--end", is_flag=True, help="End the permission now.")
@exits
def sudo(hours: float, end: bool) -> None:
    """Let `pulumi up` become root on this machine without a password, for some hours.

    Asks for your password once, in this terminal, and writes a line with an end time into /etc/sudoers.d.
    The host `local` and the baking of images need it when you are an ordinary user whose sudo asks for a
    password: Pulumi's providers have no terminal to ask in.
    """
    uid = os.geteuid()
    if uid == 0:
        click.echo("you are root, so no permission is needed")
        return
    path = grant_file(uid)
    if end:
        _as_root(["rm", "-f", path])
        click.echo(f"removed {path}")
        return
    if not os.path.exists(path) and becomes_root():  # noqa: PTH110 - the folder may not be read
        click.echo("sudo does not ask you for a password, so no permission is needed")
        return
    until = datetime.now(UTC) + timedelta(hours=hours)
    line = grant(pwd.getpwuid(uid).pw_name, uid, until)
    _as_root(["sh", "-c", WRITE, "sudo", path, line])
    if not becomes_root():
        raise OsgymInfraError(
            f"{path} was written, and sudo still asks for a password: does /etc/sudoers include that folder, "
            f"and is no later line stricter? The line is: {line}"
        )
    click.echo(f"until {until.astimezone():%H:%M} {path} says: {line}")
    click.echo("osgym fleet sudo --end ends the permission earlier")


def _as_root(argv: list[str]) -> None:
    """Run a command through sudo, which asks in this terminal.

    Raises:
        OsgymInfraError: With what a person who is root can do instead.
    """
    try:
        done = subprocess.run(["sudo", "--", *argv], timeout=ASK_S, check=False)
    except OSError as error:
        raise OsgymInfraError(f"sudo cannot be run: {error.strerror}; run pulumi as root instead") from error
    except subprocess.TimeoutExpired as error:
        raise OsgymInfraError(f"no password was given to sudo within {ASK_S:g} s") from error
    if done.returncode != 0:
        raise OsgymInfraError(
            "sudo refused (see above). An administrator can add the line by hand: "
            f"visudo -f {grant_file(os.geteuid())}"
        )
