"""Instructions of the interpreter in our own code, a step: SDK, HTTP, host agent, a stand-in for the guest.

All of it runs in one process and one event loop over real sockets; only instructions of functions in our
own packages count, so that what other packages do, and how sockets cut the bytes, is left out. What the host
agent does beside steps (its pool, its watch) falls into some of them, into more on a busy machine; the
least of all steps has none of it and is the same from run to run.
"""

from __future__ import annotations

import asyncio
import collections
import functools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.support.fake_runtime import TASK, FakeImage, FakeRuntime

from osgym_host.app import HostAgent
from osgym_host.runtimes.kind import ImageRef
from osgym_host.server import HostServer, bind, urls
from osgym_host.settings import Settings
from osgym_sdk import AsyncClient, AsyncEpisode

PACKAGES = ("osgym_sdk", "osgym_host", "osgym_protocol")
STEPS = 21
WARM_STEPS = 5
"""Number of steps before the counted ones, for what is set up at first use."""
Trace = Callable[[FrameType, str, Any], Any]


@functools.cache
def package_of(code: CodeType) -> str:
    """Return the package of ours that has the code; empty for none."""
    return next((name for name in PACKAGES if f"/{name}/" in code.co_filename), "")


class Counter:
    """Counts instructions of the interpreter by package, in all threads, while it is on."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Trace | None:
        name = package_of(frame.f_code)
        if not name:
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        counts = self.counts

        def count(frame: FrameType, event: str, argument: Any) -> Trace:
            if event == "opcode":
                counts[name] += 1
            return count

        return count

    def __enter__(self) -> Counter:
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]  # as documented; the stub forgets it


async def _steps(episode: AsyncEpisode, counter: Counter, kind: str) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {name: [] for name in PACKAGES}
    for number in range(WARM_STEPS + STEPS):
        counter.counts.clear()
        if kind == "click":
            await episode.step({"op": "click", "x": 100 + number, "y": 200})
        else:
            await episode.step([{"op": "key", "keys": ["ctrl", "a"]}, {"op": "type", "text": "Grüße ☃" * 4}])
        if number >= WARM_STEPS:
            for name in PACKAGES:
                rows[name].append(counter.counts[name])
    return rows


async def _measure(folder: Path) -> dict[str, list[int]]:
    settings = Settings(
        data_dir=folder / "data", ports=[0], trajectory="off",
        ram_reserve_mib=0, replica_ram_mib=64, disk_reserve_mib=0, max_replicas=2, warm=1,
    )  # fmt: skip
    agent = HostAgent(settings, ImageRef(FakeImage(), "small"), FakeRuntime(folder / "r"))
    sockets = bind(settings)
    server = HostServer(agent.app(), settings, agent.begin_stop, agent.end_episodes)
    await agent.start()
    serving = asyncio.create_task(server.serve(sockets=sockets))
    found: dict[str, list[int]] = {}
    try:
        with Counter() as counter:
            async with AsyncClient(urls(settings, sockets)[0]) as client, client.episode(TASK) as episode:
                for kind in ("click", "keys"):
                    for name, values in (await _steps(episode, counter, kind)).items():
                        found[f"{kind}/{name}"] = values
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, 60)
        await agent.stop()
    return found


def counts(scratch: Path) -> dict[str, int]:
    """Return instructions per step: the least of `STEPS`, by kind of step and package."""
    found = asyncio.run(_measure(scratch))
    return {name: min(values) for name, values in sorted(found.items())}
