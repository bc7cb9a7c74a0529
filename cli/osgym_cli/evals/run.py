"""Run of episodes for `osgym eval run` and `osgym task run`: played, shown, and reported on."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from osgym_cli.episode_options import Hosts
from osgym_cli.evals.folder import RunFolder
from osgym_cli.evals.jobs import Job
from osgym_cli.evals.recording import FolderRecorder
from osgym_cli.evals.report import write_report
from osgym_cli.evals.rows import Prices, Row, row_of
from osgym_cli.evals.statistics import summarize
from osgym_cli.evals.table import summary_lines, table
from osgym_host.cli.terminal import EXIT_INTERRUPTED, interrupt_once
from osgym_host.logs import escape_controls
from osgym_sdk import AsyncClient, ConfigError, OSGymError, Progress

EXIT_INFRASTRUCTURE = 1
WIDTH = 140
"""Columns of the table where there is no terminal."""


@dataclass
class _View:
    """Display while the run goes on."""

    rows: list[Row]
    progress: Progress | None = None
    line: Callable[[Row], None] = field(default=lambda row: None)

    def __rich__(self) -> Group:
        return Group(table(self.rows), Text(str(self.progress or "starting …"), style="dim"))


@dataclass(frozen=True, slots=True)
class Plan:
    """Episodes of a run and its parameters."""

    hosts: Hosts
    jobs: list[Job]
    folder: RunFolder
    prices: Prices
    run: dict[str, Any]
    """Arguments of `AsyncClient.run`."""


def run_plan(plan: Plan, policy: Any) -> int:
    """Run the jobs, show them, write the report; return the exit code.

    Raises:
        click.ClickException: No host agent answers, or the client refuses the parameters.
    """
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
        console.print("interrupted; --resume continues the run. No desktop is still leased", markup=False)
        return EXIT_INTERRUPTED
    if wrong:
        click.echo(f"osgym: {wrong}", err=True)
    spoilt = sum(not row.is_finished for row in rows)
    if spoilt:
        click.echo(
            f"osgym: {spoilt} episodes failed because of the infrastructure; --resume runs them again",
            err=True,
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
            + (f" ({row.failure_class}: {row.failure_message[:200]})" if row.failure_class else "")
        )
        click.echo(
            escape_controls(f"{row.task} ({row.repeat}): {what}, {row.steps} steps, {row.duration_s:.0f} s")
        )

    view.line = line
    yield


async def _run(plan: Plan, policy: Any, view: _View) -> None:
    """Run every job; each row is on disk before the next is handled."""
    interrupt_once("stopping: releasing the desktops …")
    recorder = FolderRecorder(plan.folder.trajectories, plan.jobs)
    try:
        async with plan.hosts.client() as client:
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
        click.ClickException: None answers; the message says how to start one.
    """
    states = await client.host_states()
    wrong = [f"{host}: {state}" for host, state in states.items() if isinstance(state, OSGymError)]
    if len(wrong) < len(states):
        return
    seen = escape_controls("; ".join(wrong)[:600]) or "no host was given"
    raise click.ClickException(
        f"no host agent answers ({seen}).\nStart one on this machine with `osgym host serve` (bake its image "
        "once before: `osgym image build --flavor small`), or name yours with --host, --fleet or OSGYM_HOSTS."
    )
