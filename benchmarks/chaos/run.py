"""One run: the service, the work, the faults in order, the judgement."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos import checks, leaks
from benchmarks.chaos.client_faults import misbehave
from benchmarks.chaos.docker_faults import Daemon, daemon_for
from benchmarks.chaos.flights import Flights
from benchmarks.chaos.host_faults import build_clock, harm_host
from benchmarks.chaos.reach import LocalReach, QemuReach
from benchmarks.chaos.replica_faults import harm_as_policy, harm_replica
from benchmarks.chaos.schedule import CONTAINERS, LOCAL_ONLY, QEMU_ONLY, Kind, Planned, Scope, plan, scope_of
from benchmarks.chaos.service import Events, Service, Setting, data_folder
from benchmarks.chaos.stage import Impact, Means, NoVictim, Stage
from benchmarks.chaos.watch import Sample, watching
from benchmarks.oracles import choose
from osgym_sdk import AsyncClient, Timeouts

DISK_MIB = {"local": 4096, "qemu": 12288}
TRIES, AGAIN_S = 6, 1.0
WARM_UP_S, END_S = 10.0, 400.0
SPARE = 3
"""Number of replicas beyond the work's, for clients that misbehave, and for those that are being removed."""


@dataclass
class Outcome:
    violations: list[str]
    figures: dict[str, Any]
    impacts: list[Impact]
    skipped: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    """Number of attempts of each trajectory, in the order of their ends; 0: it was lost."""


def kinds_for(options: argparse.Namespace) -> set[Kind]:
    """Return the faults that are possible with these options."""
    kinds = set(Kind) - (LOCAL_ONLY if options.runtime == "qemu" else QEMU_ONLY)
    kinds -= set() if options.runner == "container" else CONTAINERS
    named = {kind: [o for o in options.only if o in kind.name.lower()] for kind in kinds}
    without = {kind for kind in kinds if any(o in kind.name.lower() for o in options.without)}
    return {kind for kind in kinds - without if not options.only or named[kind]}


def settings_for(options: argparse.Namespace) -> dict[str, Setting]:
    """Return settings with small caps, which bombs reach, and without a bound on CPU."""
    settings: dict[str, Setting] = {
        "image": options.flavor,
        "runtime": options.runtime,
        "warm": min(3, options.replicas),
        "max_replicas": options.replicas + SPARE,
        "replica_disk_mib": 256,
        "cpu_per_replica": 0,
        "disk_reserve_mib": 64,
    }
    if options.runtime == "qemu":
        settings["qemu.runner"] = options.runner
    else:
        settings |= {"replica_ram_mib": 900, "replica_pids": 500}
    return settings | dict(pair.split("=", 1) for pair in options.set)


async def run(options: argparse.Namespace) -> Outcome:
    """Run chaos for `options.seconds`, and return the results."""
    async with daemon_for(options.runner) as docker:
        with data_folder(DISK_MIB[options.runtime]) as (folder, own_disk):
            outcome = await _in_folder(options, folder, own_disk, docker)
    outcome.violations += [f"left behind: {item}" for item in leaks.left_on_disk(folder.parent)]
    return outcome


async def _in_folder(
    options: argparse.Namespace, folder: Path, own_disk: bool, docker: Daemon | None
) -> Outcome:
    clock = build_clock(folder.parent)
    environment = {**(clock[1] if clock else {}), **({"DOCKER_HOST": docker.url} if docker else {})}
    service = Service(folder, f"chaos-{os.getpid()}", settings_for(options), environment)
    kinds = kinds_for(options)
    kinds -= set() if own_disk else {Kind.DISK_FULL}
    kinds -= set() if clock else {Kind.CLOCK_JUMP}
    try:
        return await _run(options, service, kinds, Means(clock[0] if clock else None, docker))
    finally:
        if service.process is not None and service.process.poll() is None:
            await asyncio.to_thread(service.stop)  # killed, it would leave its machines running
        if options.log:
            options.log.write_bytes(service.log.read_bytes())


