"""`osgym fleet run` and `osgym fleet logs`: a command on many hosts at once, by ssh."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from osgym_infra.cli.common import exits
from osgym_infra.cli.fleet_ops.discover import with_found
from osgym_infra.cli.fleet_ops.options import (
    MOST_PARALLEL,
    PARALLEL,
    fleet_option,
    host_option,
    interruptible,
    json_option,
    many_options,
    needs_ops,
    ssh_options,
)
from osgym_infra.cli.fleet_ops.outcome import ALL_WELL, HostOutcome, answer, exit_code
from osgym_infra.cli.fleet_ops.table import say_failures
from osgym_infra.errors import BadInput
from osgym_infra.fleet.managed import ManagedHost, read_fleet

if TYPE_CHECKING:
    from osgym_infra.cli.fleet_ops.group import Finished, RemoteJob

UNIT = re.compile(r"[A-Za-z0-9@._:-]{1,200}")
SINCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 :+.-]{0,60}|-[0-9]+[A-Za-z]+")
"""What systemd.time(7) takes: `2026-11-22 10:00`, `1 hour ago`, `-10min`."""
MOST_LOG_LINES = 100_000


@click.command(
    context_settings={"ignore_unknown_options": False},
    epilog="\b\nExamples:\n"
    "  osgym fleet run -- uptime\n"
    "  osgym fleet run --host host-3 --sudo -- systemctl restart osgym\n"
    "  osgym fleet run --table -- 'df -h / | tail -1'\n",
)
@many_options(deadline_s=300)
@ssh_options
@click.option("--sudo", is_flag=True, help="Run as root, by `sudo -n` where the login is another user.")
@click.option("--table", is_flag=True, help="Print one row for each host instead of its whole output.")
@json_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@interruptible
@exits
def run(
    fleet_path: Path, patterns: tuple[str, ...], parallel: int, deadline_s: float, ssh_user: str | None,
    ssh_key: Path | None, sudo: bool, table: bool, as_json: bool, command: tuple[str, ...],
) -> None:  # fmt: skip
    """Run COMMAND on hosts, by ssh: `osgym fleet run -- uptime`.

    Several words are run as they are; a single one is a line for `sh -c` there: `run -- 'df -h | tail -1'`.
    The exit code is 0 when it is 0 on all hosts, else 1. On Ctrl-C, or after the deadline, the command is
    stopped on the hosts too.
    """
    needs_ops()
    from osgym_infra.cli.fleet_ops.group import RemoteJob, with_login

    hosts = with_login(with_found(read_fleet(fleet_path)).select(patterns), ssh_user, ssh_key)
    argv = ("sh", "-c", command[0]) if len(command) == 1 else command
    done = _watched(hosts, RemoteJob(argv, sudo, deadline_s), parallel, as_json=as_json, table=table)
    sys.exit(_report([(one, one.outcome()) for one in done], as_json))


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym fleet logs -n 200 --since '1 hour ago'\n"
    "  osgym fleet logs --host host-3 -f\n"
    "  osgym fleet logs --unit osgym-notices --json\n"
)
@fleet_option
@host_option
@ssh_options
@click.option("-n", "--lines", type=click.IntRange(0, MOST_LOG_LINES), default=50, show_default=True,
              help="Number of newest lines.")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Also print new lines, until Ctrl-C.")
@click.option("--since", help="Time of the first line, such as '1 hour ago' or '2026-11-22 10:00'.")
@click.option("--unit", default="osgym", show_default=True, help="osgym, osgym-notices or osgym-firewall.")
@click.option("--parallel", type=click.IntRange(1, MOST_PARALLEL), default=None,
              help=f"Number of hosts at the same time; default {PARALLEL}, all with --follow.")  # fmt: skip
@click.option("--deadline-s", type=click.FloatRange(min=0.1), default=60.0, show_default=True,
              help="Deadline of each host; none with --follow.")  # fmt: skip
@json_option
@interruptible
@exits
def logs(
    fleet_path: Path, patterns: tuple[str, ...], ssh_user: str | None, ssh_key: Path | None, lines: int,
    follow: bool, since: str | None, unit: str, parallel: int | None, deadline_s: float, as_json: bool,
) -> None:  # fmt: skip
    """Show the journal of the host agents, merged, with the host before each line."""
    needs_ops()
    from osgym_infra.cli.fleet_ops.group import RemoteJob, with_login

    if follow and as_json:
        raise click.UsageError("--follow cannot be combined with --json")
    hosts = with_login(with_found(read_fleet(fleet_path)).select(patterns), ssh_user, ssh_key)
    if follow and len(hosts) > MOST_PARALLEL:
        raise BadInput("--follow", f"{len(hosts)} hosts at once", f"choose at most {MOST_PARALLEL} by --host")
    argv = journal_argv(unit, lines, since, follow)
    job = RemoteJob(argv, True, None if follow else deadline_s, None if follow else lines)
    at_once = parallel or (len(hosts) if follow else PARALLEL)
    done = _watched(hosts, job, at_once, as_json=as_json, table=False)
    sys.exit(_report([(one, one.outcome()) for one in done], as_json))


def journal_argv(unit: str, lines: int, since: str | None, follow: bool) -> tuple[str, ...]:
    """Return the command line of `journalctl`. Pure.

    Raises:
        BadInput: A value could mean something else there.
    """
    if not UNIT.fullmatch(unit) or unit.startswith("-"):
        raise BadInput("--unit", f"{unit!r} is not a name of a unit", "a name like osgym or osgym-notices")
    if since is not None and not SINCE.fullmatch(since):
        raise BadInput("--since", f"{since!r} is not a time", "e.g. '1 hour ago' (systemd.time)")
    argv = ["journalctl", f"--unit={unit}", "--no-pager", "--output=short-iso", f"--lines={lines}"]
    argv += [f"--since={since}"] if since else []
    return (*argv, "--follow") if follow else tuple(argv)


def _watched(
    hosts: Sequence[ManagedHost], job: RemoteJob, parallel: int, *, as_json: bool, table: bool
) -> list[Finished]:
    """Run the job on all hosts with the display that the options ask for."""
    from osgym_infra.cli.fleet_ops.group import run_on_all
    from osgym_infra.cli.fleet_ops.watchers import RunTable, Silent, Stream

    watcher = Silent() if as_json else RunTable(hosts) if table else Stream(hosts)
    with watcher:
        return run_on_all(hosts, job, parallel, watcher)


def _report(rows: Sequence[tuple[Finished, HostOutcome]], as_json: bool) -> int:
    """Print the failures; return the exit code."""
    outcomes = [outcome for _, outcome in rows]
    if as_json:
        found = answer(outcomes)
        for row, (done, _) in zip(found["hosts"], rows, strict=True):
            row["output"] = done.text
        click.echo(json.dumps(found, indent=2))
    else:
        say_failures(outcomes)
    return exit_code(outcomes) if outcomes else ALL_WELL
