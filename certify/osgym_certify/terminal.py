"""Output of the commands in a terminal: a progress bar, a line for each task, the figures of all."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from osgym_certify.certificate import Certificate, Verdict
from osgym_certify.page import share
from osgym_certify.summary import causes, figures, verdicts
from osgym_host.logs import escape_controls

_STYLES = {
    Verdict.CERTIFIED: "green",
    Verdict.FAULTY: "bold red",
    Verdict.UNPROVEN: "yellow",
    Verdict.FAILED: "yellow",
}


class TaskProgress:
    """Progress bar of a campaign; nothing where there is no terminal."""

    def __init__(self, console: Console, total: int) -> None:
        self._ends = 0
        self._bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("tasks, {task.fields[ends]} end states"),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total, ends=0)

    def __enter__(self) -> TaskProgress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def tried(self, name: str) -> None:
        """Count an end state of a task."""
        self._ends += 1
        self._bar.update(self._task, description=escape_controls(name)[:40], ends=self._ends)

    def done(self, certificate: Certificate) -> None:
        """Count a task and print its line."""
        self._bar.update(self._task, advance=1)
        self._bar.console.print(_line(certificate))


def _line(one: Certificate) -> Text:
    of = figures([one])
    text = Text(f"{escape_controls(one.task)}: ")
    text.append(one.verdict.value, style=_STYLES[one.verdict])
    text.append(
        f", mutations {share(of.mutations)}, equivalents {share(of.equivalents)}, {one.duration_s:.0f} s"
    )
    if one.failure:
        text.append(f" ({escape_controls(one.failure)[:200]})", style="dim")
    return text


def show(console: Console, found: Sequence[Certificate]) -> None:
    """Print the causes of faults and the figures of all certificates."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("cause", overflow="fold")
    table.add_column("tasks", justify="right")
    table.add_column("for example", overflow="fold")
    rows = causes(found)
    for cause, tasks in rows:
        table.add_row(Text(escape_controls(cause)), str(len(tasks)), Text(escape_controls(tasks[0])))
    if rows:
        console.print(table)
    of, counts = figures(found), verdicts(found)
    low, high = of.flake_rate
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    console.print(
        f"\n{len(found)} tasks: {said or 'none'}\nmutations    {share(of.mutations)} earned less than 1\n"
        f"equivalents  {share(of.equivalents)} earned 1\n"
        f"flakes       {of.flakes[0]} of {of.flakes[1]} golden ends ({low:.1%} to {high:.1%})",
        highlight=False,
        markup=False,
    )
