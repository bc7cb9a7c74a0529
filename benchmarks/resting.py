"""Resting replicas: how many desktops live on this machine, what each costs, and how fast they wake.

    python -m benchmarks.resting                                   # grow to 1,500, then work 1,024 for 30 min
    python -m benchmarks.resting --replicas 200 --worked 100 --minutes 3 --points 1,100,200

It leases desktops one after the other. At each point of the curve it waits until they rest, and measures the
memory that the host lost, steps of resting and of awake desktops, and resets. Then policies that think for a
minute between steps work on most of them, while the others rest. All frames of these steps are checked: a
menu opens and closes, so that each frame must show one of three pictures, but for the panel with its clock.
This host needs compressed swap: see `osgym doctor`.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image, ImageChops

from benchmarks.common import (
    argument_parser,
    local_service,
    machine,
    meminfo_mib,
    quantile,
    save,
    summary,
)
from osgym_host.runtimes.swap import read_swap
from osgym_sdk import AsyncClient, AsyncEpisode, OSGymError, Timeouts

OPEN = {"op": "click", "x": 900, "y": 500, "button": "right"}
CLOSE = {"op": "key", "keys": ["escape"]}
AT_ONCE = 8
SAMPLE = 24
"""Number of desktops that are stepped, and of those that are reset, at each point of the curve."""
PANEL_PX = 40
"""Height of the strip at the bottom of the screen that is not compared: the panel with its clock."""
REST_TIMEOUT_S = 900.0


@dataclass
class Frames:
    """Frames of all steps: one picture for each hash, compared after the run."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    pictures: dict[str, bytes] = field(default_factory=dict)

    def add(self, kind: str, digest: str, png: bytes) -> None:
        self.counts.setdefault(kind, Counter())[digest] += 1
        self.pictures.setdefault(digest, png)

    def wrong(self, pictures: Path | None) -> dict[str, int]:
        """Return how many frames of each kind differ from the most frequent one outside the panel.

        Args:
            pictures: Folder that gets each of them, and the frequent ones.
        """
        found = {}
        for kind, counts in self.counts.items():
            usual = counts.most_common(1)[0][0]
            reference = self._content(usual)
            others = [digest for digest in counts if self._differs(reference, digest)]
            found[kind] = sum(counts[digest] for digest in others)
            if pictures is not None:
                pictures.mkdir(parents=True, exist_ok=True)
                for digest in (usual, *others):
                    name = f"{kind}, {'usual' if digest == usual else counts[digest]}, {digest}.png"
                    (pictures / name).write_bytes(self.pictures[digest])
        return found

    def _differs(self, reference: Image.Image, digest: str) -> bool:
        return ImageChops.difference(reference, self._content(digest)).getbbox() is not None

    def _content(self, digest: str) -> Image.Image:
        image = Image.open(io.BytesIO(self.pictures[digest])).convert("RGB")
        return image.crop((0, 0, image.width, image.height - PANEL_PX))


class Desktops:
    """Leased desktops of one host agent, and what their steps took."""

    def __init__(self, client: AsyncClient, url: str, before_mib: float) -> None:
        self.url = url
        self.client = client
        self.before_mib = before_mib
        self.episodes: list[AsyncEpisode] = []
        self.frames = Frames()
        self.failures: Counter[str] = Counter()
        self._used: set[str] = set()

    async def grow(self, count: int) -> float:
        """Lease desktops until there are `count`; return the time it took in seconds."""
        began = time.monotonic()
        missing = iter(range(count - len(self.episodes)))

        async def work() -> None:
            for _ in missing:
                self.episodes.append(await self.lease())

        await asyncio.gather(*(work() for _ in range(4)))
        return time.monotonic() - began

    async def lease(self) -> AsyncEpisode:
        episode = self.client.episode(wait_s=300, lease_ttl_s=1800)
        await episode.start()
        return episode

    async def rest(self) -> float:
        """Wait until all desktops rest; return the memory in MiB that the host lost."""
        until = time.monotonic() + REST_TIMEOUT_S
        while time.monotonic() < until:
            stages = Counter(row["rest"] for row in await self.replicas())
            if stages["reclaimed"] >= len(self.episodes):
                break
            await asyncio.sleep(2)
        return self.lost_mib()

    def lost_mib(self) -> float:
        return self.before_mib - meminfo_mib()["MemAvailable"]

    async def replicas(self) -> list[dict[str, Any]]:
        reply = await self.client.ask_host(self.url, "/v1/replicas")
        return list(json.loads(reply.body))

    async def step(self, episode: AsyncEpisode, kind: str) -> float | None:
        """Open or close the menu; return the time in ms, None for a failure."""
        began = time.perf_counter()
        try:
            seen = await episode.step(OPEN if kind == "open" else CLOSE)
        except OSGymError as error:
            self.failures[f"{type(error).__name__}: {error}".partition(" (")[0][:300]] += 1
            return None
        took_ms = (time.perf_counter() - began) * 1000
        # From the second time on, the menu underlines letters, since a key was used before.
        is_first = kind == "open" and episode.episode_id not in self._used
        self._used.add(episode.episode_id)
        self.frames.add("first open" if is_first else kind, seen.hash, seen.png)
        return took_ms

    async def wakes(self, chosen: list[AsyncEpisode]) -> dict[str, list[float]]:
        """Step resting desktops, `AT_ONCE` at a time: the first step wakes, the second finds them awake."""
        gate = asyncio.Semaphore(AT_ONCE)
        found: dict[str, list[float]] = {"wake_ms": [], "awake_ms": []}

        async def one(episode: AsyncEpisode) -> None:
            async with gate:
                first, second = await self.step(episode, "open"), await self.step(episode, "closed")
            found["wake_ms"] += [first] if first is not None else []
            found["awake_ms"] += [second] if second is not None else []

        await asyncio.gather(*map(one, chosen))
        return found

    async def resets(self, count: int) -> float:
        """End and lease `count` desktops, two at a time; return resets per minute."""
        gate = asyncio.Semaphore(2)

        async def one(place: int) -> None:
            async with gate:
                await self.episodes[place].aclose()
                self.episodes[place] = await self.lease()

        began = time.monotonic()
        await asyncio.gather(*map(one, random.sample(range(len(self.episodes)), count)))
        return 60 * count / (time.monotonic() - began)


