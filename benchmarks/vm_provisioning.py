"""Provisioning of a virtual desktop in every way: time, disk, memory.

    python -m benchmarks.vm_provisioning --image small
    python -m benchmarks.vm_provisioning --image full --only copy,overlay,reflink,loadvm,clone,parked

On a host with KVM: `osgym image snapshot full --accel kvm`, then the same.

| way | disk | then |
|---|---|---|
| copy | full copy of the image's disk | kernel boot until the desktop is ready |
| overlay | empty qcow2 over it | the same |
| reflink | XFS reflink (in a file mounted for the time of the benchmark) | the same |
| loadvm | full copy of a disk with a saved state (`savevm`) | `-loadvm` |
| clone | overlay over the snapshot's frozen disk | OSGym: a new process, copy-on-write RAM, identity |
| parked | the same | OSGym: a process that waits already |

Ready is the guest agent's answer that the desktop is drawn; for a clone that is the acknowledgement of its
identity, and the next answer is counted beside it. The disks of `--disks` machines are really made for each
way, as many at a time as fit into `--budget-gib`; so many machines as `--boots` and `--clones` say are really
started. What is in the page cache before is the same for all (the source is read once). `--workers` clones
then take 50 real steps each through the service, and their disks' growth is what the saving is counted by.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from benchmarks.common import save, summary
from benchmarks.vm_boot import Recipe, boot
from benchmarks.vm_common import Service, described, options, vm_service
from benchmarks.vm_disks import GIB, copy, folder_bytes, make_many, overlay, reflink, run, used_bytes, xfs
from benchmarks.vm_look import Floor, memory
from benchmarks.vm_work import STEPS, work_in_all
from osgym_host.guest_client import GuestClient
from osgym_host.images.store import default_data_dir
from osgym_host.runtime_factory import find_image, make_runtime
from osgym_host.runtimes.base import Replica, ReplicaSpec
from osgym_host.settings import load
from osgym_qemu.cloning.replica import QemuReplica
from osgym_qemu.disks.store import DiskStore
from osgym_qemu.machine.host_checks import shape_of
from osgym_qemu.runtime import QemuRuntime, disk_mib
from osgym_qemu.snapshots import Snapshot
from osgym_sdk import AsyncClient

INSTANCE = f"bench-provisioning-{os.getpid()}"
WAYS = ("copy", "overlay", "reflink", "loadvm", "clone", "parked")
TARGET_CLONE, TARGET_PARKED, TARGET_DISK = 200, 300, 0.98
SETTLE_S = 10.0
STOCK_TIMEOUT_S = 60.0
STOCK_LOOK_S = 0.1
_MIB = 1 << 20


async def booted(
    args: argparse.Namespace, recipe: Recipe, make: Callable[[Path, Path], None], source: Path, folder: Path
) -> dict[str, Any]:
    """Make a disk and boot until ready, several times, one after another."""
    saved = source.name == "saved.qcow2"
    taken = used_bytes if make is reflink else folder_bytes
    rows = []
    for number in range(args.boots):
        os_folder = folder / f"vm{number}"
        os_folder.mkdir()
        disk = os_folder / "disk.qcow2"
        before = taken(os_folder)
        began = time.monotonic()
        make(source, disk)
        has_disk = time.monotonic()
        async with boot(recipe, disk, os_folder / "vm", saved=saved) as vm:
            await vm.ready()
            ready = time.monotonic()
            await asyncio.sleep(SETTLE_S)
            row = {"disk_s": has_disk - began, "ready_s": ready - began, **memory(vm.pid).as_dict()}
        run("sync", "-f", folder)
        row["disk_mib"] = (taken(os_folder) - before) / _MIB
        rows.append(row)
        print(f"  {json.dumps({key: round(value, 2) for key, value in row.items()})}", flush=True)
        shutil.rmtree(os_folder)
    return {"rows": rows}


@contextlib.asynccontextmanager
async def runtime_of(args: argparse.Namespace, parked: int) -> AsyncIterator[tuple[QemuRuntime, Snapshot]]:
    """Yield the runtime as the service makes it, without the service."""
    flags = {
        "runtime": "qemu",
        "image": args.image,
        "qemu.snapshot": args.snapshot,
        "qemu.accel": args.accel,
        "instance": INSTANCE,
        "qemu.parked": parked,
    }
    settings = load(flags=flags)
    image = find_image(settings)
    runtime = make_runtime(settings, image)
    assert isinstance(runtime, QemuRuntime) and isinstance(image.image, Snapshot)
    await runtime.start()
    try:
        yield runtime, image.image
    finally:
        await runtime.stop()


async def cloned(args: argparse.Namespace, parked: int) -> dict[str, Any]:
    """Make clones that all stay until the last is measured."""
    rows: list[dict[str, float]] = []
    made: list[Replica] = []
    floor = Floor(args.floor_gib * 1024)
    async with runtime_of(args, parked) as (runtime, snapshot):
        await runtime.destroy(await _clone(runtime, snapshot, 0, parked, []))  # loads the golden RAM
        for number in range(1, args.clones + 1):
            if floor.reached:
                break
            made.append(await _clone(runtime, snapshot, number, parked, rows))
        await asyncio.sleep(SETTLE_S)
        for row, replica in zip(rows, made, strict=True):
            assert isinstance(replica, QemuReplica)
            row |= memory(replica.pid).as_dict()
            row["disk_mib"] = disk_mib(replica.vm.folder)
    return {"rows": rows}


async def _clone(
    runtime: QemuRuntime, snapshot: Snapshot, number: int, parked: int, rows: list[dict[str, float]]
) -> Replica:
    if parked:
        await _until_parked(parked)
    spec = ReplicaSpec(f"bench-{number}", number + 1, snapshot, ram_mib=snapshot.manifest.ram_mib + 512)
    began = time.monotonic()
    replica = await runtime.create(spec)
    ready = time.monotonic()
    async with GuestClient(replica.guest, token=replica.guest_token) as guest:
        assert (await guest.health()).desktop_ready
        answered = time.monotonic()
        await guest.observe()
        seen = time.monotonic()
    row = {"ready_s": ready - began, "next_answer_s": answered - began, "frame_s": seen - began}
    rows.append(row)
    return replica


async def _until_parked(count: int) -> None:
    for _look in range(int(STOCK_TIMEOUT_S / STOCK_LOOK_S)):
        if Service("", 0, INSTANCE).parked() >= count:
            return
        await asyncio.sleep(STOCK_LOOK_S)
    raise TimeoutError("no process is parked")


async def save_one(recipe: Recipe, folder: Path) -> Path:
    """Make a disk with the saved state of a ready desktop."""
    disk = folder / "saved.qcow2"
    overlay(recipe.image.disk, disk)
    async with boot(recipe, disk, folder / "saving") as vm:
        await vm.ready()
        await vm.show_a_frame()
        await vm.save()
    return disk


async def worked(args: argparse.Namespace, service: Service) -> dict[str, Any]:
    """Take real steps in several clones at once; return the growth of their disks."""
    async with AsyncClient(service.url) as client:
        done = await work_in_all(client, args.image, args.snapshot, args.workers, args.at_once)
        rows = []
        for one in done:
            replica_id = one.episode.trajectory.replica_id
            row: dict[str, Any] = {"steps": len(one.steps_ms), "steps_ms": one.steps_ms, "error": one.error}
            with contextlib.suppress(LookupError):
                record = service.record_of(replica_id or "")
                run("sync", "-f", service.run_folder)
                row["disk_mib"] = disk_mib(service.run_folder / "vms" / record.name)
                row |= memory(record.pid or 0).as_dict()
            rows.append(row)
        for one in done:
            await one.episode.aclose()
    return {"rows": rows}


async def measure(args: argparse.Namespace, recipe: Recipe, scratch: Path) -> dict[str, Any]:
    source = recipe.image.disk
    budget = int(args.budget_gib * GIB)
    source.read_bytes()
    found: dict[str, Any] = {}
    for way in args.only:
        print(f"{way}:", flush=True)
        if way in ("clone", "parked"):
            found[way] = await cloned(args, 0 if way == "clone" else 2)
            continue
        with contextlib.ExitStack() as stack:
            folder, base, make = scratch, source, {"copy": copy, "overlay": overlay}.get(way, copy)
            if way == "reflink":
                size = 2 * source.stat().st_size + 8 * GIB
                folder, make = stack.enter_context(xfs(scratch, size)), reflink
                base = folder / "base.qcow2"
                copy(source, base)
            elif way == "loadvm":
                base = await save_one(recipe, scratch)
                stack.callback(base.unlink)
            disks = make_many(make, base, folder, args.disks, budget)
            found[way] = await booted(args, recipe, make, base, folder)
            found[way]["disks"] = disks.__dict__ | {"source_mib": base.stat().st_blocks * 512 / _MIB}
    return found


def table(found: dict[str, Any], args: argparse.Namespace) -> list[str]:
    """Return the results and the targets as Markdown."""
    lines = [
        "| way | to a ready desktop, s (min–max) | ×copy | disk each, MiB | own memory, MiB | PSS, MiB |"
    ]
    lines.append("|---|---|---|---|---|---|")
    reference = _median(found, "copy", "ready_s")
    for way, series in found.items():
        if way not in WAYS or not series["rows"]:
            continue
        times = summary([row["ready_s"] for row in series["rows"]])
        lines.append(
            f"| {way} | {times['median']:.3f} ({times['min']:.3f}–{times['max']:.3f}, n={times['n']}) "
            f"| {reference / times['median']:.0f} | {_median(found, way, 'disk_mib'):.1f} "
            f"| {_median(found, way, 'own'):.1f} | {_median(found, way, 'pss'):.1f} |"
        )
    return lines


def _median(found: dict[str, Any], way: str, name: str) -> float:
    rows = found.get(way, {}).get("rows", [])
    return summary([row[name] for row in rows if name in row])["median"]


def judged(found: dict[str, Any], args: argparse.Namespace) -> dict[str, float]:
    reference = _median(found, "copy", "ready_s")
    full_mib = _median(found, "copy", "disk_mib")
    grown_mib = _median(found, "worked", "disk_mib")
    return {
        "faster_clone": reference / _median(found, "clone", "ready_s"),
        "faster_parked": reference / _median(found, "parked", "ready_s"),
        "disk_saved": 1 - (full_mib + args.disks * grown_mib) / (args.disks * full_mib),
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", default=",".join(WAYS), help="which ways")
    parser.add_argument("--disks", type=int, default=128, help="disks really made for each way (128)")
    parser.add_argument("--budget-gib", type=float, default=16.0, help="disk used at a time (16)")
    parser.add_argument("--boots", type=int, default=3, help="machines really booted for each way (3)")
    parser.add_argument("--clones", type=int, default=20, help="clones really made (20)")
    parser.add_argument("--workers", type=int, default=16, help="clones that take 50 steps; 0: none (16)")
    parser.add_argument("--at-once", type=int, default=4, help="of which so many at a time (4)")
    parser.add_argument("--tb-mib", type=int, default=64, help="cache of translated code of booted machines")
    parser.add_argument("--floor-gib", type=float, default=2.0, help="available memory that is left (2)")
    parser.add_argument("--scratch", type=Path, default=default_data_dir(), help="where disks are made")
    args = parser.parse_args()
    args.only = tuple(args.only.split(","))
    if args.quick:
        args.disks, args.boots, args.clones, args.workers = 6, 1, 4, min(args.workers, 2)
    facts = described(args)
    manifest = find_image(
        load(flags={"runtime": "qemu", "image": args.image, "qemu.snapshot": args.snapshot})
    ).image
    assert isinstance(manifest, Snapshot)
    disk = DiskStore(default_data_dir()).resolve(manifest.manifest.disk_digest)
    recipe = Recipe(disk, shape_of(manifest.manifest), manifest.manifest.screen, args.tb_mib)
    print(json.dumps(facts), flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-disks-", dir=args.scratch) as scratch:
        found = asyncio.run(measure(args, recipe, Path(scratch)))
    if args.workers:
        print(f"{STEPS} steps in {args.workers} clones:", flush=True)
        settings = {"max_replicas": args.workers + 2, "warm": args.at_once, "cpu_per_replica": 0}
        with vm_service(args, settings) as service:
            found["worked"] = asyncio.run(worked(args, service))
    verdict = judged(found, args)
    print("\n".join(table(found, args)))
    print(
        f"clone {verdict['faster_clone']:.0f}× (target {TARGET_CLONE}), "
        f"parked {verdict['faster_parked']:.0f}× ({TARGET_PARKED}), "
        f"disk of {args.disks} saved {100 * verdict['disk_saved']:.2f} % ({100 * TARGET_DISK:.0f})"
    )
    result = {
        "machine": facts,
        "options": vars(args) | {"scratch": "", "out": ""},
        **found,
        "judged": verdict,
    }
    print(f"saved {save(f'vm_provisioning_{args.image}', result, args.out)}")


if __name__ == "__main__":
    main()
