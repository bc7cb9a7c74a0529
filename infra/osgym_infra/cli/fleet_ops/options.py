"""Options that the commands share."""

from __future__ import annotations

import importlib.util
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click

from osgym_infra.cli.fleet_ops.outcome import INTERRUPTED
from osgym_infra.errors import OsgymInfraError

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])

PARALLEL = 64
"""Default number of hosts worked on at the same time."""
MOST_PARALLEL = 512


def fleet_option(command: F) -> F:
    """Add `--fleet`."""
    return click.option(
        "--fleet", "fleet_path", type=click.Path(path_type=Path), default="fleet.json", show_default=True,
        envvar="OSGYM_FLEET", help="File that `osgym fleet export` wrote.",
    )(command)  # fmt: skip


def host_option(command: F) -> F:
    """Add `--host`."""
    return click.option(
        "--host", "patterns", multiple=True, metavar="ID|GLOB",
        help="Host by id, address or glob ('10.0.*'); may be repeated. Default: all.",
    )(command)  # fmt: skip


def many_options(deadline_s: float) -> Callable[[F], F]:
    """Add `--fleet`, `--host`, `--parallel` and `--deadline-s`."""

    def add(command: F) -> F:
        command = click.option(
            "--deadline-s", type=click.FloatRange(min=0.1, max=86400), default=deadline_s,
            show_default=True, help="Deadline of each host, from its first packet on.",
        )(command)  # fmt: skip
        command = click.option(
            "--parallel", type=click.IntRange(1, MOST_PARALLEL), default=PARALLEL, show_default=True,
            help="Number of hosts worked on at the same time.",
        )(command)  # fmt: skip
        return fleet_option(host_option(command))

    return add


def json_option(command: F) -> F:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def interruptible(command: Callable[P, None]) -> Callable[P, None]:
    """End in order on Ctrl-C and SIGTERM, with the exit code that shells give it."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)
        finally:
            signal.signal(signal.SIGTERM, before)

    return run


def needs_ops() -> None:
    """Raises: OsgymInfraError: what enters hosts by ssh is not installed."""
    if importlib.util.find_spec("paramiko") is None:
        raise OsgymInfraError("paramiko is not installed: pip install -c constraints.txt -e 'infra[ops]'")


def ssh_options(command: F) -> F:
    """Add `--ssh-user` and `--ssh-key`."""
    command = click.option(
        "--ssh-key", type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="Private key, instead of fleet.json's.",
    )(command)  # fmt: skip
    return click.option("--ssh-user", help="Account, instead of fleet.json's.")(command)