async def _run(options: argparse.Namespace, service: Service, kinds: set[Kind], means: Means) -> Outcome:
    await asyncio.to_thread(service.start)
    census, events = leaks.Census(service), Events(service)
    async with _background(census.follow(), events.follow()):
        warm = min(3, options.replicas)
        await _warm_up(service, options)
        # The next one clears up after it, for which it loads every runtime (28 MiB): no leak either.
        await asyncio.to_thread(service.kill)
        await asyncio.to_thread(service.start)
        before = await leaks.at_rest(service, warm)
        began = time.monotonic()
        flights = Flights(choose(options.flavor, tuple(options.task)), options.seed, began + options.seconds)
        reach = (LocalReach if options.runtime == "local" else QemuReach)(service)
        stage = Stage(service, reach, events, flights, began, means)
        client = AsyncClient(service.url, timeouts=Timeouts(retry_s=30))
        async with client, watching(service, options.watch_s, page=options.page) as watch:
            work = asyncio.create_task(_work(client, flights, options))
            planned = plan(options.seed, options.seconds, options.every, kinds)
            impacts, skipped = await _faults(stage, planned, options)
            hung = ""
            try:
                await asyncio.wait_for(work, max(0.0, flights.end - time.monotonic()) + END_S)
            except TimeoutError:
                hung = f"the batch did not end within {END_S:g} s after its last task began"
        after = await leaks.at_rest(service, warm)
        await asyncio.to_thread(census.look)
        code = await asyncio.to_thread(service.stop)
    violations = checks.judge(flights, impacts, _limits(options))
    violations += [hung] if hung else []
    violations += watch.problems
    if code != 0:
        violations.append(f"the host agent ended with {code}")
    violations += [f"left behind: {item}" for item in await census.after_stop()]
    if before is None or after is None:
        violations.append("the host agent did not come to rest, its pool warm and nothing leased")
    else:
        violations += [f"left behind: {line}" for line in leaks.grown(before, after)]
    faults_of_ours = service.said(r"fault of ours|Traceback|something of it is left")
    violations += [f"the host agent's log: {line[:1000]}" for line in faults_of_ours[:10]]
    figures = checks.figures(flights, impacts)
    attempts = [0 if result.failure else result.attempts for result in flights.results]
    figures["at_rest"] = [before, after]
    return Outcome(violations, figures, impacts, skipped, watch.samples, attempts)


def _limits(options: argparse.Namespace) -> checks.Limits:
    return checks.Limits(clean_p95_s=options.clean_p95, noticed_s=options.noticed)


async def _warm_up(service: Service, options: argparse.Namespace) -> None:
    """Play for some seconds without faults, since a host agent's loading for its first tasks is no leak."""
    flights = Flights(choose(options.flavor, tuple(options.task)), options.seed, time.monotonic() + WARM_UP_S)
    async with AsyncClient(service.url) as client:
        await _work(client, flights, options)


async def _work(client: AsyncClient, flights: Flights, options: argparse.Namespace) -> None:
    batch = client.run(
        flights.source(),
        flights,
        concurrency=options.replicas,
        retries=1,
        wait_s=120,
        lease_ttl_s=60,
        keep_frames=True,
    )
    async for result in batch:
        await flights.land(result)


async def _faults(
    stage: Stage, planned: list[Planned], options: argparse.Namespace
) -> tuple[list[Impact], list[str]]:
    """Inject each fault at its time, whatever became of the one before."""
    impacts: list[Impact] = []
    skipped: list[str] = []

    async def one(fault: Planned) -> None:
        for _ in range(TRIES):
            try:
                impact = await _harm(stage, fault)
            except NoVictim as none:
                why = str(none)
                await asyncio.sleep(AGAIN_S)
                continue
            except Exception as error:  # noqa: BLE001 (what happened until then is judged all the same)
                impact = Impact(fault.kind, stage.now_s(), wrong=[f"{type(error).__name__}: {error}"[:600]])
            impacts.append(impact)
            _say(stage, impact)
            return
        skipped.append(f"{fault.kind.value} at {fault.at_s:.0f} s: {why}")

    async with asyncio.TaskGroup() as group:
        for fault in planned:
            await asyncio.sleep(max(0.0, fault.at_s - stage.now_s()))
            group.create_task(one(fault))
    return impacts, skipped


async def _harm(stage: Stage, fault: Planned) -> Impact:
    match scope_of(fault.kind):
        case Scope.REPLICA:
            return await harm_replica(stage, fault.kind, fault.draw)
        case Scope.POLICY:
            return await harm_as_policy(stage, fault.kind, fault.draw)
        case Scope.HOST:
            return await harm_host(stage, fault.kind, fault.draw)
        case Scope.CLIENT:
            return await misbehave(stage, fault.kind, fault.draw)


def _say(stage: Stage, impact: Impact) -> None:
    flights = stage.flights
    times = [
        f"{word} {value:.1f} s"
        for word, value in (("noticed", impact.noticed_s), ("clean", impact.clean_s))
        if value is not None
    ]
    done = f"{len(flights.results)} done, {len(flights.open)} open, {flights.frames} frames"
    line = f"{impact.at_s:6.1f} s  {impact.kind.value:45} {', '.join(times):32} {impact.reason:14} {done}"
    print(line, *impact.wrong, sep="\n          ! " if impact.wrong else "", flush=True)
    if sys.stderr.isatty():
        print(f"\r{stage.now_s():.0f} s: {done}", end="", file=sys.stderr, flush=True)


@contextlib.asynccontextmanager
async def _background(*works: Any) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
