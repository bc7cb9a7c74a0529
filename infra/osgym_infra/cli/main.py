"""The commands alone, where the host's `osgym` is not installed: `python -m osgym_infra`."""

from __future__ import annotations

import click

from osgym_infra.cli.calibrate import calibrate
from osgym_infra.cli.catalogue import catalogue
from osgym_infra.cli.fleet import fleet
from osgym_infra.cli.plan import plan


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="osgym-infra", prog_name="osgym-infra")
def main() -> None:
    """What a fleet of OSGym hosts costs, and which hosts to take."""


for _command in (plan, catalogue, calibrate, fleet):
    main.add_command(_command)
