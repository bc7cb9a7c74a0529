"""Cost of a fresh replica: CPU time, memory and time to ready; then Calc open on a file.

    python -m benchmarks.replica_cost --image full --clones 20
    python -m benchmarks.replica_cost --image full --against DIGEST --clones 20

The runtime is used without the service, so that nothing else is in the figures. CPU time of a replica is that
of all its processes from its first instruction in the overlay on; what the host agent and its zygote spend on
it is counted beside it. `later` is `--quiet-s` after the first frame; Calc is drawn when the screen has not
changed for that long. With `--against` only fresh desktops are measured, of both images in turns, so that
what else the machine does meets both alike; saved as `replica_start`.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import openpyxl

from benchmarks.common import machine, save, summary
from osgym_host.guest_client import GuestClient
from osgym_host.images.store import ImageStore, default_data_dir
from osgym_host.runtimes.base import ImageLike, Replica, ReplicaSpec, Runtime
from osgym_host.runtimes.local.runtime import LocalRuntime
from osgym_protocol.codes import ImageFormat
from osgym_protocol.options import ObserveOptions

POLL_S = 0.05
DEADLINE_S = 60.0
SHEET = "/home/user/Documents/figures.xlsx"


async def cpu_s(runtime: Runtime, replica: Replica) -> float:
    """Return the CPU time of all processes of a replica so far."""
    used = (await runtime.usage(replica, deep=False)).cpu_s
    assert used is not None
    return used


async def until_quiet(guest: GuestClient, quiet_s: float) -> float:
    """Wait until the screen has not changed for `quiet_s`; return the time of the last change."""
    deadline = time.monotonic() + DEADLINE_S
    last_hash, changed = "", time.monotonic()
    while time.monotonic() < deadline:
        frame = await guest.observe(ObserveOptions(format=ImageFormat.NONE))
        now = time.monotonic()
        if frame.observation.frame.hash != last_hash:
            last_hash, changed = frame.observation.frame.hash, now
        elif now - changed >= quiet_s:
            return changed
        await asyncio.sleep(POLL_S)
    raise TimeoutError(f"the screen was not quiet within {DEADLINE_S} s")


def host_cpu_s(runtime_pids: list[int]) -> float:
    """Return the CPU time of this process and of the zygote, with their reaped children."""
    ticks = 0
    for pid in [os.getpid(), *runtime_pids]:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def sheet() -> bytes:
    book = openpyxl.Workbook()
    page = book.active
    assert page is not None
    for row in range(1, 41):
        page.append([f"item {row}", row, row * 1.5])
    data = io.BytesIO()
    book.save(data)
    return data.getvalue()


async def one_desktop(runtime: Runtime, image: ImageLike, number: int, quiet_s: float) -> dict[str, float]:
    """Create a replica, wait for ready and quiet, measure, destroy."""
    began = time.monotonic()
    replica = await runtime.create(ReplicaSpec(f"cost-{number}", number, image, ram_mib=4096))
    created = time.monotonic()
    async with GuestClient(replica.guest) as guest:
        await guest.ready(timeout_s=DEADLINE_S)
        ready = time.monotonic()
        cpu_ready = await cpu_s(runtime, replica)
        frame = await guest.observe()
        first_frame = time.monotonic()
        assert frame.image
        await asyncio.sleep(quiet_s)  # what it still does after ready; asking it would cost CPU time itself
        cpu_later = await cpu_s(runtime, replica)
    usage = await runtime.usage(replica)
    destroying = time.monotonic()
    await runtime.destroy(replica)
    return {
        "create_ms": (created - began) * 1000,
        "ready_ms": (ready - began) * 1000,
        "first_frame_ms": (first_frame - began) * 1000,
        "cpu_s_ready": cpu_ready,
        "cpu_s_later": cpu_later,
        "pss_mib": usage.pss_mib or 0.0,
        "charged_mib": usage.charged_mib or 0.0,
        "overlay_mib": usage.overlay_mib or 0.0,
        "processes": usage.processes or 0,
        "destroy_ms": (time.monotonic() - destroying) * 1000,
    }


async def in_turns(
    runtime: Runtime, images: dict[str, ImageLike], clones: int, quiet_s: float
) -> dict[str, list[dict[str, float]]]:
    """Measure fresh desktops of several images, one of each in every round, in changing order."""
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in images}
    number = 0
    for round_number in range(clones + 1):
        for name in list(images) if round_number % 2 else reversed(images):
            row = await one_desktop(runtime, images[name], number, quiet_s)
            number += 1
            if round_number:  # the first one warms the page cache
                rows[name].append(row)
    return rows


async def one_calc(runtime: Runtime, image: ImageLike, number: int, quiet_s: float) -> dict[str, float]:
    """Open a workbook in Calc on a fresh desktop, and wait until it is drawn."""
    replica = await runtime.create(ReplicaSpec(f"calc-{number}", number, image, ram_mib=4096))
    async with GuestClient(replica.guest) as guest:
        await guest.ready(timeout_s=DEADLINE_S)
        await until_quiet(guest, 0.5)
        await guest.upload(SHEET, sheet())
        before, began = await cpu_s(runtime, replica), time.monotonic()
        await guest.open_file(SHEET, timeout_s=DEADLINE_S)
        opened = time.monotonic()
        changed = await until_quiet(guest, quiet_s)
        after = await cpu_s(runtime, replica)
    usage = await runtime.usage(replica)
    await runtime.destroy(replica)
    return {
        "window_ms": (opened - began) * 1000,
        "drawn_ms": (changed - began) * 1000,
        "cpu_s_on_top": after - before,
        "cpu_s_in_all": after,
        "pss_mib": usage.pss_mib or 0.0,
    }


async def rate(runtime: Runtime, image: ImageLike, clones: int, concurrency: int) -> dict[str, float]:
    """Clone until ready and destroy at once, several side by side."""
    gate = asyncio.Semaphore(concurrency)

    async def one(number: int) -> None:
        async with gate:
            replica = await runtime.create(ReplicaSpec(f"rate-{number}", number, image, ram_mib=4096))
            async with GuestClient(replica.guest) as guest:
                await guest.ready(timeout_s=DEADLINE_S)
            await runtime.destroy(replica)

    began, busy = time.monotonic(), _busy_s()
    await asyncio.gather(*(one(number) for number in range(clones)))
    took = time.monotonic() - began
    cores = os.cpu_count() or 1
    return {
        "clones": clones,
        "concurrency": concurrency,
        "seconds": took,
        "clones_per_s": clones / took,
        "clones_per_s_and_core": clones / took / cores,
        "machine_cpu_s_per_clone": (_busy_s() - busy) / clones,
    }


def _busy_s() -> float:
    """Return the CPU time of the whole machine, without idle and waiting time."""
    fields = [int(text) for text in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


async def compare(args: argparse.Namespace) -> dict[str, Any]:
    """Run fresh desktops of two images in turns and return the raw series."""
    store = ImageStore(args.data_dir)
    images: dict[str, ImageLike] = {name: store.resolve(name) for name in (args.image, args.against)}
    with tempfile.TemporaryDirectory(prefix="cost-", dir=args.data_dir) as folder:
        runtime = LocalRuntime(Path(folder), "cost")
        await runtime.start()
        try:
            rows = await in_turns(runtime, images, args.clones, args.quiet_s)
        finally:
            await runtime.stop()
    return {
        "images": {name: image.digest for name, image in images.items()},
        "desktops": rows[args.image],
        "against": rows[args.against],
        "load_after": os.getloadavg()[0],
    }


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run all parts and return the raw series."""
    image = ImageStore(args.data_dir).resolve(args.image)
    with tempfile.TemporaryDirectory(prefix="cost-", dir=args.data_dir) as folder:
        runtime = LocalRuntime(Path(folder), "cost")
        await runtime.start()
        zygote = [runtime.supervisor_pid]
        try:
            await one_desktop(runtime, image, 0, args.quiet_s)  # warms the page cache
            host_before = host_cpu_s(zygote)
            desktops = [await one_desktop(runtime, image, n, args.quiet_s) for n in range(1, args.clones + 1)]
            host_each = (host_cpu_s(zygote) - host_before) / args.clones
            calcs = [await one_calc(runtime, image, n, args.quiet_s) for n in range(args.calcs)]
            rates = [await rate(runtime, image, args.clones * 2, n) for n in (1, os.cpu_count() or 1)]
        finally:
            await runtime.stop()
    return {
        "image": {"digest": image.digest, "flavor": image.flavor},
        "desktops": desktops,
        "host_cpu_s_per_replica": host_each,
        "calcs": calcs,
        "rates": rates,
    }


