"""Programs that the host agent starts and ends itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence

_DRAIN_S = 5.0
"""Time for the end of a killed program's pipe, which a process that left its group may hold."""


async def start_program(
    argv: Sequence[str], *, environ: Mapping[str, str] | None = None, reads: bool = False
) -> asyncio.subprocess.Process:
    """Start a program in a group of its own, for `end_program`; `stdout` has its output and errors.

    Args:
        environ: Whole environment; ours by default.

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

    Unread output is dropped: asyncio's `wait` returns only when the pipes are at their end, and a pipe whose
    buffer is full is otherwise not read further.
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


async def run_program(
    argv: Sequence[str], *, timeout_s: float, environ: Mapping[str, str] | None = None, stdin: bytes = b""
) -> tuple[int | None, str]:
    """Run a program to its end; return its exit status, and its output and errors. It is dead on return.

    Args:
        environ: Whole environment; ours by default.

    Raises:
        OSError: It cannot be started.
        TimeoutError: It did not end in time.
    """
    process = await start_program(argv, environ=environ, reads=bool(stdin))
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate(stdin or None)
    finally:
        await asyncio.shield(end_program(process))
    return process.returncode, output.decode("utf-8", "replace")
