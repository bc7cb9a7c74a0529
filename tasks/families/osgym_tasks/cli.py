"""`osgym tasks`: families of tasks listed, written as files, and proved on real desktops."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from osgym_sdk import AsyncClient, HostState, OSGymError
from osgym_tasks.family import LEVELS, Instance
from osgym_tasks.registry import FAMILIES, UnknownFamily, family_named
from osgym_tasks.verify import Outcome, Trial, line_of, read_record, summary, trials_of, verify

EXIT_INFRASTRUCTURE, EXIT_WRONG = 1, 3


def _levels_of(context: click.Context, parameter: click.Parameter, value: str) -> list[int]:
    """Read `3`, `1-5` or `1,4`."""
    found: set[int] = set()
    for part in value.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or max(len(first), len(last)) > 3:
            raise click.BadParameter(f"{value!r} is not levels: 3, 1-5 or 1,4")
        found |= set(range(int(first), int(last or first) + 1))
    if not found or not found <= set(LEVELS):
        raise click.BadParameter(f"{value!r}: levels are {LEVELS[0]} to {LEVELS[-1]}")
    return sorted(found)


_families = click.argument("families", nargs=-1, metavar="[FAMILY]...")
_every = click.option("--all", "every", is_flag=True, help="All families.")
_seeds = click.option("--seeds", type=click.IntRange(1), default=1, show_default=True,
                      help="How many of each level, from seed 0 on.")  # fmt: skip
_levels = click.option(
    "--levels", callback=_levels_of, default="1-5", show_default=True, help="3, 1-5 or 1,4."
)


@click.group(
    name="tasks",
    short_help="Families of tasks: list them, write files, prove them.",
    epilog="\b\nExamples:\n"
    "  osgym tasks list\n"
    "  osgym tasks write edit.lines --seeds 4 --out out/families\n"
    "  osgym tasks verify edit.lines\n",
)
def tasks() -> None:
    """Families of tasks, each made by seed and level, with ways to act that prove it."""


@tasks.command(
    name="list",
    epilog="\b\nExamples:\n  osgym tasks list\n",
)
def list_() -> None:
    """List the families, the image each needs, and its applications."""
    width = max(map(len, FAMILIES))
    for family in FAMILIES.values():
        click.echo(f"{family.name:{width}}  v{family.version}  {family.flavor:5}  {', '.join(family.apps)}")


@tasks.command()
@_families
@_every
@_seeds
@_levels
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True)
def write(families: Sequence[str], every: bool, seeds: int, levels: list[int], out: Path) -> None:
    """Write task files with their oracles, which `osgym task run` plays.

    \b
    Examples:
      osgym tasks write edit.lines --seeds 4 --out out/families
    """
    for instance in _made(families, every, seeds, levels):
        click.echo(instance.write(out))


@tasks.command(name="verify")
@_families
@_every
@_seeds
@_levels
@click.option("--host", help="The host agent; default OSGYM_HOSTS or http://127.0.0.1:20000 (`osgym serve`).")
@click.option("--at-once", type=click.IntRange(1), default=4, show_default=True, help="Desktops in use.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("out/tasks.jsonl"),
              show_default=True, help="The record; what it has is not run again.")  # fmt: skip
@click.option("--table", type=click.Path(path_type=Path, dir_okay=False), help="The table as JSON.")
def verify_(
    families: Sequence[str],
    every: bool,
    seeds: int,
    levels: list[int],
    host: str | None,
    at_once: int,
    out: Path,
    table: Path | None,
) -> None:
    """Prove families: the oracle earns 1.0, twice; nothing and every near miss earn 0.0.

    What was proved holds for the golden image of the host, whose digest the record has. The same command
    goes on where it was broken off.

    \b
    Examples:
      osgym serve --set image=small &
      osgym tasks verify edit.lines term.count --seeds 3
      osgym tasks verify --all --seeds 25 --at-once 8

    \b
    Exit codes: 0 all is as it must be - 1 the infrastructure spoilt episodes, the same command runs them
    again - 2 wrong usage - 3 an episode earned another reward than it must.
    """
    trials = [trial for instance in _made(families, every, seeds, levels) for trial in trials_of(instance)]
    try:
        outcomes = asyncio.run(_verify(trials, host, at_once, out))
    except OSGymError as error:
        raise click.ClickException(f"{error} (is there an `osgym serve`?)") from error
    except OSError as error:
        raise click.ClickException(f"{out}: {error.strerror}") from error
    sys.exit(_report(outcomes, table))


def _made(families: Sequence[str], every: bool, seeds: int, levels: list[int]) -> list[Instance]:
    if every == bool(families):
        raise click.UsageError("name families (`osgym tasks list`), or say --all")
    try:
        chosen = [family_named(name) for name in families or FAMILIES]
    except UnknownFamily as error:
        raise click.UsageError(str(error)) from error
    return [family.make(seed, level) for family in chosen for level in levels for seed in range(seeds)]


async def _verify(trials: list[Trial], host: str | None, at_once: int, record: Path) -> list[Outcome]:
    async with AsyncClient(host) as client:
        image = await _image_of(client)
        wanted = {trial.key for trial in trials}
        outcomes = [one for one in read_record(record, image) if (one.instance, one.way) in wanted]
        known = {(one.instance, one.way) for one in outcomes}
        left = [trial for trial in trials if trial.key not in known]
        click.echo(f"image {image[:12]}: {len(left)} of {len(trials)} episodes to run", err=True)
        record.parent.mkdir(parents=True, exist_ok=True)
        with (
            record.open("a", encoding="utf-8") as lines,
            click.progressbar(length=len(left), file=sys.stderr, show_pos=True) as bar,
        ):
            async for one in verify(client, left, image=image, concurrency=at_once):
                lines.write(line_of(one))
                lines.flush()
                outcomes.append(one)
                bar.update(1)
                if not one.is_right:
                    why = one.failure or f"reward {one.reward}, not {one.wanted}"
                    click.echo(f"\n{one.instance}, {one.way}: {why}", err=True)
    return outcomes


async def _image_of(client: AsyncClient) -> str:
    """Return the digest of the golden image of all hosts.

    Raises:
        ClickException: they have several, or one does not say.
    """
    found: set[str] = set()
    for url, state in (await client.host_states()).items():
        if not isinstance(state, HostState):
            raise state
        if state.image is None or not state.image.digest:
            raise click.ClickException(f"{url} does not say which golden image it has")
        found.add(state.image.digest)
    if len(found) != 1:
        raise click.ClickException(f"the hosts have {len(found)} images; prove on one at a time")
    return found.pop()


def _report(outcomes: list[Outcome], table: Path | None) -> int:
    rows = summary(outcomes)
    width = max([6, *map(len, rows)])
    click.echo(f"{'FAMILY':{width}}  PROVED  EPISODES  WRONG  ORACLE: STEPS  SECONDS")
    for family, row in rows.items():
        proved = f"{row['proved']}/{row['instances']}"
        steps, seconds = row["oracle_steps_median"], row["oracle_duration_s_median"]
        said = f"{steps or 0:13.1f}  {seconds or 0:7.1f}"
        click.echo(f"{family:{width}}  {proved:>6}  {row['episodes']:8}  {len(row['wrong']):5}  {said}")
    if table is not None:
        images = sorted({one.image for one in outcomes})
        table.write_text(json.dumps({"images": images, "families": rows}, indent=1) + "\n", encoding="utf-8")
    if any(one.reward is None for one in outcomes):
        return EXIT_INFRASTRUCTURE
    return 0 if all(one.is_right for one in outcomes) else EXIT_WRONG
