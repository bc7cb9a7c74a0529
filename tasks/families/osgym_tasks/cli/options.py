"""Options that the commands share: instances, desktops, and the record to continue."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from osgym_sdk import AsyncClient, OSGymError
from osgym_tasks.family import LEVELS, Family, Instance
from osgym_tasks.proved import ImageUnknown, one_image
from osgym_tasks.record import Outcome, line_of, read_outcomes, read_record
from osgym_tasks.registry import FAMILIES, UnknownFamily, family_named
from osgym_tasks.variation import VARIATIONS, checked
from osgym_tasks.verify import Settle, Trial, verify

EXIT_INFRASTRUCTURE, EXIT_WRONG = 1, 3
T = TypeVar("T")


def _levels_of(context: click.Context, parameter: click.Parameter, value: str) -> list[int]:
    """Read `3`, `1-5` or `1,4`."""
    found: set[int] = set()
    for part in value.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or max(len(first), len(last)) > 3:
            raise click.BadParameter(f"{value!r} is not a list of levels; write 3, 1-5 or 1,4")
        found |= set(range(int(first), int(last or first) + 1))
    if not found or not found <= set(LEVELS):
        raise click.BadParameter(f"{value!r}: levels must be from {LEVELS[0]} to {LEVELS[-1]}")
    return sorted(found)


def _variations_of(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """Read `none`, `all` or names by comma."""
    if value in ("none", "all"):
        return VARIATIONS if value == "all" else ()
    try:
        return checked(value.split(","))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


vary = click.option("--vary", callback=_variations_of, default="none", show_default=True, metavar="NAMES",
                    help=f"all, or names separated by commas: {', '.join(VARIATIONS)}.")  # fmt: skip
_INSTANCES = (
    click.argument("families", nargs=-1, metavar="[FAMILY]..."),
    click.option("--all", "every", is_flag=True, help="All families."),
    click.option("--seeds", type=click.IntRange(1), default=1, show_default=True,
                 help="Number of seeds of each level, from --first-seed on."),
    click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True, help="First seed."),
    click.option("--levels", callback=_levels_of, default="1-5", show_default=True,
                 help="Levels, such as 3, 1-5 or 1,4."),
    vary,
)  # fmt: skip
host = click.option(
    "--host", help="The host agent; default OSGYM_HOSTS or http://127.0.0.1:20000 (`osgym host serve`)."
)
at_once = click.option("--at-once", type=click.IntRange(1), default=4, show_default=True,
                       help="Number of desktops in use; episodes wait more than they compute.")  # fmt: skip
kept_in = click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    show_default=True,
    default=Path("out/tasks.jsonl"),
    help="Record file; trials that it already has are not run again.",
)
folder = click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True)
record = click.argument("record", type=click.Path(path_type=Path, exists=True, dir_okay=False))
image = click.option("--image", help="Digest of the golden image; default: that of the last line.")


def instances(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose instances: `families`, `every`, `seeds`, `first_seed`, `levels`, `vary`."""
    for option in reversed(_INSTANCES):
        command = option(command)
    return command


def made(families: Sequence[str], every: bool, seeds: int, first_seed: int, levels: list[int],
         vary: tuple[str, ...], language: str = "en") -> list[Instance]:  # fmt: skip
    """Return the chosen instances.

    Raises:
        UsageError: No family is named, an unknown one, or one without wordings in the language.
    """
    chosen = named_families(families, every)
    lacking = [family for family in chosen if language not in family.languages]
    if lacking and not every:
        raise click.UsageError(f"{lacking[0].name} has no wordings in {language!r}")
    return [
        family.make(seed, level, vary=vary, language=language)
        for family in chosen
        if family not in lacking
        for level in levels
        for seed in range(first_seed, first_seed + seeds)
    ]


def named_families(names: Sequence[str], every: bool) -> list[Family]:
    """Return the families of these names, or every family.

    Raises:
        UsageError: No family is named, or an unknown one.
    """
    if every == bool(names):
        raise click.UsageError("name families (`osgym task family ls` lists them), or give --all")
    try:
        return [family_named(name) for name in names or FAMILIES]
    except UnknownFamily as error:
        raise click.UsageError(str(error)) from error


def on_desktops(host: str | None, out: Path, work: Callable[[AsyncClient, str], Coroutine[Any, Any, T]]) -> T:
    """Run a function of a client and the digest of its hosts' golden image.

    Args:
        out: Output file, named in the error when it cannot be written.

    Raises:
        ClickException: There is no host, there are several images, or the file cannot be written.
    """

    async def run() -> T:
        async with AsyncClient(host) as client:
            return await work(client, one_image(await client.host_states()))

    try:
        return asyncio.run(run())
    except (OSGymError, ImageUnknown) as error:
        raise click.ClickException(
            f"{error} (start a host agent with `osgym host serve`, or name one with --host)"
        ) from error
    except OSError as error:
        raise click.ClickException(f"{out}: {error.strerror or error}") from error


def run_trials(
    trials: list[Trial], host: str | None, at_once: int, record: Path, settle: Settle | None = None
) -> list[Outcome]:
    """Run the trials that the record lacks, and add them; return the outcomes of all."""

    async def run(client: AsyncClient, image: str) -> list[Outcome]:
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
            async for one in verify(client, left, image=image, concurrency=at_once, settle=settle):
                lines.write(line_of(one))
                lines.flush()
                outcomes.append(one)
                bar.update(1)
                if one.reward is None or not (one.is_right or one.is_baseline):
                    why = one.failure or f"reward {one.reward}, not {one.wanted}"
                    click.echo(f"\n{one.instance}, {one.way}: {why}", err=True)
        return outcomes

    return on_desktops(host, record, run)


def read(record: Path, image: str | None) -> list[Outcome]:
    """Return the record's outcomes of one image, for the current versions of the families.

    Raises:
        ClickException: It cannot be read, or has none.
    """
    try:
        found = [one for one in read_outcomes(record, image) if one.is_current]
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{record}: {error}") from error
    if not found:
        raise click.ClickException(
            f"{record}: the record has no outcomes of this image and of the families' current versions"
        )
    return found
