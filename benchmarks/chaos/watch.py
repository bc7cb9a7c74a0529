"""Resources of a host agent over a long run, and their growth."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.browser import Page, browser_page, browser_root

from benchmarks.chaos.leaks import rss_mib
from benchmarks.chaos.reach import tree_of
from benchmarks.chaos.service import Service
from benchmarks.common import per_hour

GROWS = ("rss_mib", "descriptors", "threads", "disk_mib", "processes", "heap_mib")
WARM_UP_SHARE = 0.1
"""Share of the samples that slopes leave out, since caches fill."""
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample.

    Attributes:
        starts: Number of starts of the host agent; another one holds other things.
        rss_mib, descriptors, threads: Resources of the host agent's own process.
        disk_mib: Used space on the disk of its data folder.
        heap_mib: Heap of the dashboard's page, after a collection; None where none is open.
    """

    at_s: float
    starts: int
    rss_mib: float
    descriptors: int
    threads: int
    processes: int
    disk_mib: float
    heap_mib: float | None = None


@dataclass
class Watch:
    """Takes a sample every so many seconds.

    Attributes:
        problems: Errors that ended the watch early, and errors that the page logged.
    """

    service: Service
    every_s: float
    page: Page | None = None
    samples: list[Sample] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    async def follow(self) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(self.every_s)
            heap_mib = await self._heap_mib()
            with contextlib.suppress(OSError):  # between two host agents there is none to look at
                self.samples.append(await asyncio.to_thread(self._look, time.monotonic() - began, heap_mib))

    def _look(self, at_s: float, heap_mib: float | None) -> Sample:
        pid = self.service.pid
        return Sample(
            round(at_s, 1),
            self.service.starts,
            round(rss_mib(pid), 2),
            len(os.listdir(f"/proc/{pid}/fd")),
            len(os.listdir(f"/proc/{pid}/task")),
            len(tree_of(pid)),
            round(shutil.disk_usage(self.service.folder).used / MIB, 2),
            heap_mib,
        )

    async def _heap_mib(self) -> float | None:
        if self.page is None:
            return None
        await self.page.call("HeapProfiler.collectGarbage")
        return round(await self.page.run("performance.memory.usedJSHeapSize") / MIB, 2)


@contextlib.asynccontextmanager
async def watching(service: Service, every_s: float, *, page: bool) -> AsyncIterator[Watch]:
    """Sample every `every_s` seconds (0: never), with the dashboard open in a real Chromium or without."""
    async with contextlib.AsyncExitStack() as stack:
        watch = Watch(service, every_s)
        if page:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            watch.page = await stack.enter_async_context(
                browser_page(f"{service.url}/ui", folder, browser_root())
            )
        if every_s:
            following = asyncio.create_task(watch.follow())
            stack.push_async_callback(_ended, following, watch)
        yield watch


async def _ended(following: asyncio.Task[None], watch: Watch) -> None:
    following.cancel()
    (outcome,) = await asyncio.gather(following, return_exceptions=True)
    if not isinstance(outcome, asyncio.CancelledError):
        watch.problems.append(f"the watch ended after {len(watch.samples)} looks: {outcome!r}")
    if watch.page is not None:
        watch.problems += [f"the dashboard's page: {line}" for line in watch.page.problems]


def slopes(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """Return growth per hour, with half of its 95 % interval, of one host agent after its caches are filled.

    >>> one = [Sample(900.0 * n, 1, 100 + n, 20, 8, 50, 10.0) for n in range(5)] >>> slopes(one)["rss_mib"]
    {'per_hour': 4.0, 'half_interval': 0.0, 'median': 103.0}
    """
    steady = [s for s in samples[int(len(samples) * WARM_UP_SHARE) :] if s.starts == samples[-1].starts]
    if len(steady) < 3:
        return {}
    found = {}
    for name in GROWS:
        values = [getattr(sample, name) for sample in steady]
        if None not in values:
            slope, half = per_hour([sample.at_s for sample in steady], values)
            middle = sorted(values)[len(values) // 2]
            found[name] = {"per_hour": slope, "half_interval": half, "median": middle}
    return found
