"""Programs that the host agent starts and ends itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence

_DRAIN_S = 5.0
"""A killed program's pipe ends at once, unless a process that left its group holds it."""


async def start_program(
    argv: Sequence[str], *, environ: Mapping[str, str] | None = None, reads: bool = False
) -> asyncio.subprocess.Process:
    """Start a program in a group of its own, for `end_program`; what it prints, errors too, is its `stdout`.

    Args:
        argv: The program and its arguments.
        environ: All of its environment; ours by default.
        reads: Whether it has a standard input.

    Raises:
        OSError: It cannot be started.
    """
    return await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE if reads else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        env=environ,
    )


async def end_program(process: asyncio.subprocess.Process) -> None:
    """Kill a program that leads a group of its own, with this group, and wait for it.

    What it printed and nobody read is thrown away: asyncio's `wait` returns only when the pipes are at
    their end, and a pipe of which too much was buffered is read no further without this.
    """
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            while process.stdout is not None and await process.stdout.read(65536):
                pass
            await process.wait()
