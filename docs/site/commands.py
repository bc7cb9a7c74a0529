"""Every command of `osgym`, from its own help: a page of the site, and pages for `man`.

`make man` writes the latter into build/man; `man -l build/man/osgym.1` shows one.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click
from click_man.man import ManPage

from osgym_cli.main import main as osgym

ROOT = Path(__file__).resolve().parents[2]
MAN = ROOT / "build/man"
HELP_WIDTH = 100


def walk(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[click.Context]:
    """A command and all below it, each as the context that its help is made from."""
    context = click.Context(command, info_name=name, parent=parent, max_content_width=HELP_WIDTH)
    context.terminal_width = HELP_WIDTH
    yield context
    if isinstance(command, click.Group):
        below = {name: command.get_command(context, name) for name in command.list_commands(context)}
        for name, found in below.items():
            if found is not None and not found.hidden:
                yield from walk(found, name, context)


def page() -> str:
    """The site's page of commands: what `--help` prints, one after the other."""
    parts = ["# Commands\n"]
    for context in walk(osgym, "osgym"):
        depth = 1 + len(context.command_path.split())
        parts.append(f"{'#' * depth} {context.command_path}\n\n```text\n{context.get_help()}\n```\n")
    return "\n".join(parts)


def man_page(context: click.Context) -> str:
    """What `man` shows of a command: its help in troff."""
    command = context.command
    made = ManPage(context.command_path)
    made.version = version("osgym-cli")
    made.short_help = _first_sentence(command)
    texts = (command.help or "", command.epilog or "")
    made.description = "\n\n".join(inspect.cleandoc(text.replace("\b", "")) for text in texts).strip()
    made.synopsis = " ".join(command.collect_usage_pieces(context))
    options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
    made.options = [record for option in options if (record := option.get_help_record(context))]
    if isinstance(command, click.Group):
        found = {name: command.get_command(context, name) for name in command.list_commands(context)}
        made.commands = [(name, _first_sentence(below)) for name, below in found.items() if below]
    return str(made)


def _first_sentence(command: click.Command) -> str:
    return " ".join((command.help or "").split()).partition(". ")[0].rstrip(".")


def write_man_pages(folder: Path) -> list[Path]:
    """Write a page for each command, named as `git` names its own: `osgym-settle-calibrate.1`."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for context in list(walk(osgym, "osgym")):
        path = folder / f"{context.command_path.replace(' ', '-')}.1"
        path.write_text(man_page(context))
        written.append(path)
    return written


if __name__ == "__main__":
    print(f"{len(write_man_pages(MAN))} pages in {MAN}: man -l {MAN}/osgym.1")
    sys.exit(0)
