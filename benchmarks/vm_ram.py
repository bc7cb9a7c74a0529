"""Memory and idle CPU of virtual desktops: fresh, looked at, worked in, left alone; and of the host, over K.

    python -m benchmarks.vm_ram --image small
    python -m benchmarks.vm_ram --image full --replicas 1,2,4,8,16,32,64 --idle-min 10

On a host with KVM: `osgym image snapshot full --accel kvm`, then the same.

First a machine is booted from the same disk, for comparison. Then a service runs three groups of clones:
`fresh` ones that nobody has talked to since their identity, `seen` ones that gave one screenshot, and
`worked` ones after 50 real steps. All are left alone, and looked at again; their CPU time of that while
is counted by thread. At last a service of its own leases K desktops, each with its first screenshot, and
the host's MemAvailable is read for each K.

`own` is memory that is nobody else's (anonymous pages); PSS counts the golden RAM besides, by its part,
and falls with K. For the cost model: host memory is fitted as fixed + K·private; a replica that ran alone
would need the golden RAM and its own, so s = golden RAM / (golden RAM + private).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import save, summary
from benchmarks.vm_boot import Recipe, boot
from benchmarks.vm_common import Service, described, options, vm_service
from benchmarks.vm_disks import overlay
from benchmarks.vm_look import Floor, cpu_s, host_growth, host_mib, mean, memory, thread_shares, threads
from benchmarks.vm_work import TTL_S, work_in_all
from osgym_host.images.store import default_data_dir
from osgym_qemu.disks.store import DiskStore
from osgym_qemu.machine.host_checks import shape_of
from osgym_qemu.snapshots import Snapshot, SnapshotStore
from osgym_sdk import AsyncClient, AsyncEpisode

TARGET_OWN_MIB = 45.0
TARGET_IDLE_PERCENT = 0.05
BOOTED_S = (10.0, 60.0)
SETTLE_S = 5.0
LOOK_S = 0.2
READY_TIMEOUT_S = 300.0


def snapshot_of(args: argparse.Namespace) -> Snapshot:
    return SnapshotStore(default_data_dir()).resolve(f"{args.image}@{args.snapshot}")


async def booted(args: argparse.Namespace) -> dict[str, Any]:
    """Measure one booted machine, some time after it was ready."""
    snapshot = snapshot_of(args)
    disk = DiskStore(default_data_dir()).resolve(snapshot.manifest.disk_digest)
    recipe = Recipe(disk, shape_of(snapshot.manifest), snapshot.manifest.screen)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="bench-ram-", dir=default_data_dir()) as scratch:
        overlay(disk.disk, Path(scratch) / "disk.qcow2")
        async with boot(recipe, Path(scratch) / "disk.qcow2", Path(scratch) / "vm") as vm:
            await vm.ready()
            await vm.show_a_frame()
            since = time.monotonic()
            for after_s in BOOTED_S:
                await asyncio.sleep(max(0.0, after_s - (time.monotonic() - since)))
                found[f"after {after_s:.0f} s"] = memory(vm.pid).as_dict()
    print(f"booted: {_shown(found[f'after {BOOTED_S[-1]:.0f} s'])}", flush=True)
    return found


async def groups(args: argparse.Namespace, service: Service) -> dict[str, Any]:
    """Measure three groups of clones, twice."""
    async with AsyncClient(service.url) as client:
        seen = [client.episode(wait_s=READY_TIMEOUT_S, lease_ttl_s=TTL_S) for _ in range(args.group)]
        for episode in seen:
            await episode.start()
        worked = await work_in_all(client, args.image, args.snapshot, args.group, args.at_once)
        await _until_ready(service, args.group * 3)
        members = {"seen": _pids(service, seen), "worked": _pids(service, [one.episode for one in worked])}
        taken = {pid for pids in members.values() for pid in pids}
        everyone = [record.pid for record in service.records() if record.replica is not None and record.pid]
        members["fresh"] = [pid for pid in everyone if pid not in taken]
        await asyncio.sleep(SETTLE_S)
        found: dict[str, Any] = {
            name: {"first": [memory(pid).as_dict() for pid in pids]} for name, pids in members.items()
        }
        found["worked"]["steps"] = [len(one.steps_ms) for one in worked]
        found["worked"]["errors"] = [one.error for one in worked if one.error]
        await _leave_alone(args.idle_min * 60, members, found)
        for episode in (*seen, *(one.episode for one in worked)):
            await episode.aclose()
    return found


async def _leave_alone(seconds: float, members: dict[str, list[int]], found: dict[str, Any]) -> None:
    """Count CPU time while nothing happens, then measure the memory again."""
    everyone = [pid for pids in members.values() for pid in pids]
    before = {pid: (cpu_s(pid), threads(pid)) for pid in everyone}
    began = time.monotonic()
    await asyncio.sleep(seconds)
    passed = time.monotonic() - began
    for name, pids in members.items():
        shares = [100 * (cpu_s(pid) - before[pid][0]) / passed for pid in pids]
        rows = [thread_shares(before[pid][1], threads(pid), passed) for pid in pids]
        names = sorted({thread for row in rows for thread in row})
        group = found[name]
        group["idle_s"] = passed
        group["idle_percent"] = shares
        group["threads"] = {
            thread: mean([row.get(thread, {"percent": 0.0, "wakeups_per_s": 0.0}) for row in rows])
            for thread in names
        }
        group["later"] = [memory(pid).as_dict() for pid in pids]


def _pids(service: Service, episodes: list[AsyncEpisode]) -> list[int]:
    found = []
    for episode in episodes:
        with contextlib.suppress(LookupError):
            found.append(service.record_of(episode.trajectory.replica_id or "").pid or 0)
    return found


async def _until_ready(service: Service, count: int) -> None:
    """Wait until so many clones live, the warm ones among them."""
    for _look in range(int(READY_TIMEOUT_S / LOOK_S)):
        running = [r for r in service.records() if r.replica is not None and r.phase == "running"]
        if len(running) >= count:
            return
        await asyncio.sleep(LOOK_S)
    raise TimeoutError(f"{count} clones are not there")


async def curve(args: argparse.Namespace, service: Service, before: dict[str, float]) -> list[dict[str, Any]]:
    """Return the host's memory over the number of leased desktops."""
    rows: list[dict[str, Any]] = []
    episodes: list[AsyncEpisode] = []
    floor = Floor(args.floor_gib * 1024)
    async with AsyncClient(service.url) as client:
        for count in args.replicas:
            while len(episodes) < count and not floor.reached:
                episode = client.episode(wait_s=READY_TIMEOUT_S, lease_ttl_s=TTL_S)
                await episode.start()
                episodes.append(episode)
            if len(episodes) < count:
                break
            await asyncio.sleep(SETTLE_S)
            machines = mean(memory(pid).as_dict() for pid in _pids(service, episodes))
            row = {"replicas": count, **host_growth(before), "machine": machines}
            rows.append(row)
            print(f"  K={count}: host lost {row['lost']:.0f} MiB; {_shown(machines)}", flush=True)
        for episode in episodes:
            await episode.aclose()
    return rows


