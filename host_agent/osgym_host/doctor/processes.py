"""Programs with a deadline, whose output is collected."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass

from osgym_host.programs import end_program, start_program


@dataclass(frozen=True, slots=True)
class Outcome:
    """End of a program. `code` is None when it was killed at the deadline."""

    code: int | None
    output: str


async def run(argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"") -> Outcome:
    """Run a program with output and errors merged. It and its group are dead on return.

    Raises:
        OSError: It cannot be started.
    """
    process = await start_program(argv, environ={**os.environ, "LC_ALL": "C"}, reads=True)
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate(stdin)
        return Outcome(process.returncode, output.decode("utf-8", "replace"))
    except TimeoutError:
        return Outcome(None, "")
    finally:
        await end_program(process)
