"""`python -m osgym_host`: the commands of this distribution alone, where `osgym` is not installed."""

from __future__ import annotations

import importlib

import click

from osgym_protocol.version import __version__

COMMANDS = ("clean", "doctor", "image", "openapi", "serve", "settle", "token", "web")
"""Names of the commands; each is the object of that name in the module of that name."""


class _Commands(click.Group):
    """Group that imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"osgym_host.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n  python -m osgym_host serve --set image=small\n",
)
@click.version_option(__version__, prog_name="osgym-host")
def main() -> None:
    """Administer the host agent of this machine."""
