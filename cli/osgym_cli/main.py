"""The `osgym` command: a tree of commands, each imported only when it is used.

Every command is an entry point of the group `osgym.commands`. Its name is the command's words joined by dots:
`host.serve` is `osgym host serve`.
"""

from __future__ import annotations

import inspect
from typing import Any

import click

from osgym_protocol.plugins import PluginError, PluginGroup, load_plugin, plugin_names
from osgym_protocol.version import __version__

SUMMARIES = {
    "checkpoint": "List, remove, export and import checkpoints of a running host agent.",
    "completion": "Print a shell's completion script for commands and options.",
    "data": "Look at data sets of trajectories; export, convert and replay them.",
    "demo": "Run every task by its oracle on real desktops and show a table.",
    "doctor": "Find out what this machine can run, and how to get what is missing.",
    "eval": "Run a model on tasks; show a table, write a report.",
    "fleet": "Plan what a fleet costs; pack what hosts fetch; operate the hosts.",
    "host": "Run, watch and drain the host agent, and clean up after it.",
    "image": "Bake, list, inspect and remove golden images.",
    "replica": "List the replicas of a running host agent and save their screens.",
    "settle": "Fit the waits of steps to the applications of an image.",
    "task": "Check task files, write and run them; generate families of tasks.",
    "token": "Make, list and revoke tokens with a scope.",
    "web": "Look into archives of recorded sites.",
    "host.clean": "Stop the host agent and remove what it left.",
    "host.drain": "Drain a running host agent: it accepts no new episodes.",
    "host.events": "Show what happened on a running host agent, as it happens.",
    "host.openapi": "Print the OpenAPI description of the HTTP API.",
    "host.serve": "Run the host agent.",
    "host.support-bundle": "Collect what is needed to diagnose this host into one file, without secrets.",
    "host.top": "Show hosts and their busiest desktops, refreshed until Ctrl-C.",
    "task.check": "Find out which tasks run here, and what the others need.",
    "task.family": "List families of tasks; write their files, prove and measure them.",
    "task.new": "Write a working task with notes on each part, and its oracle.",
    "task.reference": "Print all setup steps, getters and metrics that a task can name.",
    "task.run": "Run tasks by an oracle, no action, random actions or your own policy.",
}
"""Entry point, or first word of several → its line in a group's help, so that help imports no command."""


GROUPS = {
    "eval": """Run a model on tasks on real desktops.

    \b
    Examples:
      osgym eval run tasks --agent openai --model gpt-5.4""",
    "host": """Run the host agent of this machine; watch, drain and clean up a host agent.

    \b
    Examples:
      osgym host serve --set image=small    desktops, API and dashboard on port 20000
      osgym host top                        what runs, refreshed until Ctrl-C
      osgym host drain --wait               no new episodes; return when none is open
      osgym host clean                      stop it and remove what it left""",
    "replica": """List the replicas of a running host agent and save their screens.

    \b
    Examples:
      osgym replica ls
      osgym replica screenshot r12 now.png""",
    "task": """Write, check and run task files without a model, and list what they can name.

    \b
    Examples:
      osgym task new tasks/mousepad/greeting.json
      osgym task check tasks
      osgym task run tasks --policy oracle""",
}
"""Help of groups whose commands are entry points of their own."""

REPLACED = {
    "calibrate": "fleet fit",
    "catalogue": "fleet catalogue",
    "clean": "host clean",
    "drain": "host drain",
    "events": "host events",
    "openapi": "host openapi",
    "plan": "fleet plan",
    "ps": "replica ls",
    "replay": "data replay",
    "serve": "host serve",
    "shot": "replica screenshot",
    "support-bundle": "host support-bundle",
    "tasks": "task family",
    "token list": "token ls",
    "top": "host top",
}
"""Spelling before version 0.2 → today's. The old ones work for one release and are not in any help."""


def current_spelling(args: list[str]) -> tuple[str, str, list[str]]:
    """Return the old words at the start of the arguments, today's words for them, and all arguments anew.

    Both are empty when nothing is spelt in the old way. Pure.

    >>> current_spelling(["ps", "--json"])
    ('ps', 'replica ls', ['replica', 'ls', '--json'])
    """
    for old, new in REPLACED.items():
        words = old.split()
        if args[: len(words)] == words:
            return old, new, [*new.split(), *args[len(words) :]]
    if args[:1] == ["eval"] and args[1:2] not in ([], ["run"], ["-h"], ["--help"]):
        return "eval", "eval run", ["eval", "run", *args[1:]]
    return "", "", args


class CommandTree(click.Group):
    """Group whose commands are the entry points below a prefix; each is imported when it is used."""

    def __init__(self, *args: Any, prefix: str = "", **options: Any) -> None:
        super().__init__(*args, **options)
        self._prefix = prefix

    def list_commands(self, ctx: click.Context) -> list[str]:
        found = (name for name in self._entries() if name.startswith(self._prefix))
        return sorted({name.removeprefix(self._prefix).partition(".")[0] for name in found})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = f"{self._prefix}{cmd_name}"
        entries = self._entries()
        if name in entries:
            try:
                command = load_plugin(PluginGroup.COMMANDS, name)
            except PluginError as error:
                raise click.ClickException(str(error)) from error
            assert isinstance(command, click.Command)
            return command
        if not any(entry.startswith(f"{name}.") for entry in entries):
            return None
        return CommandTree(cmd_name, prefix=f"{name}.", help=inspect.cleandoc(GROUPS.get(name, "")))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._summary(ctx, name)) for name in self.list_commands(ctx)])

    def _entries(self) -> tuple[str, ...]:
        try:
            return plugin_names(PluginGroup.COMMANDS)
        except PluginError as error:
            raise click.ClickException(str(error)) from error

    def _summary(self, ctx: click.Context, name: str) -> str:
        if (entry := f"{self._prefix}{name}") in SUMMARIES:
            return SUMMARIES[entry]
        command = self.get_command(ctx, name)
        return command.get_short_help_str(100) if command else ""


class _Root(CommandTree):
    """The whole tree; it also takes the old spellings."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        old, new, args = current_spelling(args)
        if old and not ctx.resilient_parsing:
            said = f"osgym: `osgym {old}` is now `osgym {new}`; the next release takes only that"
            click.echo(said, err=True)
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Root,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n"
    "  osgym doctor                          can this machine run it\n"
    "  osgym image build --flavor small      bake a golden image, once\n"
    "  osgym host serve --set image=small    desktops, API and dashboard on port 20000\n"
    "  osgym replica ls                      what runs there\n"
    "  osgym task run tasks --policy oracle  tasks, without a model\n",
)
@click.version_option(__version__, prog_name="osgym")
def main() -> None:
    """OSGym: many real desktops per machine, for training computer-use agents."""
