"""Holds a host drained for the time of an update."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from osgym_infra.fleet.boot import TARGET
from osgym_infra.hosts import hold_drained
from osgym_infra.links.errors import FleetHostError
from osgym_infra.links.link import HostLink, OutputListener, write

HELD_S = 1800.0
"""How long a host is held for its update at most: more than the steps that follow may take together."""
SCRIPT = f"{TARGET}/hold_drained.py"


@contextlib.asynccontextmanager
async def held_drained(link: HostLink, deadline_s: float, say: OutputListener) -> AsyncIterator[None]:
    """Enter when no episode is open on the host; none begins there until the block is left.

    Whatever ends the block, the host's agent takes episodes again: what holds it is a process there that ends
    with our connection.

    Args:
        deadline_s: how long episodes may go on; then they end with their cause, unscored.

    Raises:
        HostError: the connection broke.
    """
    await write(link, SCRIPT, Path(hold_drained.__file__), mode="755")
    drained = asyncio.Event()

    def heard(line: str) -> None:
        if line == f"osgym: {hold_drained.DRAINED}":
            drained.set()
        say(line)

    most_s = deadline_s + hold_drained.END_S + HELD_S
    argv = ["python3", SCRIPT, "--deadline-s", f"{deadline_s:g}", "--most-s", f"{HELD_S:g}"]
    holding = asyncio.create_task(link.run(argv, timeout_s=most_s, on_output=heard))
    waiting = asyncio.create_task(drained.wait())
    try:
        await asyncio.wait({holding, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if holding.done() and not drained.is_set():
            done = holding.result()
            raise FleetHostError(link.name, f"it cannot be drained: {done.output.strip()}", "drain")
        yield
    finally:
        waiting.cancel()
        holding.cancel()
        # It is over, or stopped within moments; what it would still say concerns nobody.
        await asyncio.gather(holding, waiting, return_exceptions=True)
