"""`osgym`: the group; each command is imported only when it is used."""

from __future__ import annotations

import importlib
import importlib.util

import click

COMMANDS = {
    "clean": "Stop the host agent and remove what it left.",
    "demo": "Run every task by its oracle on real desktops and show a table.",
    "doctor": "Say what this machine can run, and how to get what is missing.",
    "image": "Bake, list, inspect and remove golden images.",
    "openapi": "Print the OpenAPI description of the HTTP API.",
    "ps": "List the replicas of a running host agent.",
    "serve": "Run the host agent.",
    "shot": "Save a picture of a replica's screen.",
}
"""Name → one line of help. The module `osgym_host.cli.<name>` has a command of the same name."""


class _LazyGroup(click.Group):
    """Lists commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if importlib.util.find_spec(f"osgym_host.cli.{name}")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"osgym_host.cli.{cmd_name}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="osgym-host", prog_name="osgym")
def main() -> None:
    """OSGym: many real desktops per machine, for training computer-use agents."""
