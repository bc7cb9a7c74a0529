"""`osgym fleet drain`: empties hosts by their agents' API, or takes that back; needs no ssh."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from osgym_infra.cli.common import exits
from osgym_infra.cli.fleet_ops.discover import with_found
from osgym_infra.cli.fleet_ops.options import PARALLEL, fleet_option, host_option, interruptible, json_option
from osgym_infra.cli.fleet_ops.outcome import HostFailure, HostOutcome, answer, exit_code
from osgym_infra.cli.fleet_ops.status import word
from osgym_infra.cli.fleet_ops.table import FAILED, HostTable, say_failures
from osgym_infra.fleet.managed import ManagedFleet, ManagedHost, read_fleet
from osgym_protocol.host_api import HostState

if TYPE_CHECKING:
    from osgym_infra.cli.fleet_ops.agent_api import Agents

COLUMNS = {"HOST": 16, "STATE": 12, "LEASED": -6, "NOTE": 0}
ASK_S = 20.0
LOOK_S = 1.0
MOST_MISSED = 5
"""Failed requests in a row tolerated while waiting: a restarting agent is away for some seconds."""


@dataclass(frozen=True, slots=True)
class DrainOrder:
    """Order to drain, or to stop draining, for each host.

    Attributes:
        deadline_s: Seconds within which every episode ends; None: when their clients end them.
        wait_s: Time to wait for the last episode; 0: none.
    """

    stop: bool
    deadline_s: float | None
    wait_s: float


@click.command(
    epilog="\b\nExamples:\n"
    "  osgym fleet drain --host host-3 --wait-s 600\n"
    "  osgym fleet drain --all --deadline-s 300\n"
    "  osgym fleet drain --host host-3 --stop\n"
    "\n\b\nExit codes: 0 all drain (with --wait-s: are empty) - 1 some do not - 2 wrong usage.\n"
)
@fleet_option
@host_option
@click.option("--all", "whole", is_flag=True, help="All hosts; either this or --host is required.")
@click.option("--stop", is_flag=True, help="Stop draining: accept new episodes again.")
@click.option("--deadline-s", type=click.FloatRange(min=0), help="Seconds until every episode is ended.")
@click.option("--wait-s", type=click.FloatRange(min=0), default=0.0,
              help="Seconds to wait for the last episode; exit with 1 if one still runs then.")  # fmt: skip
@json_option
@interruptible
@exits
def drain(
    fleet_path: Path, patterns: tuple[str, ...], whole: bool, stop: bool, deadline_s: float | None, wait_s:
    float, as_json: bool,
) -> None:  # fmt: skip
    """Drain hosts: they accept no new episodes, and clients with open episodes are told.

    Ctrl-C ends the waiting, not the draining. A host agent that is restarted serves again.
    """
    if whole == bool(patterns):
        raise click.UsageError("give --host or --all")
    if stop and (deadline_s is not None or wait_s):
        raise click.UsageError("--stop cannot be combined with --deadline-s or --wait-s")
    fleet = with_found(read_fleet(fleet_path))
    order = DrainOrder(stop, deadline_s, wait_s)
    outcomes = asyncio.run(_drain(fleet, fleet.select(patterns), order, silent=as_json))
    if as_json:
        click.echo(json.dumps(answer(outcomes), indent=2))
    else:
        say_failures(outcomes)
    sys.exit(exit_code(outcomes))


async def _drain(
    fleet: ManagedFleet, hosts: Sequence[ManagedHost], order: DrainOrder, *, silent: bool
) -> list[HostOutcome]:
    from osgym_infra.cli.fleet_ops.agent_api import AgentFailed, Agents, ask_all

    found: dict[str, HostOutcome] = {}
    with HostTable(COLUMNS, [host.id for host in hosts], silent=silent) as table:
        async with Agents(fleet, parallel=PARALLEL, deadline_s=ASK_S) as agents:

            async def ask(host: ManagedHost) -> None:
                try:
                    found[host.id] = await _drain_one(agents, host, order, table)
                except AgentFailed as error:
                    table.done(host.id, ("away", "", error.failure.problem), FAILED)
                    found[host.id] = HostOutcome(host.id, error.failure)

            await ask_all(hosts, ask)
    return [found[host.id] for host in hosts]


async def _drain_one(agents: Agents, host: ManagedHost, order: DrainOrder, table: HostTable) -> HostOutcome:
    """Raises: AgentFailed: it cannot be asked."""
    end_s = time.monotonic() + order.wait_s
    state = await (agents.undrain(host) if order.stop else agents.drain(host, order.deadline_s))
    while order.wait_s and state.capacity.leased and time.monotonic() < end_s:
        table.update(host.id, _cells(state))
        await asyncio.sleep(min(LOOK_S, max(0.0, end_s - time.monotonic())))
        state = await _look(agents, host)
    known = {"state": word(state), "leased": state.capacity.leased}
    if order.wait_s and state.capacity.leased:
        problem = f"{state.capacity.leased} replicas are still in use after {order.wait_s:g} s"
        failure = HostFailure("wait", problem, "wait longer, or end the episodes with --deadline-s")
        table.done(host.id, _cells(state, problem), FAILED)
        return HostOutcome(host.id, failure, known)
    table.done(host.id, _cells(state))
    return HostOutcome(host.id, None, known)


async def _look(agents: Agents, host: ManagedHost) -> HostState:
    """Raises: AgentFailed: several times in a row."""
    from osgym_infra.cli.fleet_ops.agent_api import AgentFailed

    for missed in range(1, MOST_MISSED + 1):
        try:
            return await agents.state(host)
        except AgentFailed:
            if missed == MOST_MISSED:
                raise
            await asyncio.sleep(LOOK_S)
    raise AssertionError


def _cells(state: HostState, note: str = "") -> tuple[str, ...]:
    return word(state), str(state.capacity.leased), note
