"""Watch of all hosts: polls them while somebody views the page, and keeps their last answers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections import deque
from typing import Any
from urllib.parse import quote

from osgym_cli.fleet_dashboard.views import (
    HostView,
    Row,
    key_of,
    merge_episodes,
    merge_run_episodes,
    merge_runs,
    name_hosts,
)
from osgym_sdk import AsyncClient, OSGymError

EVERY_S = 1.0
PAUSE_FACTOR = 4.0
"""Pause after a slow round, as a multiple of its duration: large fleets are polled less often."""
AT_ONCE = 64
ASK_S = 5.0
HISTORY_S = 10.0
LOOKED_AT_S = 30.0
"""Time without a request after which nobody is taken to view the page, and hosts are no longer polled."""
KEPT_EVENTS = 2000
EVENTS_WAIT_S = 20.0
EVENTS_RETRY_S = 3.0
OF_EACH = 50
"""Smallest number of ended episodes of each host in a list, however many hosts share it."""
EPISODES_S = 2.0
"""Largest age of a list of episodes that several viewers share."""


class FleetWatch:
    """Recent state of the hosts of one client, for one event loop.

    Attributes:
        views: Views of the hosts by their key.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.views: dict[str, HostView] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._looked_s = float("-inf")
        self._wanted = asyncio.Event()
        self._seen = asyncio.Event()
        self._events: deque[Row] = deque(maxlen=KEPT_EVENTS)
        self._ids = itertools.count(1)
        self._more = asyncio.Condition()
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._episodes: tuple[float, list[Row]] = (float("-inf"), [])
        self._listing = asyncio.Lock()

    def start(self) -> None:
        """Start polling; hosts are asked only while somebody views the page."""
        self._task = asyncio.create_task(self._run(), name="fleet-dashboard")

    async def close(self) -> None:
        """Stop polling. Idempotent."""
        tasks = [task for task in (self._task, *self._followers.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._followers.clear()

    async def looked(self) -> None:
        """Note that somebody views the page; wait for the first answers if there are none yet."""
        idle = not self._looking
        self._looked_s = time.monotonic()
        if idle:
            self._seen.clear()
            self._wanted.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ASK_S):
                await self._seen.wait()

    async def events(self, after: int, wait_s: float) -> dict[str, Any]:
        """Return the events of all hosts newer than `after`; wait up to `wait_s` for the first."""
        await self.looked()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s), self._more:
                await self._more.wait_for(lambda: bool(self._events) and self._events[-1]["id"] > after)
        self._looked_s = time.monotonic()
        last = self._events[-1]["id"] if self._events else 0
        return {"events": [one for one in self._events if one["id"] > after], "last_id": last}

    async def episodes(self, limit: int) -> list[Row]:
        """Return the latest episodes of all hosts; those of hosts that do not answer are missing."""
        await self.looked()
        async with self._listing:
            taken_s, rows = self._episodes
            if time.monotonic() - taken_s > EPISODES_S or len(rows) < limit:
                rows = await self._ask_for_episodes(limit)
                self._episodes = (time.monotonic(), rows)
        return rows[:limit]

    async def runs(self) -> list[Row]:
        """Return the runs of all hosts that answer."""
        await self.looked()
        return merge_runs([rows for _, rows in await self._ask_all("/v1/runs")])

    async def run_episodes(self, run: str) -> list[Row]:
        """Return the latest episodes of one run on all hosts that answer."""
        await self.looked()
        return merge_run_episodes(await self._ask_all(f"/v1/runs/episodes?run={quote(run, safe='')}"))

    async def _ask_for_episodes(self, limit: int) -> list[Row]:
        answering = sum(not view.error for view in self.views.values())
        each = limit if answering < 2 else min(limit, max(OF_EACH, 4 * limit // answering))
        return merge_episodes(await self._ask_all(f"/v1/episodes?limit={each}"), limit)

    async def _ask_all(self, path: str) -> list[tuple[HostView, list[Row]]]:
        """Ask every reachable host for a list; the list is empty for hosts that fail now."""

        async def ask(view: HostView) -> list[Row]:
            try:
                async with self._gate:
                    found: list[Row] = await self._json(view, path)
                    return found
            except (OSGymError, ValueError):
                return []

        views = [view for view in self.views.values() if not view.error]
        found = await asyncio.gather(*(ask(view) for view in views))
        return list(zip(views, found, strict=True))

    @property
    def _looking(self) -> bool:
        return time.monotonic() - self._looked_s < LOOKED_AT_S

    async def _run(self) -> None:
        while True:
            if not self._looking:
                self._wanted.clear()
                for task in self._followers.values():
                    task.cancel()
                self._followers.clear()
                await self._wanted.wait()
            began_s = time.monotonic()
            await self._round()
            self._seen.set()
            took_s = time.monotonic() - began_s
            await asyncio.sleep(max(EVERY_S - took_s, PAUSE_FACTOR * took_s if took_s > EVERY_S / 4 else 0))

    async def _round(self) -> None:
        known = {view.url: view for view in self.views.values()}
        urls = self._client.hosts
        for url in urls:
            if url not in known:
                view = HostView(key_of(url, self.views), url)
                self.views[view.key] = known[url] = view
        for url in set(known) - set(urls):
            view = known.pop(url)
            del self.views[view.key]
            if (task := self._followers.pop(view.key, None)) is not None:
                task.cancel()
        await asyncio.gather(*(self._look(view) for view in known.values()))
        name_hosts(self.views.values())

    async def _look(self, view: HostView) -> None:
        now_s = time.monotonic()
        wants_history = now_s - view.history_s >= HISTORY_S
        last = round((now_s - view.history_s) / HISTORY_S) + 2 if view.samples else 0
        paths = ["/v1/host", "/v1/pool", "/v1/replicas"]
        if wants_history:
            paths.append(f"/v1/history?last={last}" if last else "/v1/history")
        try:
            async with self._gate:
                state, pool, replicas, *history = await asyncio.gather(*(self._json(view, p) for p in paths))
            view.state, view.pool, view.replicas = state, pool, replicas
            if history:
                view.take_history(history[0])
                view.history_s = now_s
        except (OSGymError, ValueError, KeyError, TypeError) as error:
            view.error = _said(error)
            view.replicas = ()
            return
        view.error = ""
        if view.key not in self._followers or self._followers[view.key].done():
            self._followers[view.key] = asyncio.create_task(self._follow(view))

    async def _follow(self, view: HostView) -> None:
        after = 0
        while True:
            path = f"/v1/events?after={after}&wait_s={EVENTS_WAIT_S:g}"
            try:
                said = await self._json(view, path, EVENTS_WAIT_S + ASK_S)
                events, last = said["events"], said["last_id"]
            except (OSGymError, ValueError, KeyError, TypeError):
                await asyncio.sleep(EVENTS_RETRY_S)
                continue
            after = events[-1]["id"] if events else (after if last >= after else 0)
            if events:
                async with self._more:
                    extra = {"at": view.at, "host": view.name}
                    self._events.extend({**one, **extra, "id": next(self._ids)} for one in events)
                    self._more.notify_all()

    async def _json(self, view: HostView, path: str, timeout_s: float = ASK_S) -> Any:
        reply = await self._client.ask_host(view.url, path, timeout_s=timeout_s)
        if reply.status != 200:
            raise ValueError(_refused(reply.status, reply.body))
        return json.loads(reply.body)


def _refused(status: int, body: bytes) -> str:
    if status == 401:
        return "the host refuses the token"
    try:
        return f"it answers {status}: {str(json.loads(body)['message'])[:200]}"
    except (ValueError, KeyError, TypeError):
        return f"it answers {status}, which is not a host agent's answer"


def _said(error: Exception) -> str:
    if isinstance(error, KeyError | TypeError):
        return "the host's answer is not that of a host agent of this version"
    return error.message if isinstance(error, OSGymError) else str(error)