async def curve(desktops: Desktops, points: list[int]) -> list[dict[str, Any]]:
    rows = []
    for count in points:
        grow_s = await desktops.grow(count)
        lost_mib = await desktops.rest()
        chosen = random.sample(desktops.episodes, min(SAMPLE, count))
        cpu_before = busy_cpu_s()
        steps = await desktops.wakes(chosen)
        await desktops.rest()
        cpu_ms = 1000 * (busy_cpu_s() - cpu_before) / len(chosen)
        resets = await desktops.resets(min(SAMPLE, count))
        swap = read_swap()
        row = {
            "replicas": count, "lost_mib": lost_mib, "each_mib": lost_mib / count, "grow_s": grow_s,
            "swapped_mib": swap.total_mib - swap.free_mib, "swap_ratio": swap.ratio,
            "wake_cpu_ms": cpu_ms, "resets_per_min": resets, **steps,
        }  # fmt: skip
        rows.append(row)
        print(
            f"  {count:5d} desktops  {row['each_mib']:6.1f} MiB each  step that wakes "
            f"{quantile(steps['wake_ms'], 0.5):5.0f} ms (p95 {quantile(steps['wake_ms'], 0.95):.0f})  awake "
            f"{quantile(steps['awake_ms'], 0.5):5.0f} ms (p95 {quantile(steps['awake_ms'], 0.95):.0f})  "
            f"{cpu_ms:4.0f} ms of CPU for both and the rest  {resets:5.0f} resets/min  "
            f"grown in {grow_s:.0f} s",
            flush=True,
        )
    return rows


async def batch(desktops: Desktops, count: int) -> dict[str, Any]:
    """Step `count` resting desktops all at once."""
    began = time.monotonic()
    chosen = desktops.episodes[:count]
    took = [ms for ms in await asyncio.gather(*(desktops.step(e, "open") for e in chosen)) if ms is not None]
    whole_s = time.monotonic() - began
    await asyncio.gather(*(desktops.step(episode, "closed") for episode in chosen))
    print(
        f"  one batch of {count} steps: {whole_s:.1f} s, {count / whole_s:.1f} steps/s, "
        f"p50 {quantile(took, 0.5):.0f} ms, p99 {quantile(took, 0.99):.0f} ms",
        flush=True,
    )
    return {"count": count, "whole_s": whole_s, "step_ms": took}


async def work(desktops: Desktops, count: int, think_s: float, minutes: float) -> dict[str, Any]:
    """Work `count` desktops by policies that think, while the others rest."""
    until = time.monotonic() + minutes * 60
    rows: list[tuple[float, float]] = []
    before = await desktops.replicas()
    idle = {e.episode_id for e in desktops.episodes[count:]}
    pids = [row["pid"] for row in before if row["episode_id"] in idle]
    cpu_before, began, kills = (cpu_s(pids), busy_cpu_s()), time.monotonic(), oom_kills()

    async def policy(episode: AsyncEpisode) -> None:
        kind = "open"
        await asyncio.sleep(random.uniform(0, think_s))
        while time.monotonic() < until:
            took_ms = await desktops.step(episode, kind)
            if took_ms is not None:
                rows.append((round(time.monotonic() - began, 2), round(took_ms, 1)))
            kind = "closed" if kind == "open" else "open"
            await asyncio.sleep(random.uniform(0.5, 1.5) * think_s)

    samples: list[dict[str, float]] = []

    async def watch() -> None:
        while True:
            stages = Counter(row["rest"] for row in await desktops.replicas())
            samples.append(
                {
                    "s": round(time.monotonic() - began),
                    "available_mib": round(meminfo_mib()["MemAvailable"]),
                    **{stage: stages[stage] for stage in ("awake", "paused", "reclaimed")},
                }
            )
            print(f"  {samples[-1]}  {len(rows)} steps, {desktops.failures.total()} failures", flush=True)
            await asyncio.sleep(60)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*map(policy, desktops.episodes[:count]))
    watching.cancel()
    passed_s = time.monotonic() - began
    latencies = [ms for _, ms in rows]
    gone = {row["pid"] for row in before} - {row["pid"] for row in await desktops.replicas()}
    found = {
        "worked": count, "think_s": think_s, "minutes": minutes, "steps": len(rows),
        "steps_per_s": sum(at <= minutes * 60 for at, _ in rows) / (minutes * 60),
        "latency": summary(latencies), "p99_ms": quantile(latencies, 0.99), "resting": len(pids),
        "resting_cpu": (cpu_s(pids) - cpu_before[0]) / passed_s,
        "whole_cpu": (busy_cpu_s() - cpu_before[1]) / passed_s,
        "oom_kills": oom_kills() - kills,
        "samples": samples, "at_s": [at for at, _ in rows], "step_ms": latencies,
    }  # fmt: skip
    print(
        f"  {count} worked for {passed_s / 60:.1f} min: {found['steps_per_s']:.1f} steps/s, p50 "
        f"{found['latency']['median']:.0f} ms, p95 {found['latency']['p95']:.0f} ms, "
        f"p99 {found['p99_ms']:.0f} ms; {len(gone)} lost\n  CPU, cores: "
        f"{found['resting_cpu']:.4f} by {len(pids)} that rested, {found['whole_cpu']:.2f} by the whole "
        f"machine; {found['oom_kills']} killed by the kernel",
        flush=True,
    )
    return found


