"""Density of live virtual desktops: start them by the real service, look at each, act in each.

    python -m benchmarks.vm_density --image small --replicas 400
    python -m benchmarks.vm_density --image full --replicas 400

On a host with KVM: make the snapshot there (`osgym image snapshot full --accel kvm`), then the same.

Each desktop is an episode of the SDK. Three parts: leasing (the curve of memory and start times), one full
screenshot of each while all live, one real action in each (the desktop's menu is opened, and the screen must
differ). Memory is what the host really lost (MemAvailable before minus now). It stops above a floor of
available memory, by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks.common import quantile, save, summary
from benchmarks.vm_common import Service, described, options, vm_service
from benchmarks.vm_look import Floor, cpu_s, host_growth, host_mib, kill, mean, memory
from osgym_sdk import AsyncClient, AsyncEpisode, NoCapacity, OSGymError

TTL_S = 600.0
WAIT_S = 60.0
WITHIN_S = 120.0
"""Time within which all must answer a screenshot."""
SAMPLE = 25
TB_MIB = 64
CLOSE_AT_ONCE = 8
GONE_TIMEOUT_S = 240.0
GONE_LOOK_S = 0.5
PNG = b"\x89PNG\r\n\x1a\n"


@dataclass
class Run:
    """One series, as far as it has come."""

    args: argparse.Namespace
    service: Service
    floor: Floor
    before: dict[str, float]
    episodes: list[AsyncEpisode] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    curve: list[dict[str, float]] = field(default_factory=list)
    stopped_by: str = ""
    agent_cpu_s: float = 0.0

    def pids(self) -> list[int]:
        return [record.pid for record in self.service.records() if record.pid and record.replica is not None]

    def sampled(self) -> dict[str, float]:
        """Return the mean memory of some machines, spread over all ages."""
        pids = self.pids()
        return mean(memory(pid).as_dict() for pid in pids[:: max(1, len(pids) // SAMPLE)])

    def point(self, elapsed_s: float, last: int) -> None:
        """Add a point to the curve and print it."""
        recent = self.start_s[-last:]
        row = {"replicas": len(self.episodes), "s": elapsed_s, **host_growth(self.before)}
        row |= {"start_median_s": quantile(recent, 0.5), "start_p95_s": quantile(recent, 0.95)}
        self.curve.append(row)
        each = row["lost"] / max(1, len(self.episodes))
        print(
            f"  {len(self.episodes):4d} live  {elapsed_s:6.0f} s  host lost {row['lost']:6.0f} MiB,"
            f" {each:5.1f} each"
            f"  page tables {row['PageTables']:4.0f}  slab {row['Slab']:4.0f}"
            f"  start median {row['start_median_s']:.2f} s p95 {row['start_p95_s']:.2f} s",
            flush=True,
        )


async def lease_all(client: AsyncClient, run: Run) -> None:
    """Lease desktops, a few at a time, until all are there or something stops it."""
    wanted, every = run.args.replicas, run.args.every
    spent = cpu_s(run.service.pid)
    began = time.monotonic()
    asked = 0

    async def worker() -> None:
        nonlocal asked
        while asked < wanted and not run.stopped_by:
            if run.floor.reached:
                run.stopped_by = f"the floor of {run.floor.floor_mib:.0f} MiB of available memory"
                return
            asked += 1
            at = time.monotonic()
            episode = client.episode(wait_s=WAIT_S, lease_ttl_s=TTL_S, reuse_frames=False)
            try:
                await episode.start()
            except NoCapacity as error:
                run.stopped_by = f"refused: {error}"
                return
            except OSGymError as error:
                run.failures.append(str(error)[:300])
                if len(run.failures) > 10:
                    run.stopped_by = "more than ten failures"
                continue
            run.start_s.append(time.monotonic() - at)
            run.episodes.append(episode)
            if len(run.episodes) % every == 0:
                run.point(time.monotonic() - began, every)

    await asyncio.gather(*(worker() for _ in range(run.args.at_once)))
    run.point(time.monotonic() - began, every)
    run.stopped_by = run.stopped_by or "all that were asked for"
    run.agent_cpu_s = cpu_s(run.service.pid) - spent
    print(f"the host agent used {run.agent_cpu_s:.1f} CPU-s for that")


async def each(run: Run, what: str, work: Any) -> dict[str, Any]:
    """Run a function in every episode, a few at a time; stop at the floor."""
    gate = asyncio.Semaphore(run.args.at_once)
    latencies: list[float] = []
    failures: list[str] = []
    skipped = 0
    began = time.monotonic()

    async def one(number: int, episode: AsyncEpisode) -> None:
        nonlocal skipped
        async with gate:
            if run.floor.reached:
                skipped += 1
                return
            at = time.monotonic()
            try:
                await work(number, episode)
            except (OSGymError, AssertionError) as error:
                failures.append(f"{number}: {error}"[:300])
            else:
                latencies.append((time.monotonic() - at) * 1000)

    await asyncio.gather(*(one(i, e) for i, e in enumerate(run.episodes)))
    elapsed = time.monotonic() - began
    grown, machines = host_growth(run.before), await asyncio.to_thread(run.sampled)
    row = {
        "answered": len(latencies),
        "failed": len(failures),
        "skipped_at_floor": skipped,
        "s": elapsed,
        "ms": latencies,
        **{f"ms_{key}": value for key, value in summary(latencies).items() if key != "n"},
        "failures": failures[:20],
        "host": grown,
        "machines": machines,
    }
    print(
        f"{what}: {len(latencies)} of {len(run.episodes)} in {elapsed:.1f} s, median "
        f"{quantile(latencies, 0.5):.0f} ms, p95 {quantile(latencies, 0.95):.0f} ms, failed {len(failures)}, "
        f"left out at the floor {skipped}; host lost {grown['lost']:.0f} MiB"
        f"\n  a machine: { {key: round(value, 1) for key, value in machines.items()} }",
        flush=True,
    )
    return row


async def screenshot(_number: int, episode: AsyncEpisode) -> None:
    seen = await episode.observe()
    assert seen.data.startswith(PNG), "no picture"


async def act(number: int, episode: AsyncEpisode) -> None:
    """Open the desktop's menu; the screen must have changed."""
    before = await episode.observe()
    x = 500 + number % 400
    after = await episode.step({"op": "click", "x": x, "y": 400, "button": "right"})
    if after.meta.frame.hash == before.meta.frame.hash:
        after = await after.final(10.0)
    assert after.meta.frame.hash != before.meta.frame.hash, "nothing was seen of the action"


