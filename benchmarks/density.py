"""Density: start replicas until admission refuses, act in every one, show the memory curve.

    python -m benchmarks.density --budget-gib 16 --image full

Memory is what the host really lost (MemAvailable before minus now), beside the sum of the replicas' PSS.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks.common import argument_parser, local_service, machine, meminfo_mib, quantile, save, summary
from osgym_sdk import AsyncClient, AsyncEpisode, NoCapacity, OSGymError


async def _step_all(episodes: list[AsyncEpisode], concurrency: int) -> tuple[list[float], int]:
    """Click on the desktop in every episode; return the latencies in ms and the number of failures."""
    gate = asyncio.Semaphore(concurrency)
    latencies: list[float] = []
    failed = 0

    async def one(number: int, episode: AsyncEpisode) -> None:
        nonlocal failed
        async with gate:
            began = time.monotonic()
            try:
                await episode.step({"op": "click", "x": 600 + number % 700, "y": 500, "button": "right"})
                await episode.step({"op": "key", "keys": ["escape"]})
            except OSGymError as error:
                failed += 1
                print(f"  episode {number}: {error}")
            else:
                latencies.append((time.monotonic() - began) * 500)

    await asyncio.gather(*(one(i, e) for i, e in enumerate(episodes)))
    return latencies, failed


async def _measure(url: str, every: int, before_mib: float, wait_s: float) -> dict[str, Any]:
    curve: list[dict[str, float]] = []
    episodes: list[AsyncEpisode] = []
    async with AsyncClient(url) as client:
        began = time.monotonic()
        refused = ""
        while not refused:
            episode = client.episode(wait_s=wait_s)
            try:
                await episode.start()
            except NoCapacity as error:
                refused = str(error)
            else:
                episodes.append(episode)
            if refused or len(episodes) % every == 0:
                used = before_mib - meminfo_mib()["MemAvailable"]
                row = {"replicas": len(episodes), "s": time.monotonic() - began, "host_mib": used}
                curve.append(row)
                print(
                    f"  {len(episodes):4d} leased  {row['s']:7.1f} s  host lost {used:8.0f} MiB", flush=True
                )
        latencies, failed = await _step_all(episodes, concurrency=8)
        after = before_mib - meminfo_mib()["MemAvailable"]
        host = next(iter((await client.host_states()).values()))
        print(
            f"refused: {refused}\nall stepped: {len(latencies)} answered, {failed} failed; median "
            f"{quantile(latencies, 0.5):.0f} ms, p95 {quantile(latencies, 0.95):.0f} ms, 8 at a time; "
            f"host lost {after:.0f} MiB, {after / max(1, len(episodes)):.0f} MiB each"
        )
        await asyncio.gather(*(episode.aclose() for episode in episodes))
    return {
        "replicas": len(episodes),
        "refused": refused,
        "curve": curve,
        "step_ms": latencies,
        "step": summary(latencies),
        "failed": failed,
        "host_mib_after_steps": after,
        "host_state": str(host),
    }


def main() -> None:
    parser = argument_parser(__doc__, image="full")
    parser.add_argument("--budget-gib", type=float, default=16.0, help="memory that replicas may use (16)")
    parser.add_argument("--every", type=int, default=10, help="a point of the curve every N replicas")
    parser.add_argument(
        "--wait-s", type=float, default=30.0, help="how long to wait before it counts as refused"
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a host setting")
    args = parser.parse_args()
    before = meminfo_mib()["MemAvailable"]
    reserve = int(before - args.budget_gib * 1024)
    if reserve < 512:
        parser.error(f"only {before:.0f} MiB are available; give a smaller --budget-gib")
    settings = {
        "ram_reserve_mib": reserve, "max_replicas": 4096, "cpu_per_replica": 0, "warm": 2,
        "trajectory": "off", "replica_ram_mib": 512,
    } | dict(pair.split("=", 1) for pair in args.set)  # fmt: skip
    print(f"{machine()}\nbudget {args.budget_gib} GiB of {before:.0f} MiB available, image {args.image}")
    with local_service(args.image, settings) as (url, _):
        result = asyncio.run(_measure(url, args.every, before, args.wait_s))
    where = save("density", {"machine": machine(), "settings": settings, **result}, args.out)
    print(f"{result['replicas']} replicas in {args.budget_gib} GiB; raw series in {where}")


if __name__ == "__main__":
    main()
