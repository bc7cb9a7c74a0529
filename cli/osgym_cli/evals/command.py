"""`osgym eval run`: run a model on tasks, and show how it did."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from osgym_cli.episode_hosts import Hosts, episode_host_options
from osgym_cli.evals.agents import PROMPT_NAMES, arguments, make_policy
from osgym_cli.evals.folder import RunFolder, RunFolderError
from osgym_cli.evals.jobs import NoTasks, find_task_files, make_jobs
from osgym_cli.evals.rows import Prices
from osgym_cli.evals.run import Plan, run_plan
from osgym_host.logs import escape_controls
from osgym_sdk import ObserveOptions

EPILOG = """
\b
Examples:
  osgym host serve                                    # in another terminal: real desktops
  OPENAI_API_KEY=... osgym eval run tasks --agent openai --model gpt-5.4
  osgym eval run tasks/mousepad --agent anthropic --model claude-sonnet-5 --repeat 4
  osgym eval run tasks --agent chat --prompt uitars-1.5 --model ByteDance-Seed/UI-TARS-1.5-7B \\
      --base-url http://127.0.0.1:8000/v1
  osgym eval run tasks --agent my_policies:make --agent-arg temperature=0.2
  osgym eval run tasks --agent openai --model gpt-5.4 --out out/eval --resume

\b
What it leaves in --out: report.html (open it in a browser), results.jsonl (a line for each episode),
trajectories/ (a folder for each: frames, actions, the model's words), run.json (how it was run).

\b
Exit codes: 0 it ran - 1 the infrastructure spoilt episodes that --resume would run again, or no host agent
answers - 2 wrong usage - 130 Ctrl-C, with a report of what was done until then.
"""


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    width, _, height = value.lower().partition("x")
    if not (width.isdigit() and height.isdigit() and int(width) and int(height)):
        raise click.BadParameter(f"{value!r} is not WIDTHxHEIGHT, such as 1280x720")
    return int(width), int(height)


@click.command(epilog=EPILOG)
@click.argument("tasks", nargs=-1, required=True, metavar="TASKS...")
@click.option(
    "--agent", required=True, metavar="NAME", help="openai, anthropic, gemini, chat, or module:factory."
)
@click.option("--model", help="The model's name, as its provider has it.")
@click.option("--base-url", metavar="URL", help="Of the model's API; by default its provider's.")
@click.option("--prompt", type=click.Choice(PROMPT_NAMES), help="For chat: how the model is told and read.")
@click.option("--agent-arg", "pairs", multiple=True, metavar="NAME=VALUE",
              help="Another argument of the agent, as JSON or text; repeatable.")  # fmt: skip
@episode_host_options
@click.option("--concurrency", type=click.IntRange(1, 4096), default=4, show_default=True, help="At a time.")
@click.option("--max-steps", type=click.IntRange(1), default=50, show_default=True, help="Of an episode.")
@click.option("--repeat", type=click.IntRange(1, 1024), default=1, show_default=True,
              help="Run each task so often; gives pass@k.")  # fmt: skip
@click.option("--only", multiple=True, metavar="TEXT", help="Only tasks with this in their name; repeatable.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/eval"),
              show_default=True, help="Folder for what it leaves.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on in --out: run what is missing, and what we spoilt.")
@click.option("--image-size", callback=_size, metavar="WxH", help="Of screenshots; the agent's by default.")
@click.option("--on-invalid", type=click.Choice(["noop", "error", "end"]), default="noop", show_default=True,
              help="After an output that is no action.")  # fmt: skip
@click.option("--retries", type=click.IntRange(0, 10), default=1, show_default=True,
              help="Tries again of an episode that the infrastructure spoilt.")  # fmt: skip
@click.option("--episode-timeout", "episode_timeout_s", type=float, metavar="SECONDS", help="Of an episode.")
@click.option("--price-in", type=float, metavar="USD", help="For a million tokens read.")
@click.option("--price-cached", type=float, metavar="USD", help="For a million read from the cache.")
@click.option("--price-out", type=float, metavar="USD", help="For a million tokens written.")
def run(
    tasks: tuple[str, ...],
    agent: str,
    model: str | None,
    base_url: str | None,
    prompt: str | None,
    pairs: tuple[str, ...],
    hosts: Hosts,
    only: tuple[str, ...],
    out: Path,
    resume: bool,
    repeat: int,
    image_size: tuple[int, int] | None,
    price_in: float | None,
    price_cached: float | None,
    price_out: float | None,
    **options: Any,
) -> None:
    """Run a model on tasks on real desktops: a table, a report page, and a folder for each episode.

    TASKS are task files, folders of them, or patterns. Keys of providers are read from OPENAI_API_KEY and
    ANTHROPIC_API_KEY. A failure is never a reward of 0: it is counted by whose fault it was.
    """
    try:
        files = find_task_files(tasks)
        jobs = [job for job in make_jobs(files, repeat) if not only or any(o in job.task_name for o in only)]
    except NoTasks as exc:
        raise click.UsageError(escape_controls(str(exc))) from exc
    if not jobs:
        raise click.UsageError("--only: no task has that in its name")
    given = {"model": model, "base_url": base_url, "prompt": prompt}
    given = {name: value for name, value in given.items() if value is not None} | arguments(pairs)
    policy = make_policy(agent, given)
    if image_size is not None:
        options["observe"] = ObserveOptions(size=image_size)
    elif getattr(policy, "observe", None) is not None:
        options["observe"] = policy.observe
    how = {"agent": agent, "model": model, "base_url": base_url, "arguments": given, "repeat": repeat,
           **{name: value for name, value in options.items() if name != "observe"}}  # fmt: skip
    try:
        folder = RunFolder.opened(out, how, resume)
    except RunFolderError as exc:
        raise click.UsageError(str(exc)) from exc
    plan = Plan(hosts, folder.left(jobs), folder, Prices(price_in, price_out, price_cached), options)
    sys.exit(run_plan(plan, policy))
