"""`osgym eval`: run a model on tasks, and show how it did."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from osgym_host.cli.eval_agent import PROMPT_NAMES, arguments, make_policy
from osgym_host.cli.interrupts import EXIT_INTERRUPTED, interrupt_once
from osgym_host.evals.folder import RunFolder, RunFolderError
from osgym_host.evals.jobs import Job, NoTasks, find_task_files, make_jobs
from osgym_host.evals.recording import FolderRecorder
from osgym_host.evals.report import write_report
from osgym_host.evals.rows import Prices, Row, row_of
from osgym_host.evals.statistics import summarize
from osgym_host.evals.table import summary_lines, table
from osgym_host.logs import escape_controls
from osgym_sdk import AsyncClient, ConfigError, ObserveOptions, OSGymError, Progress

EXIT_INFRASTRUCTURE = 1
WIDTH = 140
"""Columns of the table where there is no terminal."""
EPILOG = """
\b
Examples:
  osgym serve                                    # in another terminal: real desktops
  OPENAI_API_KEY=... osgym eval tasks --agent openai --model gpt-5.4
  osgym eval tasks/mousepad --agent anthropic --model claude-sonnet-5 --repeat 4
  osgym eval tasks --agent chat --prompt uitars-1.5 --model ByteDance-Seed/UI-TARS-1.5-7B \\
      --base-url http://127.0.0.1:8000/v1
  osgym eval tasks --agent my_policies:make --agent-arg temperature=0.2
  osgym eval tasks --agent openai --model gpt-5.4 --out out/eval --resume

