"""`osgym`: the group; each command is imported only when it is used.

Other distributions add commands through the entry-point group `osgym.commands`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util

import click

COMMANDS = {
    "checkpoint": "List, remove, export and import checkpoints of a running host agent.",
    "clean": "Stop the host agent and remove what it left.",
    "completion": "Print what completes commands and options in a shell.",
    "data": "Look at data sets of trajectories, export and convert them.",
    "demo": "Run every task by its oracle on real desktops and show a table.",
    "doctor": "Say what this machine can run, and how to get what is missing.",
    "drain": "Empty a running host agent: no new episodes.",
    "eval": "Run a model on tasks; show a table, write a report.",
    "events": "Show what happened on a running host agent, as it happens.",
    "image": "Bake, list, inspect and remove golden images.",
    "openapi": "Print the OpenAPI description of the HTTP API.",
    "ps": "List the replicas of a running host agent.",
    "replay": "Show an episode again, step by step, as one page of HTML.",
    "serve": "Run the host agent.",
    "settle": "Fit the waits of steps to the applications of an image.",
    "shot": "Save a picture of a replica's screen.",
    "support-bundle": "Put what somebody who helps wants to see into one file, without secrets.",
    "task": "Check task files: what runs here, and what is missing.",
    "token": "Make, list and revoke tokens with a scope.",
    "top": "Show hosts and their busiest desktops, again and again.",
    "web": "Look into archives of recorded sites.",
}
"""Name → one line of help. The module `osgym_host.cli.<name>` has the command; for `-` it has `_`."""


ADDED = "osgym.commands"
"""Entry-point group; each entry names a click command. Ours win over one of the same name."""


class _LazyGroup(click.Group):
    """Lists our own commands without importing them; others are imported only to show their help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self._own(), *importlib.metadata.entry_points(group=ADDED).names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._own():
            name = _module(cmd_name)
            command = getattr(importlib.import_module(f"osgym_host.cli.{name}"), name)
        else:
            entries = importlib.metadata.entry_points(group=ADDED, name=cmd_name)
            if not entries:
                return None
            command = next(iter(entries)).load()
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._line(ctx, name)) for name in self.list_commands(ctx)])

    def _own(self) -> list[str]:
        return [name for name in COMMANDS if importlib.util.find_spec(f"osgym_host.cli.{_module(name)}")]

    def _line(self, ctx: click.Context, name: str) -> str:
        if name in COMMANDS:
            return COMMANDS[name]
        command = self.get_command(ctx, name)
        return command.get_short_help_str(100) if command else ""


def _module(command: str) -> str:
    return command.replace("-", "_")


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n"
    "  osgym doctor                          can this machine run it\n"
    "  osgym image build --flavor small      bake a golden image, once\n"
    "  osgym serve --set image=small         desktops, API and dashboard on port 20000\n"
    "  osgym ps                              what runs there\n"
    "  osgym task run tasks --policy oracle  tasks, without a model\n",
)
@click.version_option(package_name="osgym-host", prog_name="osgym")
def main() -> None:
    """OSGym: many real desktops per machine, for training computer-use agents."""
