"""Cost of the dashboard for a host: its agent's CPU and its clients' steps, with the page closed and open.

    python -m benchmarks.dashboard --replicas 128 --seconds 30 --rounds 3
    python -m benchmarks.dashboard --replicas 128 --open-s 3600      # and then an hour with the page open
    python -m benchmarks.dashboard --image small --replicas 4        # real desktops: what a step takes

A host agent of its own runs over replicas that have no desktop, so what is measured is the agent's part: the
pictures are made by guests, beside what policies ask of them. Clients step all of them all the time, one step
a second each. Rounds without and with the page in a real Chromium take turns; of the open ones the page says
how long its longest task was and what its scripts hold in memory. An hour is sampled by the minute: what
grows, by how much an hour, with the 95 % interval of the slope.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.support.browser import Page, browser_page, browser_root
from tests.support.fake_runtime import Served

from benchmarks.common import local_service, per_hour, quantile, save
from osgym_sdk import AsyncClient, AsyncEpisode

SETTLE_IN_S = 5.0
EDITOR = "tasks/mousepad/write-note.json"
SAMPLE_S = 60.0
WARM_UP_SAMPLES = 5
"""Number of samples that slopes leave out, since caches fill."""
MIB = 2**20
_LONG_TASKS = (
    "window.longest = 0; new PerformanceObserver(l => l.getEntries().forEach(e => {"
    " window.longest = Math.max(window.longest, e.duration); })).observe({type: 'longtask'}); true"
)


@dataclass(frozen=True, slots=True)
class Round:
    """One round.

    Attributes:
        cpu_percent: Percent of one core, used by the host agent with its fake guests.
        longest_task_ms: Longest task of the page's main thread above 50 ms; 0 when there were none.
    """

    open: bool
    cpu_percent: float
    steps: int
    step_p50_ms: float
    step_p95_ms: float
    longest_task_ms: float | None = None
    heap_mib: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """A minute of an open page.

    Attributes:
        rss_mib: Resident memory of the agent with its fake guests.
        heap_mib: Heap of the page's scripts, after a collection.
    """

    at_s: float
    cpu_percent: float
    rss_mib: float
    heap_mib: float
    longest_task_ms: float
    steps: int
    step_p50_ms: float
    step_p95_ms: float


Used = Callable[[], tuple[float, float]]
"""Function that returns the agent's CPU seconds so far and its resident MiB."""


def _serve(pipe: Connection, folder: str, replicas: int) -> None:
    settings = {"warm": replicas, "max_replicas": replicas, "max_starting": 16, "cpu_per_replica": 0}
    with Served(Path(folder), **settings) as served:
        pipe.send(served.urls[0])
        while pipe.recv() == "used":
            for replica in served.agent.runtime.alive.values():  # type: ignore[union-attr]  # the stand-in runtime's
                replica.agent.acted.clear()  # a fake guest remembers what was done: that is not the agent's
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            pipe.send((time.process_time(), pages * resource.getpagesize() / MIB))


class Load:
    """Steps all replicas, one a second each: a pointer's move, on real desktops a letter in an editor."""

    def __init__(self, action: dict[str, Any]) -> None:
        self.step_ms: list[float] = []
        self._action = action

    async def play(self, episode: AsyncEpisode, offset_s: float) -> None:
        await asyncio.sleep(offset_s)
        while True:
            began = time.perf_counter()
            await episode.step([self._action])
            self.step_ms.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(max(0.0, 1 - (time.perf_counter() - began)))


async def _round(used: Used, load: Load, seconds: float, url: str | None) -> Round:
    if url is None:
        return await _measured(used, load, seconds, is_open=False)
    with tempfile.TemporaryDirectory() as folder:
        async with browser_page(f"{url}/ui", Path(folder), browser_root()) as page:
            await page.size(1920, 1080)
            await page.until("document.querySelectorAll('.tile').length > 0", 30)
            await page.run(_LONG_TASKS)
            found = await _measured(used, load, seconds, is_open=True)
            longest, heap = await page.run("[window.longest, performance.memory.usedJSHeapSize]")
            assert page.problems == [], page.problems
    return Round(**{**asdict(found), "longest_task_ms": longest, "heap_mib": round(heap / 2**20, 1)})


async def _measured(used: Used, load: Load, seconds: float, *, is_open: bool) -> Round:
    await asyncio.sleep(SETTLE_IN_S)
    load.step_ms.clear()
    before, began = used()[0], time.monotonic()
    await asyncio.sleep(seconds)
    cpu_s, took_s, steps = used()[0] - before, time.monotonic() - began, list(load.step_ms)
    return Round(
        is_open,
        round(100 * cpu_s / took_s, 1),
        len(steps),
        round(quantile(steps, 0.5), 2),
        round(quantile(steps, 0.95), 2),
    )


async def _open_long(used: Used, load: Load, seconds: float, url: str) -> list[Sample]:
    found: list[Sample] = []
    with tempfile.TemporaryDirectory() as folder:
        async with browser_page(f"{url}/ui", Path(folder), browser_root()) as page:
            await page.size(1920, 1080)
            await page.until("document.querySelectorAll('.tile').length > 0", 30)
            await page.run(_LONG_TASKS)
            began = time.monotonic()
            while time.monotonic() - began < seconds:
                found.append(await _sample(used, load, page, began))
                print(found[-1], flush=True)
            assert page.problems == [], page.problems
    return found


