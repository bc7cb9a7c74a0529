"""Commands that save the oracles' work: `browse` as a page, `record` as a data set."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from osgym_sdk import AsyncClient, Result
from osgym_tasks.browse import Shown, browse_page, shown
from osgym_tasks.cli import options
from osgym_tasks.cli.options import EXIT_WRONG, made, on_desktops
from osgym_tasks.dataset import Recorded, record_oracles
from osgym_tasks.family import Instance
from osgym_tasks.registry import FAMILIES


@click.command()
@click.argument("families", nargs=-1, metavar="[FAMILY]...")
@click.option("--level", type=click.IntRange(1, 5), default=3, show_default=True, help="Level.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed.")
@options.vary
@options.host
@options.at_once
@options.folder
def browse(families: Sequence[str], level: int, seed: int, vary: tuple[str, ...], host: str | None,
           at_once: int, out: Path) -> None:  # fmt: skip
    """Write a page with an instance of each family: instruction, first and last screen, oracle's steps.

    \b
    Examples:
      osgym task family browse --level 3 --out out/browse      # all families; then open out/browse/index.html
    """
    chosen = made(tuple(families) or tuple(FAMILIES), False, 1, seed, [level], vary)

    async def run(client: AsyncClient, image: str) -> list[Shown]:
        entries = await shown(client, chosen, out, at_once)
        (out / "index.html").write_text(browse_page(entries, image), encoding="utf-8")
        return entries

    entries = on_desktops(host, out, run)
    for one in entries:
        if one.reward != 1.0:
            click.echo(f"{one.instance.name}: {one.failure or f'reward {one.reward}'}", err=True)
    click.echo(out / "index.html")
    sys.exit(EXIT_WRONG if any(one.reward != 1.0 for one in entries) else 0)


@click.command(name="record")
@options.instances
@options.host
@options.at_once
@options.folder
@click.option("--single", is_flag=True, help="One action per step, for policies asked after each.")
def record_(families: Sequence[str], every: bool, seeds: int, first_seed: int, levels: list[int],
            single: bool, vary: tuple[str, ...], host: str | None, at_once: int,
            out: Path) -> None:  # fmt: skip
    """Record what oracles do as a data set, to fine-tune a policy on.

    Every frame is final, and every model's grammar can express the actions. `osgym data` shows and exports
    the data set; osgym_sdk.data reads it. Needs pyarrow (`pip install 'osgym-sdk[data]'`).

    \b
    Examples:
      osgym task family record --all --seeds 25 --at-once 8 --single --out out/oracles
      osgym data export out/oracles out/chat --form chat --grammar uitars --min-reward 1
    """
    chosen = made(families, every, seeds, first_seed, levels, vary)
    with click.progressbar(length=len(chosen), file=sys.stderr, show_pos=True) as bar:

        def ended(instance: Instance, result: Result) -> None:
            bar.update(1)
            if result.reward != 1.0:
                why = f"reward {result.reward}" if result.failure is None else result.failure.message
                click.echo(f"\n{instance.name}: {why}", err=True)

        async def run(client: AsyncClient, image: str) -> Recorded:
            return await record_oracles(
                client, chosen, out, concurrency=at_once, single=single, on_result=ended
            )

        try:
            found = on_desktops(host, out, run)
        except ImportError as error:
            raise click.ClickException(str(error)) from error
    per_step = found.folder_bytes / found.steps if found.steps else 0
    click.echo(
        f"{found.episodes} episodes, {found.solved} of them solved; {found.steps} steps, "
        f"{found.actions} actions; "
        f"{found.folder_bytes / 1e6:.1f} MB in {out}, {per_step / 1000:.1f} kB a step"
    )
    sys.exit(0 if found.solved == found.episodes else EXIT_WRONG)
