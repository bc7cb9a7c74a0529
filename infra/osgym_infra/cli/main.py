"""`python -m osgym_infra`: the commands of this distribution alone, where `osgym` is not installed."""

from __future__ import annotations

import click

from osgym_infra.cli.fleet import fleet
from osgym_protocol.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="osgym-infra")
def main() -> None:
    """What a fleet of OSGym hosts costs, and which hosts to take."""


main.add_command(fleet)
