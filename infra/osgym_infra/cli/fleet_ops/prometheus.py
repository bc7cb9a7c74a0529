"""`osgym fleet prometheus`: configuration for Prometheus and Grafana, written from fleet.json."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from osgym_infra.cli.common import exits, write_whole
from osgym_infra.cli.fleet_ops.discover import with_found
from osgym_infra.cli.fleet_ops.options import fleet_option
from osgym_infra.errors import BadInput, OsgymInfraError
from osgym_infra.fleet.managed import ManagedFleet, read_fleet
from osgym_infra.fleet.monitoring.dashboard import dashboard
from osgym_infra.fleet.monitoring.rules import rules
from osgym_infra.fleet.monitoring.scrape import (
    CA,
    CONFIG,
    DASHBOARD,
    RULES,
    TOKEN,
    ScrapeOptions,
    configuration,
    jobs,
    targets,
    targets_file,
)

HEAD = "# Written by `osgym fleet prometheus`; run it again after `osgym fleet export`.\n"
AUTHORITY = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,260}:\d{1,5}")


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym fleet prometheus --out watch\n"
    "  osgym fleet prometheus --out watch --every-s 30 --alertmanager 10.0.0.9:9093\n"
)
@fleet_option
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder.")
@click.option("--every-s", type=click.FloatRange(min=1, max=300), default=15.0, show_default=True,
              help="Seconds between two scrapes of a host.")  # fmt: skip
@click.option("--alertmanager", "alertmanagers", multiple=True, metavar="HOST:PORT", help="Alertmanager.")
@exits
def prometheus(fleet_path: Path, out: Path, every_s: float, alertmanagers: tuple[str, ...]) -> None:
    """Write targets, scrape configuration, alert rules and a Grafana dashboard for this fleet.

    Prometheus reads the targets again by itself when they change; the rest when it is reloaded. The token is
    written for you only: give it to Prometheus's account.
    """
    for one in alertmanagers:
        if not AUTHORITY.fullmatch(one):
            raise BadInput("--alertmanager", f"{one!r} is not an address", "HOST:PORT, e.g. 10.0.0.9:9093")
    fleet = with_found(read_fleet(fleet_path))
    for name, text in files(fleet, ScrapeOptions(every_s, alertmanagers)).items():
        write_whole(out / name, text, 0o644)
        click.echo(out / name)
    if fleet.token_source:
        _place_token(fleet, out / TOKEN)


def files(fleet: ManagedFleet, options: ScrapeOptions) -> dict[str, str]:
    """Return all files but the token, by name."""
    found = {
        CONFIG: HEAD + _yaml(configuration(fleet, options)),
        RULES: HEAD + _yaml(rules(options)),
        DASHBOARD: json.dumps(dashboard(), indent=1) + "\n",
    }
    for job, hosts in jobs(fleet).items():
        found[targets_file(job)] = json.dumps(targets(fleet, hosts), indent=1) + "\n"
    if fleet.ca:
        found[CA] = fleet.ca if fleet.ca.endswith("\n") else f"{fleet.ca}\n"
    return found


def _place_token(fleet: ManagedFleet, path: Path) -> None:
    try:
        token = fleet.token()
    except BadInput as error:
        click.echo(f"{path} could not be written: {error}; Prometheus needs the token in that file", err=True)
        return
    write_whole(path, token, 0o600)  # without a line end: older Prometheus sends it along
    click.echo(f"{path} (secret; Prometheus must be able to read it)")


def _yaml(data: object) -> str:
    try:
        import yaml
    except ImportError as error:
        raise OsgymInfraError(
            "PyYAML is not installed: pip install -c constraints.txt -e 'infra[ops]'"
        ) from error
    text: str = yaml.safe_dump(data, sort_keys=False, width=200, allow_unicode=True)
    return text
