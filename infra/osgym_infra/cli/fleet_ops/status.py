"""`osgym fleet status`: the state of each host, by its agent's API, without ssh."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from osgym_infra.cli.common import exits
from osgym_infra.cli.fleet_ops.discover import with_found
from osgym_infra.cli.fleet_ops.options import interruptible, json_option, many_options
from osgym_infra.cli.fleet_ops.outcome import HostOutcome, answer, exit_code
from osgym_infra.cli.fleet_ops.table import FAILED, HostTable, say_failures
from osgym_infra.cli.fleet_ops.text import escaped
from osgym_infra.fleet.boot_status import last_on_console
from osgym_infra.fleet.managed import ManagedFleet, ManagedHost, read_fleet
from osgym_infra.links.access import ProgramAccess
from osgym_protocol.host_api import HostState, Notice

if TYPE_CHECKING:
    from osgym_infra.cli.fleet_ops.agent_api import Agents

COLUMNS = {
    "HOST": 16, "STATE": 12, "READY": -5, "LEASED": -6, "WAIT": -4, "MAX": -4, "RAM FREE": -9,
    "DISK FREE": -9, "LOAD": -6, "VERSION": 8, "IMAGE": 12, "NOTE": 0,
}  # fmt: skip
LOW_RAM = 0.05
LOW_DISK_MIB = 4096
"""Four times the agent's own reserve, below which no replica starts (`disk_reserve_mib`)."""
CONSOLE_S = 20.0
MOST_NOTES = 8
"""Consoles that are read at the same time: each is a process of the cloud's command."""


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym fleet status\n"
    "  osgym fleet status --watch 5\n"
    "  osgym fleet status --json | jq .failed\n"
)
@many_options(deadline_s=10)
@click.option("--watch", "watch_s", type=click.FloatRange(min=0.5), metavar="S",
              help="Look again after so many seconds, until Ctrl-C.")  # fmt: skip
@json_option
@interruptible
@exits
def status(
    fleet_path: Path, patterns: tuple[str, ...], parallel: int, deadline_s: float, watch_s: float | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Show each host: replicas, memory, disk, notices; by the agents' API, without ssh.

    The exit code is 0 when all hosts answer (a host that drains does), 1 when some do not.
    """
    fleet = with_found(read_fleet(fleet_path))
    hosts = fleet.select(patterns)
    outcomes: list[HostOutcome] = []
    while True:
        try:
            outcomes = asyncio.run(look(fleet, hosts, parallel, deadline_s, silent=as_json))
            if as_json:
                click.echo(json.dumps(answer(outcomes), indent=None if watch_s else 2))
            else:
                say_failures(outcomes)
            if watch_s is not None:
                time.sleep(watch_s)
        except KeyboardInterrupt:
            if watch_s is None:
                raise
            watch_s = None  # how one stops watching: the last look counts
        if watch_s is None:
            sys.exit(exit_code(outcomes))


async def look(
    fleet: ManagedFleet, hosts: Sequence[ManagedHost], parallel: int, deadline_s: float, *, silent: bool
) -> list[HostOutcome]:
    """Ask all hosts for their state, and show it as it comes."""
    from osgym_infra.cli.fleet_ops.agent_api import Agents, ask_all

    found: dict[str, HostOutcome] = {}
    consoles = asyncio.Semaphore(MOST_NOTES)
    with HostTable(COLUMNS, [host.id for host in hosts], silent=silent) as table:
        async with Agents(fleet, parallel=parallel, deadline_s=deadline_s) as agents:

            async def ask(host: ManagedHost) -> None:
                found[host.id] = await _look_at(agents, host, table, consoles)

            await ask_all(hosts, ask)
    return [found[host.id] for host in hosts]


async def _look_at(
    agents: Agents, host: ManagedHost, table: HostTable, consoles: asyncio.Semaphore
) -> HostOutcome:
    from osgym_infra.cli.fleet_ops.agent_api import AgentFailed

    try:
        state = await agents.state(host)
    except AgentFailed as error:
        boot = await boot_note(host, consoles)
        said = f"{error.failure.step}: {error.failure.problem}"
        table.done(host.id, ("away", *[""] * 9, boot or said), FAILED)
        away = {"url": host.url, "zone": host.zone, "state": "away", "boot": boot}
        return HostOutcome(host.id, error.failure, away)
    notes = notes_of(host, state)
    table.done(host.id, cells(state, notes), "yellow" if state.draining or notes else "")
    found = {"url": host.url, "zone": host.zone, "state": word(state), "notes": notes}
    return HostOutcome(host.id, None, {**found, "agent": state.to_dict()})


def word(state: HostState) -> str:
    """Return a host's state in one word."""
    if state.draining:
        return "draining"
    return "serving" if state.capacity.ready + state.capacity.leased else "starting"


def cells(state: HostState, notes: Sequence[str]) -> tuple[str, ...]:
    """Return the columns after the first."""
    capacity, load = state.capacity, state.load
    disk = "-" if load.disk_free_mib is None else _gib(load.disk_free_mib)
    return (
        word(state), str(capacity.ready), str(capacity.leased), str(capacity.waiting),
        str(capacity.max_replicas), _gib(load.ram_available_mib), disk, f"{load.load1:.1f}",
        state.version, _images(state), "; ".join(notes),
    )  # fmt: skip


def _images(state: HostState) -> str:
    """Return the default image, and how many other ones the host serves."""
    others = len(state.images) - 1
    return state.image.digest.removeprefix("sha256:")[:12] + (f" +{others}" if others > 0 else "")


def notes_of(host: ManagedHost, state: HostState) -> list[str]:
    """Return what an operator should know about a host that answers."""
    found = []
    if state.draining:
        found.append(_notice(state.notice, time.time()))
    if state.notices == "failing":
        found.append("notices of the cloud cannot be read")
    digest = state.image.digest.removeprefix("sha256:")
    if host.image_digest and digest != host.image_digest:
        found.append(f"image is not {host.image_digest[:12]} of fleet.json")
    lacking = [image.flavor for image in state.images if image.waiting and not image.ready]
    if len(state.images) > 1 and lacking:
        found.append(f"clients wait for {', '.join(lacking)}")
    elif state.capacity.waiting and not state.capacity.ready:
        found.append("clients wait")
    load = state.load
    if load.ram_total_mib > 0 and load.ram_available_mib < LOW_RAM * load.ram_total_mib:
        found.append("memory nearly full")
    if load.disk_free_mib is not None and load.disk_free_mib < LOW_DISK_MIB:
        found.append("disk nearly full")
    return found


def _notice(notice: Notice | None, now_s: float) -> str:
    if notice is None:
        return "stopping"
    if notice.deadline is None:
        return notice.kind
    return f"{notice.kind}, {max(0.0, notice.deadline - now_s):.0f} s left"


def _gib(mib: float) -> str:
    return f"{mib / 1024:.1f} GiB"


async def boot_note(host: ManagedHost, gate: asyncio.Semaphore) -> str:
    """Return the newest boot record on the host's console in words; empty: no console, or no record."""
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
