"""`osgym eval run`: run a model on tasks, and show how it did."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from osgym_cli.episode_options import EPISODES, Hosts, episode_host_options, episode_options
from osgym_cli.evals.agents import PROMPT_NAMES, arguments, make_policy
from osgym_cli.evals.folder import RunFolder
from osgym_cli.evals.jobs import select_jobs, share_certified
from osgym_cli.evals.rows import Prices
from osgym_cli.evals.run import Plan, run_plan
from osgym_protocol.option_groups import GroupedCommand, option_group
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


MODEL = option_group("Model")
PRICES = option_group("Prices of a million tokens")


@click.command(cls=GroupedCommand, epilog=EPILOG)
@click.argument("tasks", nargs=-1, required=True, metavar="TASKS...")
@MODEL("--agent", required=True, metavar="NAME", help="openai, anthropic, gemini, chat, or module:factory.")
@MODEL("--model", help="Name of the model at its provider.")
@MODEL("--base-url", metavar="URL", help="Address of the model's API; by default its provider's.")
@MODEL("--prompt", type=click.Choice(PROMPT_NAMES), help="Prompt and grammar of the model, for chat.")
@MODEL("--agent-arg", "pairs", multiple=True, metavar="NAME=VALUE",
       help="Further argument of the agent, as JSON or text; repeatable.")  # fmt: skip
@MODEL("--image-size", callback=_size, metavar="WxH", help="Size of screenshots; by default the agent's.")
@MODEL("--on-invalid", type=click.Choice(["noop", "error", "end"]), default="noop", show_default=True,
       help="Reaction to an output that is no action.")  # fmt: skip
@episode_host_options
@episode_options(concurrency=4, max_steps=50, out=Path("out/eval"))
@EPISODES("--episode-timeout", "episode_timeout_s", type=float, metavar="SECONDS",
          help="Deadline of an episode.")  # fmt: skip
@EPISODES("--certificates", type=click.Path(path_type=Path, exists=True, dir_okay=False),
          help="Record of `osgym task certify`: the report says how many tasks it certifies.")  # fmt: skip
@PRICES("--price-in", type=float, metavar="USD", help="Price of tokens read.")
@PRICES("--price-cached", type=float, metavar="USD", help="Price of tokens read from the cache.")
@PRICES("--price-out", type=float, metavar="USD", help="Price of tokens written.")
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
    certificates: Path | None,
    **options: Any,
) -> None:
    """Run a model on tasks on real desktops: a table, a report page, and a folder for each episode.

    TASKS are task files, folders of them, or patterns. Keys of providers are read from OPENAI_API_KEY and
    ANTHROPIC_API_KEY. A failure is never a reward of 0: it is counted by who caused it.
    """
    jobs = select_jobs(tasks, repeat, only)
    given = {"model": model, "base_url": base_url, "prompt": prompt}
    given = {name: value for name, value in given.items() if value is not None} | arguments(pairs)
    policy = make_policy(agent, given)
    if image_size is not None:
        options["observe"] = ObserveOptions(size=image_size)
    elif getattr(policy, "observe", None) is not None:
        options["observe"] = policy.observe
    how = {"agent": agent, "model": model, "base_url": base_url, "arguments": given, "repeat": repeat,
           **{name: value for name, value in options.items() if name != "observe"}}  # fmt: skip
    if certificates is not None:
        how["certified"] = share_certified([job.task for job in jobs if job.repeat == 1], certificates)
    folder = RunFolder.open(out, how, resume)
    plan = Plan(hosts, folder.left(jobs), folder, Prices(price_in, price_out, price_cached), options)
    sys.exit(run_plan(plan, policy))
