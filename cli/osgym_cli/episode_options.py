"""Options of commands that run episodes: the hosts, and how episodes are run and kept."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from osgym_cli.host_client import DEFAULT_HOSTS, HOSTS, Command, host_option, token_option, with_options
from osgym_protocol.option_groups import option_group
from osgym_sdk import AsyncClient

EPISODES = option_group("Episodes")


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts on which a command runs episodes: those of `urls`, of a fleet's file, or of OSGYM_HOSTS."""

    urls: str | None = None
    fleet: Path | None = None
    token: str | None = field(default=None, repr=False)

    def client(self) -> AsyncClient:
        """Make a client of the SDK. Raises osgym_sdk.ConfigError if the hosts cannot be read or used."""
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
            raise click.UsageError("give either --host or --fleet, not both")
        return command(*args, hosts=Hosts(host, fleet, token), **options)

    fleet_option = HOSTS(
        "--fleet",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="File of `osgym fleet export`, instead of --host.",
    )
    help_text = f"Host agents, separated by commas; {DEFAULT_HOSTS}."
    return with_options(run, (host_option("URLS", help_text), fleet_option, token_option))


def episode_options(*, concurrency: int, max_steps: int, out: Path) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of a run, with these defaults."""
    options = (
        EPISODES("--concurrency", type=click.IntRange(1, 4096), default=concurrency, show_default=True,
                 help="Number of episodes played at once."),
        EPISODES("--max-steps", type=click.IntRange(1), default=max_steps, show_default=True,
                 help="Number of steps after which an episode ends."),
        EPISODES("--repeat", type=click.IntRange(1, 1024), default=1, show_default=True,
                 help="Number of episodes of each task; several give pass@k."),
        EPISODES("--only", multiple=True, metavar="TEXT",
                 help="Text in the names of the tasks to run; repeatable."),
        EPISODES("--retries", type=click.IntRange(0, 10), default=1, show_default=True,
                 help="Number of further tries of an episode that the infrastructure spoilt."),
        EPISODES("--out", type=click.Path(path_type=Path, file_okay=False), default=out, show_default=True,
                 help="Folder of the results."),
        EPISODES("--resume", is_flag=True,
                 help="Go on in --out: run what is missing, and what the infrastructure spoilt."),
    )  # fmt: skip
    return lambda command: with_options(command, options)
