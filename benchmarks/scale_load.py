"""Clients of `client_scale`, each of which steps many replicas, and their measurements."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import quantile
from benchmarks.load_curve import TICK_S
from benchmarks.scale_hosts import STEP_MS, Host
from benchmarks.scale_raw import RawClient, RawEpisode
from osgym_sdk import AsyncClient, AsyncEpisode, OSGymError

TICK_OF_PACE_S = 0.01
ACTION = {"op": "click", "x": 100, "y": 200}


@dataclass(slots=True)
class Books:
    """Resources used between `open` and `row`, and times of steps."""

    hosts: list[Host]
    began_s: float = field(default_factory=time.monotonic)
    own_s: float = field(default_factory=time.process_time)
    servers_s: float = 0.0
    machine_s: float = 0.0
    steps: int = 0
    errors: int = 0
    step_ms: list[float] = field(default_factory=list)
    per_second: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.servers_s = sum(host.cpu_s() for host in self.hosts)
        self.machine_s = busy_s()

    def step(self, sent_s: float) -> None:
        now_s = time.monotonic()
        self.steps += 1
        self.step_ms.append((now_s - sent_s) * 1000)
        second = int(now_s - self.began_s)
        self.per_second[second] = self.per_second.get(second, 0) + 1

    def row(self, client: str, **more: Any) -> dict[str, Any]:
        """Return the results. CPU of `others` is that of other processes on the machine."""
        seconds = time.monotonic() - self.began_s
        own_s = time.process_time() - self.own_s
        servers_s = sum(host.cpu_s() for host in self.hosts) - self.servers_s
        others_s = max(0.0, busy_s() - self.machine_s - own_s - servers_s)
        added = [taken - STEP_MS for taken in self.step_ms]
        return {
            "client": client,
            **more,
            "seconds": round(seconds, 2),
            "steps": self.steps,
            "errors": self.errors,
            "steps_per_s": round(self.steps / seconds, 1),
            "client_cpu_ms_per_step": round(1000 * own_s / max(1, self.steps), 4),
            "servers_cpu_ms_per_step": round(1000 * servers_s / max(1, self.steps), 4),
            "cores_of_client": round(own_s / seconds, 3),
            "cores_of_servers": round(servers_s / seconds, 3),
            "cores_of_others": round(others_s / seconds, 3),
            "added_ms_p50": round(quantile(added, 0.5), 2),
            "added_ms_p99": round(quantile(added, 0.99), 2),
            "each_second": [self.per_second.get(second, 0) for second in range(int(seconds))],
        }


def busy_s() -> float:
    """Return the CPU time of the whole machine so far, in seconds, without waiting."""
    user, nice, system, _, _, irq, softirq = (
        int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) * TICK_S


class Sdk:
    """Client of the SDK, by `step_async` and `ready`."""

    name = "osgym_sdk"

    def __init__(self, client: AsyncClient, episodes: list[AsyncEpisode], ready: int) -> None:
        self._client, self._episodes, self._batch = client, episodes, ready
        self._sent_s: dict[AsyncEpisode, float] = {}

    def _send(self, episode: AsyncEpisode) -> None:
        self._sent_s[episode] = time.monotonic()
        self._client.step_async(episode, ACTION)

    def _take(self, episode: AsyncEpisode, outcome: Any, books: Books) -> None:
        if isinstance(outcome, OSGymError):
            books.errors += 1
        else:
            books.step(self._sent_s[episode])

    async def closed(self, seconds: float, books: Books) -> None:
        """Step each again as soon as a batch with it is ready."""
        end_s = time.monotonic() + seconds
        for episode in self._episodes:
            self._send(episode)
        while time.monotonic() < end_s:
            got = [item async for item in self._client.ready(self._batch)]
            for episode, outcome in got:
                self._take(episode, outcome, books)
                self._send(episode)

    async def settle(self) -> None:
        async for _ in self._client.ready():
            pass

    async def paced(self, seconds: float, every_s: float, books: Books, losses: Losses | None = None) -> None:
        """Step each at fixed intervals, at times of its own; late ones at once."""
        pace = Pace([*self._episodes], every_s)
        end_s = time.monotonic() + seconds

        async def send() -> None:
            while time.monotonic() < end_s:
                for episode in pace.due():
                    self._send(episode)
                await asyncio.sleep(TICK_OF_PACE_S)

        sending = asyncio.create_task(send())
        while not sending.done():
            async for episode, outcome in self._client.ready():
                if isinstance(outcome, OSGymError) and losses is not None:
                    losses.add(outcome)
                    continue
                self._take(episode, outcome, books)
                if time.monotonic() < end_s:
                    pace.again(episode)
            await asyncio.sleep(TICK_OF_PACE_S)
        await sending


class Raw:
    name = "bare"

    def __init__(self, episodes: list[RawEpisode], ready: int) -> None:
        self._episodes, self._batch = episodes, ready
        self._done: asyncio.Queue[RawEpisode] = asyncio.Queue()
        self._client = RawClient(self._done.put_nowait)
        self._open = 0

    async def closed(self, seconds: float, books: Books) -> None:
        end_s = time.monotonic() + seconds
        await self._client.step(self._episodes)
        self._open = len(self._episodes)
        while time.monotonic() < end_s:
            got = [await self._done.get() for _ in range(self._batch)]
            for episode in got:
                books.step(episode.sent_s)
            await self._client.step(got)

    async def settle(self) -> None:
        for _ in range(self._open):
            await self._done.get()
        self._open = 0
        self._client.close()

    async def paced(self, seconds: float, every_s: float, books: Books) -> None:
        pace = Pace(self._episodes, every_s)
        end_s = time.monotonic() + seconds

        async def send() -> None:
            while time.monotonic() < end_s:
                due = pace.due()
                self._open += len(due)
                await self._client.step(due)
                await asyncio.sleep(TICK_OF_PACE_S)

        sending = asyncio.create_task(send())
        while not sending.done() or self._open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_OF_PACE_S):
                    while True:
                        episode = await self._done.get()
                        self._open -= 1
                        books.step(episode.sent_s)
                        pace.again(episode)
        await sending


class Pace:
    """Schedule of steps: each is due every `every_s` seconds, spread evenly."""

    def __init__(self, members: list[Any], every_s: float) -> None:
        self._every_s, now_s = every_s, time.monotonic()
        self._due = {member: now_s + every_s * n / len(members) for n, member in enumerate(members)}
        self._waiting = dict(self._due)

    def due(self) -> list[Any]:
        """Return those that are due; none of them comes again before `again`."""
        now_s = time.monotonic()
        found = [member for member, due_s in self._waiting.items() if due_s <= now_s]
        for member in found:
            del self._waiting[member]
        return found

    def again(self, member: Any) -> None:
        """Schedule its next time, now where that is over."""
        self._due[member] += self._every_s
        self._waiting[member] = self._due[member]


@dataclass(slots=True)
class Losses:
    """Errors of the episodes of a host that was killed."""

    killed_s: float = 0.0
    found_s: list[float] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)

    def add(self, error: OSGymError) -> None:
        """Record an error, and its time after the kill."""
        self.found_s.append(round(time.monotonic() - self.killed_s, 3))
        kind = f"{type(error).__name__} ({error.details.get('cause', error.code)})"
        self.kinds[kind] = self.kinds.get(kind, 0) + 1


def rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)