async def idle(run: Run, seconds: float) -> dict[str, Any]:
    """Return the CPU time of the idle machines."""
    pids = run.pids()
    before, began = [cpu_s(pid) for pid in pids], time.monotonic()
    await asyncio.sleep(seconds)
    passed = time.monotonic() - began
    shares = [100 * (cpu_s(pid) - was) / passed for pid, was in zip(pids, before, strict=True)]
    found = {"seconds": passed, "percent": shares, **summary(shares), "sum": sum(shares)}
    print(
        f"idle for {passed:.0f} s: {sum(shares):.1f} % of a core for {len(pids)} machines, "
        f"median {quantile(shares, 0.5):.3f} %, p95 {quantile(shares, 0.95):.3f} %",
        flush=True,
    )
    return found


async def close_all(client: AsyncClient, run: Run) -> float:
    """Give all back and wait until nothing of them is left; return the seconds."""
    gate = asyncio.Semaphore(CLOSE_AT_ONCE)
    began = time.monotonic()
    ours = {episode.trajectory.replica_id for episode in run.episodes}

    async def one(episode: AsyncEpisode) -> None:
        async with gate:
            with contextlib.suppress(OSGymError):
                await episode.aclose()

    await asyncio.gather(*(one(episode) for episode in run.episodes))
    for _look in range(int(GONE_TIMEOUT_S / GONE_LOOK_S)):
        if not ours & {r.replica.replica_id for r in run.service.records() if r.replica is not None}:
            break
        await asyncio.sleep(GONE_LOOK_S)
    return time.monotonic() - began


async def measure(args: argparse.Namespace, service: Service, before: dict[str, float]) -> dict[str, Any]:
    """Run the whole series against a running service."""
    run = Run(args, service, Floor(args.floor_gib * 1024), before)
    async with AsyncClient(service.url) as client, run.floor.guarded(service.records):
        try:
            await lease_all(client, run)
            print(f"stopped by: {run.stopped_by}; failures {run.failures[:3]}")
            shots = await each(run, "a screenshot of each", screenshot)
            still = await idle(run, args.idle_s)
            acted = await each(run, "one action in each", act)
            alive = len(run.pids())
            state = next(iter((await client.host_states()).values()))
        finally:
            cleared_s = await close_all(client, run)
    return {
        "live": len(run.episodes),
        "stopped_by": run.stopped_by,
        "failures": run.failures,
        "all_answered_in_time": shots["answered"] == len(run.episodes) and shots["s"] <= WITHIN_S,
        "start_s": run.start_s,
        "start": summary(run.start_s),
        "agent_cpu_s": run.agent_cpu_s,
        "curve": run.curve,
        "screenshots": shots,
        "idle": still,
        "actions": acted,
        "alive_at_the_end": alive,
        "lowest_available_mib": run.floor.lowest_mib,
        "cleared_s": cleared_s,
        "agent": service.agent(),
        "host_state": str(state),
        "host_after": host_growth(before),
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--replicas", type=int, default=400, help="how many to lease (400)")
    parser.add_argument("--at-once", type=int, default=4, help="callers at a time (4)")
    parser.add_argument("--every", type=int, default=25, help="a point of the curve every N desktops")
    parser.add_argument("--idle-s", type=float, default=60.0, help="how long idle CPU time is counted (60)")
    parser.add_argument("--tb-mib", type=int, default=TB_MIB, help="cache of translated code, MiB")
    parser.add_argument("--floor-gib", type=float, default=2.0, help="available memory that is left (2)")
    args = parser.parse_args()
    if args.quick:
        args.replicas, args.every, args.idle_s = min(args.replicas, 12), 4, 10.0
    facts = described(args)
    settings = {
        "max_replicas": args.replicas + 8,
        "warm": args.at_once,
        "parked": 2,
        "cpu_per_replica": 0,
        "ram_reserve_mib": int(args.floor_gib * 1024),
        "boot_timeout_s": 120,
        "tb_mib": args.tb_mib,
    }
    print(json.dumps(facts), "\n", settings, flush=True)
    before = host_mib()
    service: Service | None = None
    try:
        with vm_service(args, settings) as service:
            result = asyncio.run(measure(args, service, before))
    finally:
        if service is not None and (left := kill(service.records())):
            print(f"the service left {left} machines; they were killed")
    name = f"vm_density_{args.image}" + ("" if args.tb_mib == TB_MIB else f"_tb{args.tb_mib}")
    where = save(name, {"machine": facts, "settings": settings, **result}, args.out)
    print(
        f"{result['live']} live desktops, {result['screenshots']['answered']} answered in "
        f"{result['screenshots']['s']:.0f} s, {result['actions']['answered']} acted; raw series in {where}"
    )


if __name__ == "__main__":
    main()
