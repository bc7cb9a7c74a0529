"""`osgym task run`: tasks by their oracles, by nothing, by chance, or by a policy of one's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from osgym_cli.episode_options import Hosts, episode_host_options, episode_options
from osgym_cli.evals.agents import imported
from osgym_cli.evals.folder import RunFolder
from osgym_cli.evals.jobs import Job, select_jobs
from osgym_cli.evals.rows import Prices, read_rows
from osgym_cli.evals.run import Plan, run_plan
from osgym_cli.evals.scripted import NoScript, ScriptedPolicy, marked, reached, script_of
from osgym_host.logs import escape_controls
from osgym_protocol.option_groups import GroupedCommand, option_group

EXIT_OTHER_REWARD = 3
SCRIPTS = ("oracle", "near", "noop", "random")
FORMS = (*SCRIPTS, "a steps.jsonl", "module:name")
EPILOG = """
\b
Examples:
  osgym host serve                                            # in another terminal: real desktops
  osgym task run tasks --policy oracle --expect 1        # each oracle beside its task earns 1
  osgym task run tasks --policy noop --expect 0          # and doing nothing earns 0
  osgym task run my-task.json --policy random --repeat 8
  osgym task run my-task.json --policy out/eval/trajectories/mine/steps.jsonl
  osgym task run tasks/mousepad --policy my_policies:act

\b
Policies:
  oracle, near   FILE.oracle.json beside FILE.json: {"oracle": [[action, …], …], "near": [[action, …], …]}
  noop           says done at once
  random         eight actions by chance, the same for the same --seed
  steps.jsonl    what an episode did that `osgym eval run`, `osgym task run` or `osgym demo` kept
  module:name    a function (obs, task, step) of yours, or an object with act

\b
Exit codes: 0 it ran - 1 the infrastructure spoilt episodes, or no host agent answers - 2 wrong usage -
3 a reward is not what --expect says - 130 Ctrl-C.
"""


PLAYED = option_group("Policy")


@click.command(cls=GroupedCommand, epilog=EPILOG)
@click.argument("tasks", nargs=-1, required=True, metavar="FILE|DIR...")
@PLAYED("--policy", required=True, metavar="NAME", help="oracle, near, noop, random, a steps.jsonl, "
        "or module:name.")  # fmt: skip
@PLAYED("--expect", type=float, metavar="REWARD", help="Reward to expect; exit with 3 if one differs.")
@PLAYED("--seed", type=int, default=0, show_default=True, help="Seed of the random policy.")
@episode_host_options
@episode_options(concurrency=2, max_steps=100, out=Path("out/tasks"))
def run(
    tasks: tuple[str, ...],
    policy: str,
    expect: float | None,
    seed: int,
    hosts: Hosts,
    repeat: int,
    only: tuple[str, ...],
    out: Path,
    resume: bool,
    **options: Any,
) -> None:
    """Run tasks on real desktops without a model: a table, a report page, and a folder for each episode.

    A correct task earns 1 by its oracle, and 0 by doing nothing, by random actions and by its near miss.
    """
    acts, jobs = _policy(policy, marked(select_jobs(tasks, repeat, only)), seed)
    how = {"agent": policy, "model": None, "arguments": {"seed": seed}, "repeat": repeat, **options}
    folder = RunFolder.open(out, how, resume)
    plan = Plan(hosts, folder.left(jobs), folder, Prices(None, None, None), options)
    code = run_plan(plan, acts)
    if code == 0 and expect is not None:
        code = _compare(folder, expect)
    sys.exit(code)


def _policy(policy: str, jobs: list[Job], seed: int) -> tuple[Any, list[Job]]:
    """Return the policy, and the jobs with the rights that it needs.

    Raises:
        click.UsageError: A task has no oracle, or there is no such file or function.
    """
    if policy not in SCRIPTS and ":" in policy and not Path(policy).exists():
        return imported(policy, "--policy", FORMS), jobs
    if policy not in SCRIPTS and not Path(policy).is_file():
        raise click.UsageError(f"--policy must be one of {', '.join(FORMS)}, not {policy[:60]!r}")
    try:
        scripts = [script_of(policy, job, seed) for job in jobs]
    except NoScript as exc:
        raise click.UsageError(f"--policy {policy}: {escape_controls(str(exc))}") from exc
    return ScriptedPolicy(scripts), reached(jobs, scripts)


def _compare(folder: RunFolder, expect: float) -> int:
    """Print the episodes that earned another reward; return the exit code."""
    wrong = [row for row in read_rows(folder.results) if row.reward != expect]
    for row in wrong:
        earned = "no reward" if row.reward is None else f"{row.reward:g}"
        click.echo(f"osgym: {escape_controls(row.task)} ({row.repeat}): {earned}, not {expect:g}", err=True)
    return EXIT_OTHER_REWARD if wrong else 0
