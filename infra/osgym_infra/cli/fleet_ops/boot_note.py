"""Where a cloud's host stands that does not answer yet: the last record on its console."""

from __future__ import annotations

import asyncio
import shutil
import subprocess

from osgym_infra.cli.fleet_ops.text import escaped
from osgym_infra.fleet.boot_status import last_on_console
from osgym_infra.fleet.managed import ManagedHost
from osgym_infra.links.access import ProgramAccess

CONSOLE_S = 20.0
MOST_NOTES = 8
"""Consoles that are read at the same time: each is a process of the cloud's command."""


async def boot_note(host: ManagedHost, gate: asyncio.Semaphore) -> str:
    """The record in words; empty where the host has no console that we can read, or nothing on it."""
    access = host.access
    if not isinstance(access, ProgramAccess):
        return ""
    argv = access.console_argv()
    if not argv or shutil.which(argv[0]) is None:
        return ""
    async with gate:
        printed = await asyncio.to_thread(_output, argv)
    found = last_on_console(access.console_text(printed))
    return "" if found is None else escaped(f"boot: {found.line()}", 500)


def _output(argv: list[str]) -> str:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=CONSOLE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")
