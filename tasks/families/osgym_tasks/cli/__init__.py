"""Commands `osgym task family`: families of tasks listed, written, proved, measured and shown."""

from __future__ import annotations

import click

from osgym_tasks.cli import prove, read, show
from osgym_tasks.cli.options import EXIT_INFRASTRUCTURE, EXIT_WRONG

__all__ = ["EXIT_INFRASTRUCTURE", "EXIT_WRONG", "commands"]


@click.group(
    name="family",
    short_help="Families of tasks: list them, write files, prove and measure them.",
    epilog="\b\nExamples:\n"
    "  osgym task family ls\n"
    "  osgym task family write edit.lines --seeds 4 --out out/families\n"
    "  osgym task family verify edit.lines --seeds 3\n"
    "  osgym task family report out/tasks.jsonl --out out/tasks.html\n",
)
def commands() -> None:
    """Families of tasks, each made by seed and level, with ways to act that prove it."""


_COMMANDS = (
    *(read.list_, read.write, prove.verify_, prove.baseline, read.table, read.report),
    *(show.browse, show.record_, read.count_, read.card),
)
for _command in _COMMANDS:
    commands.add_command(_command)
