"""Commands that run trials: `verify` and `baseline`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from osgym_tasks.baseline import SUSPICIOUS, Chance, baseline_of, earned
from osgym_tasks.cli import options
from osgym_tasks.cli.options import EXIT_INFRASTRUCTURE, EXIT_WRONG, made, run_trials
from osgym_tasks.record import Outcome, summary
from osgym_tasks.verify import in_turns, oracle_of


@click.command(name="verify")
@options.instances
@options.host
@options.at_once
@options.kept_in
@click.option("--table", type=click.Path(path_type=Path, dir_okay=False), help="File for the table, as JSON.")
@click.option("--oracle-only", is_flag=True,
              help="Run only the oracle, once: checks that a proof from elsewhere holds here.")  # fmt: skip
def verify_(
    families: Sequence[str],
    every: bool,
    seeds: int,
    first_seed: int,
    levels: list[int],
    vary: tuple[str, ...],
    host: str | None,
    at_once: int,
    out: Path,
    table: Path | None,
    oracle_only: bool,
) -> None:
    """Prove families: the oracle, twice, and other right ways earn 1.0; nothing and near misses earn 0.0.

    What was proved holds for the golden image of the host, whose digest the record has. The same command
    goes on where it was broken off.

    \b
    Examples:
      osgym host serve --set image=small &
      osgym task family verify edit.lines term.count --seeds 3
      osgym task family verify --all --seeds 25 --at-once 8
      osgym task family verify term.count --oracle-only --host http://127.0.0.1:21000   # a host of `qemu`

    \b
    Exit codes: 0 every reward is right - 1 the infrastructure spoilt episodes, and the same command runs
    them again - 2 wrong usage - 3 an episode earned a wrong reward.
    """
    chosen = made(families, every, seeds, first_seed, levels, vary)
    trials = [oracle_of(one) for one in chosen] if oracle_only else in_turns(chosen, at_once)
    began = time.monotonic()
    outcomes = run_trials(trials, host, at_once, out)
    took_s, desktops_s = time.monotonic() - began, sum(one.duration_s for one in outcomes)
    click.echo(
        f"{took_s:.0f} s; the record's {len(outcomes)} episodes took {desktops_s:.0f} s of desktops", err=True
    )
    sys.exit(_report(outcomes, table, "RIGHT" if oracle_only else "PROVED"))


def _report(outcomes: list[Outcome], table: Path | None, heading: str) -> int:
    rows = summary(outcomes)
    width = max([6, *map(len, rows)])
    click.echo(f"{'FAMILY':{width}}  {heading:>6}  EPISODES  WRONG  ORACLE: STEPS  SECONDS")
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


@click.command()
@options.instances
@click.option("--policy", type=click.Choice([one.value for one in Chance]), required=True)
@click.option("--actions", type=click.IntRange(1, 2500), default=100, show_default=True,
              help="Number of actions in an episode, for random and keyboard.")  # fmt: skip
@options.host
@options.at_once
@options.kept_in
def baseline(
    families: Sequence[str],
    every: bool,
    seeds: int,
    first_seed: int,
    levels: list[int],
    vary: tuple[str, ...],
    policy: str,
    actions: int,
    host: str | None,
    at_once: int,
    out: Path,
) -> None:
    """Measure what policies without a model earn: it must be next to nothing.

    random clicks, scrolls, drags, types and presses keys; keyboard does the last two only. The same
    instance gets the same actions in each run.

    \b
    Examples:
      osgym task family baseline --all --policy random --actions 200 --seeds 5

    \b
    Exit codes: 0 no family pays - 1 the infrastructure spoilt episodes - 2 wrong usage - 3 a family's mean
    reward is above 0.05.
    """
    chosen = made(families, every, seeds, first_seed, levels, vary)
    trials = [baseline_of(one, Chance(policy), actions) for one in chosen]
    outcomes = run_trials(trials, host, at_once, out, settle="fast")
    rows = earned(outcomes)
    width = max([6, *(len(row.family) for row in rows)])
    click.echo(f"{'FAMILY':{width}}  {'POLICY':14}  EPISODES   MEAN  95 % INTERVAL")
    for row in rows:
        flag = f"  above {SUSPICIOUS}" if row.is_suspicious else ""
        interval = f"{row.low:.3f} to {row.high:.3f}"
        click.echo(
            f"{row.family:{width}}  {row.policy:14}  {row.episodes:8}  {row.mean:5.3f}  {interval}{flag}"
        )
    if any(one.reward is None for one in outcomes):
        sys.exit(EXIT_INFRASTRUCTURE)
    sys.exit(EXIT_WRONG if any(row.is_suspicious for row in rows) else 0)
