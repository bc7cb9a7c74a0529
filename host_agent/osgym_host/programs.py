"""Programs that the host agent starts and ends itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

_DRAIN_S = 5.0
"""A killed program's pipe ends at once, unless a process that left its group holds it."""


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