def cpu_s(pids: list[int]) -> float:
    """Return the CPU time of the control groups of replicas, by their first processes."""
    top = Path("/sys/fs/cgroup/unified")
    top = top if top.exists() else top.parent
    whole = 0.0
    for pid in pids:
        path = Path(f"/proc/{pid}/cgroup").read_text().rsplit("0::/", 1)[1].strip()
        whole += int((top / path / "cpu.stat").read_text().split()[1]) / 1e6
    return whole


def busy_cpu_s() -> float:
    """Return the CPU time that this machine has used, for whatever it did."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split()[1:10])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def oom_kills() -> int:
    rows = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return int(rows["oom_kill"])


async def measure(
    url: str, args: argparse.Namespace, before_mib: float, keep: Callable[[dict[str, Any]], Path]
) -> Path:
    """Measure everything, and save what there is after each phase, since the whole takes an hour."""
    async with AsyncClient(url, timeouts=Timeouts(step_s=600)) as client:
        desktops = Desktops(client, url, before_mib)
        result: dict[str, Any] = {"curve": await curve(desktops, args.points)}
        where = keep(result)
        if args.worked:
            await desktops.rest()
            result["batch"] = await batch(desktops, args.worked)
            keep(result)
            result["work"] = await work(desktops, args.worked, args.think_s, args.minutes)
            result["alive"] = len(await desktops.replicas())
        result["frames"] = {kind: sum(counts.values()) for kind, counts in desktops.frames.counts.items()}
        result["wrong_frames"] = desktops.frames.wrong(args.pictures)
        result["failures"] = desktops.failures
        print(
            f"  frames {result['frames']}, wrong {result['wrong_frames']}; failures {dict(desktops.failures)}"
        )
        where = keep(result)
        for episode in desktops.episodes:
            await episode.aclose()
        return where


def main() -> None:
    parser = argument_parser(__doc__, image="full")
    parser.add_argument("--replicas", type=int, default=1500, help="desktops in the end (1500)")
    parser.add_argument("--points", help="numbers of desktops of the curve, divided by commas")
    parser.add_argument("--worked", type=int, default=1024, help="desktops that policies work on (1024)")
    parser.add_argument("--think-s", type=float, default=60.0, help="mean time between two steps (60)")
    parser.add_argument("--minutes", type=float, default=30.0, help="duration of the work (30)")
    parser.add_argument("--pictures", type=Path, help="folder for frames that are not as expected")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a host setting")
    args = parser.parse_args()
    text = args.points or ",".join(str(n) for n in (1, 100, 300, 600, 900, 1200) if n < args.replicas)
    args.points = sorted({*map(int, text.split(",")), args.replicas})
    if not read_swap().total_mib:
        parser.error("this host has no swap; `osgym doctor` says how to get compressed swap")
    before = meminfo_mib()["MemAvailable"]
    settings = {
        "rest": "reclaim", "reclaim_after_s": 4, "max_replicas": min(4096, args.replicas + 16),
        "cpu_per_replica": 0, "warm": 2, "trajectory": "off", "replica_ram_mib": 512,
    } | dict(pair.split("=", 1) for pair in args.set)  # fmt: skip
    print(f"{machine()}\nswap {read_swap()}, image {args.image}, settings {settings}")
    about = {"machine": machine(), "swap": str(read_swap()), "settings": settings}

    def keep(result: dict[str, Any]) -> Path:
        return save("resting", {**about, **result}, args.out)

    with local_service(args.image, settings) as (url, _):
        where = asyncio.run(measure(url, args, before, keep))
    print(f"raw series in {where}")


if __name__ == "__main__":
    main()
