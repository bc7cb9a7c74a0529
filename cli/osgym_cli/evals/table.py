"""Output of `osgym eval run` on a terminal: a line for each task, and the figures of all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from osgym_cli.evals.rows import Row
from osgym_cli.evals.statistics import PASSED, Estimate, Summary
from osgym_host.logs import escape_controls

MAX_REWARDS = 8
"""Largest number of rewards that are shown of one task."""


def table(rows: Sequence[Row]) -> Table:
    """Return one line for each task, in the order in which they were first run."""
    made = Table(box=None, header_style="bold", pad_edge=False)
    made.add_column("task", overflow="fold")
    made.add_column("reward")
    for name in ("steps", "not final", "tokens in/out", "cost $", "time s"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("how it ended", overflow="fold")
    by_task: dict[str, list[Row]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(row)
    for name, tries in by_task.items():
        made.add_row(
            Text(escape_controls(name)),
            _rewards(tries),
            number(mean(row.steps for row in tries)),
            str(sum(row.frames_not_final for row in tries)),
            tokens(tries),
            money(tries),
            number(mean(row.duration_s for row in tries)),
            _ends(tries),
        )
    return made


def _rewards(tries: Sequence[Row]) -> Text:
    text = Text()
    for row in tries[:MAX_REWARDS]:
        if row.reward is None:
            text.append(f"{row.failure_class} " if row.failure_class else "- ", style="bold red")
        else:
            text.append(f"{row.reward:.2g} ", style="green" if row.reward >= PASSED else "yellow")
    return text if len(tries) <= MAX_REWARDS else text.append("…")


def _ends(tries: Sequence[Row]) -> Text:
    ends = dict.fromkeys(row.failure_code or row.termination_reason for row in tries)
    return Text(escape_controls(", ".join(ends))[:60], style="dim")


def summary_lines(summary: Summary, rows: Sequence[Row]) -> list[str]:
    """Format the figures of all episodes as lines of plain text."""
    lines = [f"episodes     {summary.episodes}, of which {summary.scored} have a reward"]
    unscored = {name: count for name, count in summary.failures.items() if name != "policy"}
    if unscored:
        shares = ", ".join(f"{count} {name}" for name, count in unscored.items())
        lines.append(f"failures     {shares} (a failure has no reward)")
    if broke := summary.failures.get("policy"):
        lines.append(f"broke        {broke} desktops were broken by the policy: reward 0, not passed")
    if summary.passed is not None:
        lines.append(
            f"passed       {estimate(summary.passed, 100, '%')}, failures of the model counted as not passed"
        )
    if summary.passed_at_least is not None:
        lines.append(
            f"at least     {estimate(summary.passed_at_least, 100, '%')}, every infra loss as not passed"
        )
    if summary.losses:
        lines.append(
            f"losses       {summary.losses} attempts lost for infrastructure after the policy's first step"
        )
    for task, count in summary.lost_again.items():
        often = f"{count} times, each on a fresh desktop after the policy's first step"
        lines.append(f"lost again   {escape_controls(task)}: {often}: check what the policy does there")
    if summary.reward is not None:
        lines.append(f"mean reward  {estimate(summary.reward)}")
    for k, chance in summary.pass_at.items():
        lines.append(f"pass@{k:<8}{chance:.1%}")
    frames, late = sum(row.frames for row in rows), sum(row.frames_not_final for row in rows)
    if frames:
        lines.append(f"frames       {late} of {frames} changed after the model saw them")
    lines.append(f"tokens       {tokens(rows)} in/out" + (f", ${cost}" if (cost := money(rows)) else ""))
    return lines


def estimate(found: Estimate, scale: float = 1, unit: str = "") -> str:
    digits = 1 if scale == 100 else 3
    text = f"{found.mean * scale:.{digits}f}{unit}"
    if found.low is None or found.high is None:
        return text
    return f"{text} (95 % interval {found.low * scale:.{digits}f} to {found.high * scale:.{digits}f}{unit})"


def mean(values: Iterable[float]) -> float:
    """Return the mean of numbers; 0 without any."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0


def number(value: float) -> str:
    """Format a number with one decimal place below ten."""
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def tokens(rows: Sequence[Row]) -> str:
    """Format the numbers of tokens read and written."""
    read = sum(row.usage.get("input_tokens", 0) for row in rows)
    written = sum(row.usage.get("output_tokens", 0) for row in rows)
    return f"{short(read)}/{short(written)}"


def money(rows: Sequence[Row]) -> str:
    """Format the cost of all rows; empty if no price is known."""
    costs = [row.cost_usd for row in rows if row.cost_usd is not None]
    return f"{sum(costs):.4g}" if costs else ""


def short(count: float) -> str:
    """Format a large number in thousands or millions."""
    if count < 10_000:
        return f"{count:.0f}"
    return f"{count / 1000:.0f}k" if count < 1_000_000 else f"{count / 1e6:.1f}M"
