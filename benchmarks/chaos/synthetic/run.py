"""A run over stand-ins: batches of trajectories, and after each a turn of faults that meet many together."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import httpx

from benchmarks.chaos.service import Service, Setting, data_folder
from benchmarks.chaos.synthetic.clients import play_clients, play_made_way, play_without_descriptors
from benchmarks.chaos.synthetic.faults import OF_CLIENTS, Case, Fault, Moment, Turn, plan, turns
from benchmarks.chaos.synthetic.host_faults import hit_host, processes
from benchmarks.chaos.synthetic.play import Control, HostRound, Trajectories
from benchmarks.chaos.synthetic.players import Players, SyntheticOutcome
from benchmarks.chaos.synthetic.verdicts import rare, table_of_faults, table_of_reasons
from osgym_sdk import AsyncClient, Timeouts

DISK_MIB = 128
TURN_S = 300.0
AT_ONCE = 32
MAX_REPLICAS = 72
BATCH = 180
"""Trajectories between two turns."""
PROGRAM = "benchmarks.chaos.synthetic.stand_in"
LEAST = 30
"""Smallest number of trajectories of each kind in a long run."""


def settings() -> dict[str, Setting]:
    """Return settings of the host agent: enough replicas, no bounds by the machine's resources."""
    return {
        "warm": AT_ONCE,
        "max_replicas": MAX_REPLICAS,
        "max_starting": AT_ONCE,
        "ram_reserve_mib": 0,
        "replica_ram_mib": 64,
        "disk_reserve_mib": 0,
        "cpu_per_replica": 0,
        "trajectory": "off",
        "osgym_make_way_s": 0.1,
    }


async def run(options: argparse.Namespace) -> SyntheticOutcome:
    """Play `options.episodes` trajectories, and return the wrong classes."""
    with data_folder(DISK_MIB) as (folder, own_disk), processes() as held:
        control = Control(folder.parent / "control.sock")
        environment = {"CHAOS_CONTROL": str(control.path)}
        service = Service(folder, f"synthetic-{os.getpid()}", settings(), environment, program=PROGRAM)
        await asyncio.to_thread(service.start)
        try:
            async with _players(service, control) as players:
                players.trajectories.pids = held.pids()
                await _run(options, players, own_disk=own_disk)
                await players.count_retired()
        finally:
            code = await asyncio.to_thread(service.stop)
            if options.log:
                options.log.write_bytes(service.log.read_bytes())
        outcome = players.outcome
        if code != 0:
            outcome.violations.append(f"the host agent ended with {code}")
        faults_of_ours = service.said(r"fault of ours|Traceback|something of it is left")
        unwanted = [line for line in faults_of_ours if "Too many open files" not in line]  # one of our faults
        outcome.violations += [f"the host agent's log: {line[:1000]}" for line in unwanted[:10]]
        return outcome


@contextlib.asynccontextmanager
async def _players(service: Service, control: Control) -> AsyncIterator[Players]:
    timeouts = Timeouts(retry_s=30)
    async with AsyncClient(service.url, timeouts=timeouts) as client, httpx.AsyncClient(timeout=60) as http:
        yield Players(service, client, Trajectories(service.url, control, http))


def _cycle(seed: int, *, own_disk: bool) -> list[Turn]:
    """Return the turns in the order in which they repeat."""
    found = [turn for turn in turns() for _ in range(turn.times)]
    found = [turn for turn in found if own_disk or not turn.members[0].disk_is_full]
    Random(f"turns:{seed}").shuffle(found)
    return found


async def _run(options: argparse.Namespace, players: Players, *, own_disk: bool) -> None:
    began = time.monotonic()
    if not own_disk:
        players.outcome.skipped.append("host's disk full: that takes root and a loop device")
    planned = plan(options.seed, options.episodes)
    cycle = itertools.cycle(_cycle(options.seed, own_disk=own_disk))
    numbers = itertools.count(options.episodes + 1)
    left = options.episodes
    while left > 0:
        mine = list(itertools.islice(planned, min(BATCH, left)))
        await players.play(mine, AT_ONCE)
        left -= len(mine)
        if left > 0:
            members = [replace(case, number=next(numbers)) for case in next(cycle).members[:left]]
            await _play_turn(players, members)
            left -= len(members)
        done, wrong = len(players.outcome.verdicts), len(players.outcome.violations)
        print(f"{time.monotonic() - began:6.0f} s  {done} trajectories, {wrong} violations", flush=True)
    players.outcome.seconds = round(time.monotonic() - began, 1)


async def _play_turn(players: Players, members: Sequence[Case]) -> None:
    """Play trajectories that are played together and with no others."""
    first = members[0].strikes[0]
    if first.fault is Fault.MADE_WAY:
        await play_made_way(players, members, MAX_REPLICAS)
        return
    if first.fault is Fault.NO_DESCRIPTORS:
        await play_without_descriptors(players, members)
        return
    if first.fault in OF_CLIENTS or first.moment is Moment.SCORED:
        await play_clients(players, members)
        return
    trajectories = players.trajectories
    trajectories.round = HostRound(len(members))
    work = asyncio.create_task(players.play(members, len(members)))
    try:
        async with asyncio.timeout(TURN_S):
            complete = asyncio.create_task(trajectories.round.complete.wait())
            await asyncio.wait((complete, work), return_when=asyncio.FIRST_COMPLETED)
            if not complete.done():
                complete.cancel()
                await work
                raise RuntimeError("trajectories ended before the host was hit")
            await hit_host(players, members)
            await work
    finally:
        trajectories.round = None
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def report(outcome: SyntheticOutcome) -> list[str]:
    """Return the lines that a run prints at its end."""
    retired = {reason: count for reason, count in sorted(outcome.retired.items()) if count}
    lines = ["", *table_of_faults(outcome.verdicts), "", *table_of_reasons(outcome.verdicts), ""]
    lines += ["| replicas given up for | times |", "|---|---|"]
    lines += [f"| {reason} | {count} |" for reason, count in retired.items()]
    few = rare(outcome.verdicts, LEAST)
    lines += ["", f"{len(outcome.verdicts)} trajectories in {outcome.seconds:.0f} s"]
    lines += [f"fewer than {LEAST}: {len(few)} kinds"] if few else []
    lines += [f"skipped: {line}" for line in outcome.skipped]
    lines.append(f"{len(outcome.violations)} violations")
    return lines


def series(outcome: SyntheticOutcome) -> dict[str, Any]:
    """Return the raw series: kinds of trajectories, and a column for each thing known of a trajectory."""
    kinds = sorted({verdict.outcome.row for verdict in outcome.verdicts})
    number_of = {kind: number for number, kind in enumerate(kinds)}
    outcomes = [verdict.outcome for verdict in outcome.verdicts]
    chains = {v.outcome.row: [end.error_class.value for end in v.expected.ends] for v in outcome.verdicts}
    return {
        "figures": {
            "trajectories": len(outcomes),
            "episodes": sum(one.attempts for one in outcomes),
            "violations": len(outcome.violations),
            "seconds": outcome.seconds,
        },
        "kinds": [{"what": kind, "classes": chains[kind]} for kind in kinds],
        "trajectories": {
            "kind": [number_of[one.row] for one in outcomes],
            "attempts": [one.attempts for one in outcomes],
            "reward": [one.reward for one in outcomes],
            "reason": [one.reason for one in outcomes],
        },
        "retired": dict(outcome.retired),
        "skipped": outcome.skipped,
        "violations": outcome.violations,
    }