def show(name: str, rows: list[dict[str, float]]) -> None:
    """Print median and 95th percentile of each column."""
    if not rows:
        return
    print(f"\n{name} (n = {len(rows)})")
    for key in rows[0]:
        found = summary([row[key] for row in rows])
        print(
            f"  {key:16}"
            + "".join(f"  {part} {found[part]:9.3f}" for part in ("median", "p95", "min", "max"))
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--image", default="full")
    parser.add_argument("--against", help="digest or tag of another image, measured in turns with the first")
    parser.add_argument("--clones", type=int, default=20)
    parser.add_argument("--calcs", type=int, default=5, help="0 on an image without Calc")
    parser.add_argument("--quiet-s", type=float, default=1.5)
    parser.add_argument("--data-dir", type=Path, default=default_data_dir())
    args = parser.parse_args()
    begun_on = machine()
    if args.against:
        pair = asyncio.run(compare(args))
        show(f"fresh desktop of {args.image}", pair["desktops"])
        show(f"fresh desktop of {args.against}", pair["against"])
        print(f"\nsaved {save('replica_start', {'machine': begun_on, **pair})}")
        return
    found = asyncio.run(measure(args))
    show("fresh desktop", found["desktops"])
    host = found["host_cpu_s_per_replica"]
    print(f"  host agent and zygote: {host:.4f} CPU-s per replica, measuring included")
    show("Calc open on a file", found["calcs"])
    for row in found["rates"]:
        print(
            f"\n{row['clones']} clones, {row['concurrency']} at a time: {row['clones_per_s']:.2f}/s, "
            f"{row['clones_per_s_and_core']:.2f}/s and core, "
            f"{row['machine_cpu_s_per_clone']:.3f} CPU-s of the machine each"
        )
    print(f"\nsaved {save('replica_cost', {'machine': begun_on, **found})}")


if __name__ == "__main__":
    main()