\b
What it leaves in --out: report.html (open it in a browser), results.jsonl (a line for each episode),
trajectories/ (a folder for each: frames, actions, the model's words), run.json (how it was run).

\b
Exit codes: 0 it ran - 1 the infrastructure spoilt episodes that --resume would run again, or no host agent
answers - 2 wrong usage - 130 Ctrl-C, with a report of what was done until then.
"""


@dataclass
class _View:
    """What is shown while it runs."""

    rows: list[Row]
    progress: Progress | None = None
    line: Callable[[Row], None] = field(default=lambda row: None)

    def __rich__(self) -> Group:
        return Group(table(self.rows), Text(str(self.progress or "starting …"), style="dim"))


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the episodes are run."""

    hosts: str | None
    fleet: Path | None
    jobs: list[Job]
    folder: RunFolder
    prices: Prices
    run: dict[str, Any]
    """What `AsyncClient.run` is given."""


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
@click.option("--host", "hosts", metavar="URLS", help="Host agents; default OSGYM_HOSTS or this machine.")
@click.option("--fleet", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="A file of `osgym fleet export` instead.")  # fmt: skip
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
def evaluate(
    tasks: tuple[str, ...],
    agent: str,
    model: str | None,
    base_url: str | None,
    prompt: str | None,
    pairs: tuple[str, ...],
    hosts: str | None,
    fleet: Path | None,
    only: tuple[str, ...],
    out: Path,
    resume: bool,
    repeat: int,
    image_size: tuple[int, int] | None,
    price_in: float | None,
    price_cached: float | None,
    price_out: float | None,
    **run: Any,
) -> None:
    """Run a model on tasks on real desktops: a table, a report page, and a folder for each episode.

    TASKS are task files, folders of them, or patterns. Keys of providers are read from OPENAI_API_KEY and
    ANTHROPIC_API_KEY. A failure is never a reward of 0: it is counted by whose fault it was.
    """
    if hosts is not None and fleet is not None:
        raise click.UsageError("--host or --fleet, not both")
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
        run["observe"] = ObserveOptions(size=image_size)
    elif getattr(policy, "observe", None) is not None:
        run["observe"] = policy.observe
    how = {"agent": agent, "model": model, "base_url": base_url, "arguments": given, "repeat": repeat,
           **{name: value for name, value in run.items() if name != "observe"}}  # fmt: skip
    try:
        folder = RunFolder.opened(out, how, resume)
    except RunFolderError as exc:
        raise click.UsageError(str(exc)) from exc
    plan = _Plan(hosts, fleet, folder.left(jobs), folder, Prices(price_in, price_out, price_cached), run)
    sys.exit(_evaluate(plan, policy))


def _evaluate(plan: _Plan, policy: Any) -> int:
    """Run what is left, show it, write the report; return the exit code."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    view = _View(list(plan.folder.rows))
    interrupted, wrong = False, ""
    try:
        with _shown(console, view, len(plan.jobs)):
            asyncio.run(_run(plan, policy, view))
    except (KeyboardInterrupt, asyncio.CancelledError):
        interrupted = True
    except OSError as exc:
        wrong = f"cannot write {plan.folder.path}: {exc}"
    except ConfigError as exc:
        raise click.UsageError(str(exc)) from exc
    rows = view.rows
    plan.folder.finish(interrupted=interrupted, usage=getattr(policy, "usage", None))
    summary = summarize(rows)
    if rows:
        console.print(table(rows))
        console.print("\n" + "\n".join(summary_lines(summary, rows)), highlight=False, markup=False)
        report = write_report(plan.folder.path, plan.folder.how, rows, summary)
        console.print(
            f"\nReport:       {report}\nTrajectories: {plan.folder.trajectories}",
            highlight=False,
            markup=False,
        )
    if interrupted:
        console.print("interrupted: --resume goes on; no desktop is left leased", markup=False)
        return EXIT_INTERRUPTED
    if wrong:
        click.echo(f"osgym: {wrong}", err=True)
    spoilt = sum(not row.is_finished for row in rows)
    if spoilt:
        click.echo(
            f"osgym: {spoilt} episodes were spoilt by the infrastructure; --resume runs them again", err=True
        )
    return EXIT_INFRASTRUCTURE if spoilt or wrong else 0


@contextlib.contextmanager
def _shown(console: Console, view: _View, total: int) -> Iterator[None]:
    """A live table on a terminal, a line for each finished episode elsewhere."""
    if console.is_terminal:
        with Live(view, console=console, refresh_per_second=4, transient=True):
            yield
        return
    click.echo(f"{total} episodes to run")

    def line(row: Row) -> None:
        what = (
            f"{row.failure_class}: {row.failure_message[:200]}"
            if row.reward is None
            else f"reward {row.reward:g}"
        )
        click.echo(
            escape_controls(f"{row.task} ({row.repeat}): {what}, {row.steps} steps, {row.duration_s:.0f} s")
        )

    view.line = line
    yield


async def _run(plan: _Plan, policy: Any, view: _View) -> None:
    """Run every job that is left; each row is on disk before the next is looked at."""
    interrupt_once("stopping: giving the desktops back …")
    recorder = FolderRecorder(plan.folder.trajectories, plan.jobs)
    client = AsyncClient(plan.hosts) if plan.fleet is None else AsyncClient.from_fleet(plan.fleet)
    try:
        async with client:
            await _check_service(client)
            batch = client.run(
                [job.task for job in plan.jobs],
                policy,
                record=recorder,
                on_progress=lambda progress: setattr(view, "progress", progress),
                **plan.run,
            )
            async for result in batch:
                row = row_of(plan.jobs[result.index], result, plan.prices)
                plan.folder.add(row)
                view.rows.append(row)
                view.line(row)
    finally:
        close = getattr(policy, "aclose", None)
        if close is not None:
            await close()
        await asyncio.to_thread(recorder.close)


async def _check_service(client: AsyncClient) -> None:
    """Check that a host agent answers.

    Raises:
        click.ClickException: none does; it says how to start one.
    """
    states = await client.host_states()
    wrong = [f"{host}: {state}" for host, state in states.items() if isinstance(state, OSGymError)]
    if len(wrong) < len(states):
        return
    seen = escape_controls("; ".join(wrong)[:600]) or "no host is named"
    raise click.ClickException(
        f"no host agent answers ({seen}).\nStart one on this machine with `osgym serve` (before it, once: "
        "`osgym image build --flavor small`), or name yours with --host, --fleet or OSGYM_HOSTS."
    )


eval = evaluate  # the name by which `osgym` finds its commands
