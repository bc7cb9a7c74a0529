"""Table with a row for each host: updated in place on a terminal, elsewhere a plain line when it is done."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import TracebackType

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from osgym_infra.cli.fleet_ops.outcome import HostOutcome
from osgym_infra.cli.fleet_ops.text import escaped

REFRESHES_PER_S = 4
FAILED = "red"
MOST_FAILURES_SHOWN = 20


class HostTable:
    """The table of one command. Threads of several hosts may call it at the same time.

    Args:
        columns: Titles, with the least width of a plain line's cell; a negative one aligns to the right, and
            one of width 0 may take several lines.
    """

    def __init__(
        self,
        columns: Mapping[str, int],
        hosts: Sequence[str],
        *,
        silent: bool = False,
        console: Console | None = None,
    ) -> None:
        self._columns = columns
        self._hosts = list(hosts)
        self._silent = silent
        self._console = console or Console(highlight=False)
        self._rows: dict[str, tuple[Sequence[str], str]] = {}
        self._done: set[str] = set()
        self._lock = threading.Lock()
        self._live: Live | None = None

    def __enter__(self) -> HostTable:
        if not self._silent and self._console.is_terminal:
            self._live = Live(
                get_renderable=self._shown,
                console=self._console,
                refresh_per_second=REFRESHES_PER_S,
                transient=True,  # what is longer than the terminal is cut; the whole follows at the end
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        elif not self._silent:
            self._line(list(self._columns))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._console.print(self._table())

    def update(self, host: str, cells: Sequence[str], style: str = "") -> None:
        with self._lock:
            if host not in self._done:
                self._rows[host] = ([escaped(cell) for cell in cells], style)

    def done(self, host: str, cells: Sequence[str], style: str = "") -> None:
        self.update(host, cells, style)
        with self._lock:
            self._done.add(host)
            if self._live is None and not self._silent:
                self._line([host, *self._rows[host][0]])

    def _line(self, cells: Sequence[str]) -> None:
        padded = [
            cell.rjust(-width) if width < 0 else cell.ljust(width)
            for cell, width in zip(cells, self._columns.values(), strict=False)
        ]
        click.echo("  ".join(padded).rstrip())

    def _shown(self) -> Group:
        with self._lock:
            done = len(self._done)
        return Group(self._table(), Text(f"{done} of {len(self._hosts)} hosts", style="dim"))

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for title, width in self._columns.items():
            table.add_column(title, justify="right" if width < 0 else "left", no_wrap=width != 0)
        with self._lock:
            for host in self._hosts:
                cells, style = self._rows.get(host, (("…",), "dim"))
                # Text, not markup: what hosts say is shown, never interpreted.
                table.add_row(*(Text(cell, style=style) for cell in (escaped(host), *cells)))
        return table


def say_failures(outcomes: Sequence[HostOutcome]) -> None:
    """Name each failed host with step, problem and remedy, on stderr."""
    failed = [one for one in outcomes if one.failure]
    for one in failed[:MOST_FAILURES_SHOWN]:
        click.echo(f"host {escaped(one.host)}: {escaped(str(one.failure), 1000)}", err=True)
    if len(failed) > MOST_FAILURES_SHOWN:
        click.echo(f"and {len(failed) - MOST_FAILURES_SHOWN} more; --json names all", err=True)
    if failed:
        click.echo(f"{len(failed)} of {len(outcomes)} hosts failed", err=True)
