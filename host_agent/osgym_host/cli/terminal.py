"""Tables and interrupts of commands in a terminal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table

EXIT_INTERRUPTED = 130


def show_table(names: Sequence[str], figures: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: columns of names to the left, columns of figures to the right."""
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name)
    for name in figures:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def interrupt_once(text: str) -> None:
    """Have the first Ctrl-C or SIGTERM cancel the current task, which gives everything back; ignore others.

    Args:
        text: Line that is printed when the signal comes.
    """
    loop = asyncio.get_running_loop()
    task: asyncio.Task[Any] | None = asyncio.current_task()
    assert task is not None

    def stop() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, lambda: None)
        click.echo(f"\n{text}", err=True)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