def fitted(rows: list[dict[str, Any]], golden_mib: float) -> dict[str, float]:
    """Fit the fixed, private and shared part of the host's memory by least squares."""
    if len(rows) < 2:
        return {}
    fit = statistics.linear_regression([row["replicas"] for row in rows], [row["lost"] for row in rows])
    return {
        "private_mib": fit.slope,
        "fixed_mib": fit.intercept,
        "golden_mib": golden_mib,
        "working_set_mib": golden_mib + fit.slope,
        "s": golden_mib / (golden_mib + fit.slope),
    }


def _shown(row: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:.1f}" for key, value in row.items())


def report(found: dict[str, Any]) -> None:
    """Print the table of the groups, and the targets."""
    print("| clones | own, MiB | PSS | guest RAM | code | QEMU | own later | PSS later | idle, % of a core |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in ("fresh", "seen", "worked"):
        group = found["groups"][name]
        first, later = mean(group["first"]), mean(group["later"])
        idle = summary(group["idle_percent"])
        print(
            f"| {name} | {first['own']:.1f} | {first['pss']:.1f} | {first['guest_ram']:.1f} "
            f"| {first['code']:.1f} | {first['qemu']:.1f} | {later['own']:.1f} | {later['pss']:.1f} "
            f"| {idle['median']:.3f} (max {idle['max']:.3f}) |"
        )
        print(f"  threads of {name}: {json.dumps(group['threads'])}")
    print(f"cost model: {_shown(found['fit'])}")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--group", type=int, default=4, help="clones in each of the three groups (4)")
    parser.add_argument("--at-once", type=int, default=2, help="clones that work at a time (2)")
    parser.add_argument("--idle-min", type=float, default=10.0, help="how long they are left alone (10)")
    parser.add_argument("--replicas", default="1,2,4,8,16,32,64", help="values of K for the host's memory")
    parser.add_argument("--floor-gib", type=float, default=2.0, help="available memory that is left (2)")
    args = parser.parse_args()
    args.replicas = [int(part) for part in args.replicas.split(",")]
    if args.quick:
        args.group, args.idle_min, args.replicas = 1, 0.5, [1, 2, 4]
    facts = described(args)
    print(json.dumps(facts), flush=True)
    result: dict[str, Any] = {"machine": facts, "booted": asyncio.run(booted(args))}
    several = {"max_replicas": 3 * args.group + 2, "warm": args.group, "parked": 0, "cpu_per_replica": 0}
    with vm_service(args, several) as service:
        result["groups"] = asyncio.run(groups(args, service))
    before = host_mib()
    alone = {"max_replicas": max(args.replicas) + 1, "warm": 0, "parked": 0, "cpu_per_replica": 0}
    with vm_service(args, alone) as service:
        result["curve"] = asyncio.run(curve(args, service, before))
    result["fit"] = fitted(result["curve"], snapshot_of(args).manifest.ram_data_bytes / (1 << 20))
    report(result)
    print(f"targets: own or PSS ≤ {TARGET_OWN_MIB:.0f} MiB idle, ≤ {TARGET_IDLE_PERCENT} % of a core")
    print(f"saved {save(f'vm_ram_{args.image}', result, args.out)}")


if __name__ == "__main__":
    main()