async def _sample(used: Used, load: Load, page: Page, began: float) -> Sample:
    load.step_ms.clear()
    await page.run("window.longest = 0")
    cpu_s, at = used()[0], time.monotonic()
    await asyncio.sleep(SAMPLE_S)
    (used_s, rss_mib), took_s, steps = used(), time.monotonic() - at, list(load.step_ms)
    await page.call("HeapProfiler.collectGarbage")
    longest, heap = await page.run("[window.longest, performance.memory.usedJSHeapSize]")
    return Sample(
        round(time.monotonic() - began, 1),
        round(100 * (used_s - cpu_s) / took_s, 2),
        round(rss_mib, 2),
        round(heap / MIB, 2),
        round(longest, 1),
        len(steps),
        round(quantile(steps, 0.5), 2),
        round(quantile(steps, 0.95), 2),
    )


def _asked(pipe: Connection) -> tuple[float, float]:
    pipe.send("used")
    cpu_s, rss_mib = pipe.recv()
    return float(cpu_s), float(rss_mib)


def _of_process(pid: int) -> tuple[float, float]:
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), pages * resource.getpagesize() / MIB


async def _run(used: Used, url: str, options: argparse.Namespace) -> tuple[list[Round], list[Sample]]:
    real = options.image is not None
    load = Load({"op": "type", "text": "a"} if real else {"op": "move", "x": 5, "y": 5})
    rounds, samples = [], []
    async with AsyncClient(url) as client:
        episodes = [client.episode(EDITOR if real else None, wait_s=120) for _ in range(options.replicas)]
        await asyncio.gather(*(episode.start() for episode in episodes))
        playing = [asyncio.create_task(load.play(e, i / len(episodes))) for i, e in enumerate(episodes)]
        try:
            for number in range(2 * options.rounds):
                rounds.append(await _round(used, load, options.seconds, url if number % 2 else None))
                print(rounds[-1], flush=True)
            if options.open_s:
                samples = await _open_long(used, load, options.open_s, url)
        finally:
            for task in playing:
                task.cancel()
            await asyncio.gather(*playing, return_exceptions=True)
            await asyncio.gather(*(episode.aclose() for episode in episodes))
    return rounds, samples


def figures(rounds: list[Round]) -> dict[str, Any]:
    """Return medians of the closed and the open rounds, and the difference."""
    named = {"closed": [r for r in rounds if not r.open], "open": [r for r in rounds if r.open]}
    found: dict[str, Any] = {}
    for name, group in named.items():
        for field in ("cpu_percent", "step_p50_ms", "step_p95_ms"):
            found[f"{name}_{field}"] = quantile([getattr(r, field) for r in group], 0.5)
    found["added_cpu_percent"] = round(found["open_cpu_percent"] - found["closed_cpu_percent"], 1)
    found["longest_task_ms"] = max(r.longest_task_ms or 0.0 for r in named["open"])
    return found


def long_figures(samples: list[Sample]) -> dict[str, Any]:
    """Return medians, the longest task and the growth per hour of a page that is open for long."""
    steady = samples[WARM_UP_SAMPLES:]
    at_s = [sample.at_s for sample in steady]
    found: dict[str, Any] = {
        f"open_long_{name}": quantile([getattr(s, name) for s in steady], 0.5)
        for name in ("cpu_percent", "rss_mib", "heap_mib", "step_p50_ms", "step_p95_ms")
    }
    for name in ("rss_mib", "heap_mib"):
        slope, half = per_hour(at_s, [getattr(sample, name) for sample in steady])
        found[f"open_long_{name}_per_hour"] = f"{slope} ± {half}"
    found["open_long_longest_task_ms"] = max(sample.longest_task_ms for sample in samples)
    return found


@contextlib.contextmanager
def _host(options: argparse.Namespace) -> Iterator[tuple[str, Used]]:
    """Run a host agent, with real desktops or synthetic ones; yield its URL, and a function for its usage."""
    if options.image is not None:
        with local_service(options.image, {"warm": options.replicas}) as (url, pid):
            yield url, partial(_of_process, pid)
        return
    ours, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        host = multiprocessing.Process(target=_serve, args=(theirs, folder, options.replicas))
        host.start()
        try:
            yield ours.recv(), partial(_asked, ours)
        finally:
            ours.send("end")
            host.join(60)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dashboard",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--replicas", type=int, default=128, help="leased desktops (128)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of a round (30)")
    parser.add_argument("--rounds", type=int, default=3, help="without and with the page, each (3)")
    parser.add_argument("--open-s", type=float, default=0.0, help="and then so long with the page open (0)")
    parser.add_argument("--image", help="real desktops of this image, in place of synthetic ones")
    parser.add_argument("--out", type=Path, help="where the raw series goes")
    options = parser.parse_args()
    with _host(options) as (url, used):
        rounds, samples = asyncio.run(_run(used, url, options))
    found = figures(rounds) | (long_figures(samples) if len(samples) > WARM_UP_SAMPLES + 2 else {})
    for name, value in found.items():
        print(f"{name:24} {value}")
    settings = {name: getattr(options, name) for name in ("image", "replicas", "seconds", "rounds", "open_s")}
    data = {
        "settings": settings,
        "figures": found,
        "rounds": [asdict(r) for r in rounds],
        "minutes": [asdict(s) for s in samples],
    }
    print("raw series:", save("dashboard", data, options.out))


if __name__ == "__main__":
    main()
