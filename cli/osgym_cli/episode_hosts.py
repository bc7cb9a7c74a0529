"""Options of commands that run episodes: on which hosts."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from osgym_cli.host_client import DEFAULT_HOSTS, Command, host_option, token_option, with_options
from osgym_sdk import AsyncClient


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts on which a command runs episodes: those of `urls`, of a fleet's file, or of OSGYM_HOSTS."""

    urls: str | None = None
    fleet: Path | None = None
    token: str | None = field(default=None, repr=False)

    def client(self) -> AsyncClient:
        """Make a client of the SDK.

        Raises:
            osgym_sdk.ConfigError: The hosts cannot be read or used.
        """
        if self.fleet is not None:
            if self.token is not None:
                return AsyncClient.from_fleet(self.fleet, token=self.token)
            return AsyncClient.from_fleet(self.fleet)
        return AsyncClient(self.urls) if self.token is None else AsyncClient(self.urls, token=self.token)


def episode_host_options(command: Command) -> Command:
    """Add `--host`, `--fleet` and `--token`; the command's argument `hosts` is a `Hosts`."""

    @functools.wraps(command)
    def run(*args: Any, host: str | None, fleet: Path | None, token: str | None, **options: Any) -> Any:
        if host is not None and fleet is not None:
            raise click.UsageError("--host or --fleet, not both")
        return command(*args, hosts=Hosts(host, fleet, token), **options)

    fleet_option = click.option(
        "--fleet",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="File of `osgym fleet export`, instead of --host.",
    )
    help_text = f"Host agents, separated by commas; {DEFAULT_HOSTS}."
    return with_options(run, (host_option("URLS", help_text), fleet_option, token_option))
