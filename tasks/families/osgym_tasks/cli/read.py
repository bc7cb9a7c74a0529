"""Commands that need no desktop: `list`, `write`, `table`, `report`, `count`, `card`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from osgym_tasks.card import card_markdown
from osgym_tasks.cli import options
from osgym_tasks.cli.options import EXIT_WRONG, made, named_families
from osgym_tasks.contents import count
from osgym_tasks.difficulty import Difficulty, as_json, difficulties, disorder
from osgym_tasks.family import LANGUAGES
from osgym_tasks.registry import FAMILIES
from osgym_tasks.report import report_page
from osgym_tasks.splits import is_stored, stored_text


@click.command(name="ls", epilog="\b\nExamples:\n  osgym task family ls\n")
def list_() -> None:
    """List the families, the image each needs, and its applications."""
    width = max(map(len, FAMILIES))
    for family in FAMILIES.values():
        click.echo(f"{family.name:{width}}  v{family.version}  {family.flavor:5}  {', '.join(family.apps)}")


@click.command()
@options.instances
@click.option(
    "--language",
    type=click.Choice(LANGUAGES),
    default="en",
    show_default=True,
    help="Language of the instructions; with --all, the families that have it are written.",
)
@options.folder
def write(families: Sequence[str], every: bool, seeds: int, first_seed: int, levels: list[int],
          vary: tuple[str, ...], language: str, out: Path) -> None:  # fmt: skip
    """Write task files with their oracles, which `osgym task run` plays.

    \b
    Examples:
      osgym task family write edit.lines --seeds 4 --out out/families
      osgym task family write --all --language de --out out/german
    """
    for instance in made(families, every, seeds, first_seed, levels, vary, language):
        click.echo(instance.write(out))


@click.command()
@options.record
@options.image
@click.option("--json", "as_data", is_flag=True, help="Print JSON.")
@click.option(
    "--check", is_flag=True, help="Exit with 3 if a level costs the oracle less than the level below."
)
def table(record: Path, image: str | None, as_data: bool, check: bool) -> None:
    """Say how hard each level of each family is, measured by a record.

    Of the oracle medians over the instances that it solved: steps, actions, typed characters, seconds; mean
    rewards of the baselines that the record has.

    \b
    Examples:
      osgym task family table out/tasks.jsonl --check
    """
    rows = difficulties(options.read(record, image))
    falls = disorder(rows)
    if as_data:
        said = {"levels": as_json(rows), "disorder": [list(one) for one in falls]}
        click.echo(json.dumps(said, indent=1))
    else:
        _print(rows)
    for family, low, high in falls:
        click.echo(f"{family}: level {high} costs the oracle less than level {low}", err=True)
    sys.exit(EXIT_WRONG if check and falls else 0)


def _print(rows: list[Difficulty]) -> None:
    width = max([6, *(len(row.family) for row in rows)])
    policies = sorted({policy for row in rows for policy in row.chance})
    heads = [policy.upper() for policy in policies]
    chance_heads = "".join(f"  {head:>{max(6, len(head))}}" for head in heads)
    click.echo(f"{'FAMILY':{width}}  LEVEL  INSTANCES  STEPS  ACTIONS  CHARACTERS  SECONDS{chance_heads}")
    for row in rows:
        chances = (row.chance.get(policy) for policy in policies)
        means = ("–" if one is None else f"{one:.3f}" for one in chances)
        said = "".join(f"  {one:>{max(6, len(head))}}" for one, head in zip(means, heads, strict=True))
        measured = ((row.steps, 5), (row.actions, 7), (row.characters, 10), (row.duration_s, 7))
        figures = "  ".join(f"{_said(value):>{size}}" for value, size in measured)
        click.echo(f"{row.family:{width}}  {row.level:5}  {row.instances:9}  {figures}{said}")


def _said(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


@click.command()
@options.record
@options.image
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="Page to write.")
def report(record: Path, image: str | None, out: Path) -> None:
    """Write a record as one page: what was proved, what it took, what chance earned, what failed and why.

    \b
    Examples:
      osgym task family report out/tasks.jsonl --out out/tasks.html
    """
    _write(report_page(options.read(record, image)), out)
    click.echo(out)


@click.command(name="count")
@click.argument("families", nargs=-1, metavar="[FAMILY]...")
@click.option("--all", "every", is_flag=True, help="All families, which takes minutes.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="JSON file to write; default: stdout."
)
def count_(families: Sequence[str], every: bool, out: Path | None) -> None:
    """Count the different tasks of each level, by which splits are made.

    Without a name, only families are counted whose version has no stored counts.

    \b
    Examples:
      osgym task family count --out tasks/families/osgym_tasks/distinct.jsonl
    """
    stale = [name for name, family in FAMILIES.items() if not is_stored(family)]
    chosen = named_families(families, every) if families or every else []
    text = stored_text({name: count(FAMILIES[name]) for name in {*stale, *(one.name for one in chosen)}})
    _write(text, out)


@click.command(epilog="\b\nExamples:\n  osgym task family card --out out/card.md\n")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Markdown file to write; default: stdout."
)
def card(out: Path | None) -> None:
    """Count families, applications, wordings and near misses, as Markdown."""
    _write(card_markdown(), out)


def _write(text: str, out: Path | None) -> None:
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{out}: {error.strerror}") from error
