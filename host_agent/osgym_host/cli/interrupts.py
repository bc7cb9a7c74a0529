"""Ctrl-C and SIGTERM for commands that run episodes: everything is given back before they end."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import click

EXIT_INTERRUPTED = 130


def interrupt_once(text: str) -> None:
    """Have Ctrl-C and SIGTERM cancel the current task, once; repeating them changes nothing.

    Args:
        text: what to say then.
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
