"""Reset under load: episodes opened and closed without a pause, and what hundreds of them leave behind.

    python -m benchmarks.vm_reset --workers 1 4 8 --resets 500
    python -m benchmarks.vm_reset --accel kvm     # on a host with KVM and such a snapshot

First some workers at a time open an episode, look at its first frame, close it, and open the next: every
one of them wants a fresh clone at once, so this is the host's limit. `create` is what a worker waits for its
first frame. Then so many resets are done, and what the host agent and its machines hold is counted before,
at every hundredth and after, with nothing open: more than the slack is a leak, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.common import leak_rows, meminfo_mib, quantile, save, summary
from benchmarks.vm_common import Service, described, options, vm_service
from osgym_sdk import AsyncClient, HostState

WARM, PARKED = 2, 2
REST_S = 120.0
EVERY = 100
SLACK = {
    "machines": 0,
    "machine_processes": 0,
    "records": 0,
    "folders": 0,
    "files": 8,
    "cgroups": 0,
    "listening_ports": 0,
    "agent_fds": 4,
    "agent_memfds": 0,
    "agent_threads": 4,
    "agent_pss_mib": 24,
    "shared_memory_mib": 16,
}
"""Growth that is not counted as a leak.

Each machine has a handful of files, whose number depends on how often it was frozen. Shared memory is the
host's: run the benchmark alone.
"""


def busy_s() -> tuple[float, float]:
    """Return the CPU time that all cores have used, and could have used, since the host's start."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    ticks = os.sysconf("SC_CLK_TCK")
    return (sum(fields) - fields[3] - fields[4]) / ticks, sum(fields) / ticks


def own_cpu_s(pid: int) -> float:
    """Return the CPU time of one process, without that of machines that were its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def resets(client: AsyncClient, workers: int, count: int) -> tuple[list[float], float]:
    """Play episodes, shared among the workers; return each create's ms and the total time."""
    left = count
    creates: list[float] = []

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            began = time.monotonic()
            episode = client.episode(wait_s=300)
            await episode.start()
            creates.append(1000 * (time.monotonic() - began))
            await episode.aclose()

    began = time.monotonic()
    await asyncio.gather(*(work() for _ in range(workers)))
    return creates, time.monotonic() - began


async def at_rest(client: AsyncClient, service: Service) -> None:
    """Wait until nothing is open, and exactly the warm and the parked ones exist.

    Raises:
        TimeoutError: That does not happen.
    """
    async with asyncio.timeout(REST_S):
        while True:
            (state,) = (await client.host_states()).values()
            if isinstance(state, HostState):
                now = state.capacity
                quiet = (now.ready, now.leased, now.starting) == (WARM, 0, 0)
                if quiet and service.parked() == PARKED and len(service.records()) == WARM + PARKED:
                    return
            await asyncio.sleep(0.2)


async def measure(client: AsyncClient, service: Service, workers: int, count: int) -> dict[str, Any]:
    """Measure one load: its speed and its cost."""
    await at_rest(client, service)
    busy, agent = busy_s(), own_cpu_s(service.pid)
    creates, took_s = await resets(client, workers, count)
    busy_after, agent_after = busy_s(), own_cpu_s(service.pid)
    cores = len(os.sched_getaffinity(0))
    row = {
        "workers": workers,
        "resets": count,
        "create_ms": creates,
        "took_s": took_s,
        "per_s": count / took_s,
        "per_s_and_core": count / took_s / cores,
        "agent_cpu_ms_each": 1000 * (agent_after - agent) / count,
        "host_cpu_ms_each": 1000 * (busy_after[0] - busy[0]) / count,
    }
    print(
        f"  {workers:2d} workers, {count} resets: create p50 {quantile(creates, 0.5):.0f} ms, p95 "
        f"{quantile(creates, 0.95):.0f} ms; {row['per_s']:.2f} clones/s, {row['per_s_and_core']:.2f} per "
        f"second and core; CPU ms each: host agent {row['agent_cpu_ms_each']:.0f}, all of the host "
        f"{row['host_cpu_ms_each']:.0f}",
        flush=True,
    )
    return row


def held(service: Service) -> dict[str, float]:
    """Return the resources of this host agent now."""
    agent = service.agent()
    records = service.records()
    groups = [
        name
        for top, names, _ in os.walk("/sys/fs/cgroup")
        for name in names
        if f"osgym-{service.instance}" in os.path.join(top, name)
    ]
    ports = {record.port for record in records}
    return {
        "machines": len(records),
        "machine_processes": len(service.machine_pids()),
        "records": len(list((service.run_folder / "records").glob("*"))),
        "folders": len(list((service.run_folder / "vms").glob("*"))),
        "files": sum(len(names) for _, _, names in os.walk(service.run_folder)),
        "cgroups": len(groups),
        "listening_ports": len(ports & listening_ports()),
        "agent_fds": agent["fds"],
        "agent_memfds": agent["memfds"],
        "agent_threads": len(list(Path(f"/proc/{service.pid}/task").iterdir())),
        "agent_pss_mib": round(agent["pss_mib"], 1),
        "shared_memory_mib": round(meminfo_mib()["Shmem"], 1),
    }


def listening_ports() -> set[int]:
    """Return the TCP ports of this machine on which a process listens."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A"}


async def leaks(client: AsyncClient, service: Service, workers: int, count: int) -> list[dict[str, Any]]:
    """Do many resets; return the resources before, in between and after."""
    series = []
    done = 0
    await resets(client, workers, 2 * workers)  # what is made once is there from now on
    while True:
        await at_rest(client, service)
        series.append({"resets": done, **held(service)})
        print("  " + "  ".join(f"{name} {value:g}" for name, value in series[-1].items()), flush=True)
        if done >= count:
            return series
        some = min(EVERY, count - done)
        await resets(client, workers, some)
        done += some


async def work(service: Service, args: argparse.Namespace) -> dict[str, Any]:
    """Run all of it on one host agent."""
    each = 12 if args.quick else args.each
    async with AsyncClient(service.url) as client:
        loads = [await measure(client, service, workers, each) for workers in args.workers]
        series = await leaks(client, service, max(args.workers), 24 if args.quick else args.resets)
    return {"loads": loads, "series": series}


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 8], help="at a time (1 4 8)")
    parser.add_argument("--each", type=int, default=60, help="resets of each load (60)")
    parser.add_argument("--resets", type=int, default=500, help="then so many, and no leak (500)")
    args = parser.parse_args()
    about = described(args)
    print(about)
    most = max(args.workers)
    settings = {"warm": WARM, "qemu.parked": PARKED, "max_replicas": 2 * most + WARM, "cpu_per_replica": 0}
    with vm_service(args, settings) as service:
        result = asyncio.run(work(service, args))
    left = [str(pid) for pid in service.machine_pids()]
    rows = leak_rows(result["series"], SLACK)
    print(f"\n{'':20}{'before':>10}{'after':>10}{'slack':>8}")
    for row in rows:
        mark = "  LEAK" if row["leak"] else ""
        print(f"{row['what']:20}{row['before']:>10g}{row['after']:>10g}{row['slack']:>8}{mark}")
    print(f"processes left after the host agent's end: {len(left)}")
    told = [{**load, "create": summary(load["create_ms"])} for load in result["loads"]]
    saved = {"machine": about, "settings": settings, "loads": told, "series": result["series"], "table": rows}
    print(f"raw series in {save('vm_reset', {**saved, 'left': left}, args.out)}")
    return 1 if left or any(row["leak"] for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
