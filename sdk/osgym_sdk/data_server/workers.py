"""The environments of a data loader, each a coroutine on one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import logging
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from osgym_sdk import _sigterm
from osgym_sdk._client import AsyncClient
from osgym_sdk._daemon import DaemonThread
from osgym_sdk._exceptions import ConfigError, OSGymError
from osgym_sdk._sync.portal import Portal
from osgym_sdk.data_server.environment import OSGymEnv
from osgym_sdk.data_server.replay import Item

_LOG = logging.getLogger("osgym.sdk")

MAX_FAILURES = 5
"""An environment that fails so often in a row is not replaced any more."""
_PAUSE_S = 0.5
"""After a failure, doubled with each."""
_CLOSE_S = 15.0


@dataclass(frozen=True, slots=True)
class Lost:
    """An environment failed in the middle of an episode, and is replaced."""

    worker_id: int
    uid: str


@dataclass(frozen=True, slots=True)
class Dead:
    """An environment failed too often."""

    worker_id: int
    error: Exception


Event = Item | Lost | Dead


class Workers:
    """Runs environments until they are closed. An environment waits for its answer after each state."""

    def __init__(
        self, env_class: Callable[..., Any], env_configs: Sequence[Mapping[str, Any]], step_timeout_s: float
    ) -> None:
        self.closed = False
        self.clock = time.monotonic
        self._env_class = env_class
        self._configs = env_configs
        self._step_timeout_s = step_timeout_s
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._waiting: dict[int, tuple[dict[str, Any], asyncio.Future[str]]] = {}
        """The ``meta_info`` of the state and the future of the answer, by worker."""
        urls = {config.get("server_url") or "" for config in env_configs} if env_class is OSGymEnv else ()
        self._clients = {url: AsyncClient(url or None) for url in urls}
        self._tasks: list[asyncio.Task[None]] = []
        self._portal = Portal()
        self._portal.call(self._begin())
        atexit.register(self.close)

    def take(self, wait_s: float) -> list[Event]:
        """Return what came; when there is nothing, wait for the first for so long."""
        events: list[Event] = []
        try:
            if wait_s > 0:
                events.append(self._events.get(timeout=wait_s))
            while True:
                events.append(self._events.get_nowait())
        except queue.Empty:
            return events

    def answer(self, worker_id: int, meta: Mapping[str, Any], said: str) -> bool:
        """Give an environment its answer; False when that turn of that episode does not wait for one."""
        return not self.closed and self._portal.call(self._answer(worker_id, dict(meta), said))

    def idle(self) -> bool:
        """Tell that every living environment waits for an answer: nothing comes before one is given."""
        return not self.closed and self._portal.call(self._idle())

    def close(self) -> None:
        """Stop all and give back what they hold. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._portal.call(self._end())
        self._portal.close()
        for client in self._clients.values():
            _sigterm.forget(client)  # here: the thread of the environments may not touch signals
        atexit.unregister(self.close)

    async def _begin(self) -> None:
        self._tasks = [
            asyncio.create_task(self._run(index), name=f"osgym-worker-{index}")
            for index in range(len(self._configs))
        ]

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(client.aclose() for client in self._clients.values()), return_exceptions=True)

    async def _idle(self) -> bool:
        waiting = sum(not future.done() for _, future in self._waiting.values())
        return waiting == sum(not task.done() for task in self._tasks)

    async def _answer(self, worker_id: int, meta: dict[str, Any], said: str) -> bool:
        asked, future = self._waiting.get(worker_id, ({}, None))
        if future is None or future.done() or asked["uid"] != meta.get("uid"):
            return False
        if asked["turn"] != meta.get("turn", asked["turn"]):
            return False
        future.set_result(said)
        return True

    async def _run(self, worker_id: int) -> None:
        """Play episodes; replace the environment when it fails."""
        failures = 0
        while failures < MAX_FAILURES:
            played = _Played()
            try:
                await self._play(worker_id, played)
            except Exception as exc:  # noqa: BLE001 - other people's environments may raise anything
                failures = 1 if played.steps else failures + 1
                _LOG.warning("environment %d failed and is replaced: %s", worker_id, exc)
                if played.uid:
                    self._events.put(Lost(worker_id, played.uid))
                if failures >= MAX_FAILURES or isinstance(exc, ConfigError) or _hopeless(exc):
                    self._events.put(Dead(worker_id, exc))
                    return
                await asyncio.sleep(_PAUSE_S * 2 ** (failures - 1))
            finally:
                self._waiting.pop(worker_id, None)

    async def _play(self, worker_id: int, played: _Played) -> None:
        """Play episode after episode in one environment. Ends by what it raises only."""
        env = _Adapted(self._make(worker_id), self._step_timeout_s)
        try:
            while True:
                ret, meta = await env.call("reset")
                played.uid = meta["uid"]
                while not ret["done"]:
                    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
                    meta = {**meta, "turn": played.steps}
                    self._waiting[worker_id] = (meta, future)
                    self._events.put((worker_id, ret, meta))
                    ret, meta = await env.call("step", await future)
                    played.steps += 1
                self._events.put((worker_id, ret, meta))
                played.uid = ""
        finally:
            await env.close()

    def _make(self, worker_id: int) -> Any:
        config = self._configs[worker_id]
        if self._env_class is OSGymEnv:
            return OSGymEnv(config, worker_id, self._clients[config.get("server_url") or ""])
        return self._env_class(config, worker_id)


@dataclass(slots=True)
class _Played:
    """Progress of an environment."""

    uid: str = ""
    steps: int = 0


class _Adapted:
    """An environment whose methods are coroutines or not: those that are not run in a thread of its own."""

    def __init__(self, env: Any, timeout_s: float) -> None:
        self._env = env
        self._timeout_s = timeout_s
        self._thread: DaemonThread | None = None

    async def call(self, name: str, *args: Any) -> Any:
        """Call a method. Raises TimeoutError if it takes too long; a thread that hangs is left behind."""
        method = getattr(self._env, name)
        async with asyncio.timeout(self._timeout_s):
            if inspect.iscoroutinefunction(method):
                return await method(*args)
            self._thread = self._thread or DaemonThread("osgym-environment")
            try:
                outcome = await self._thread.call(lambda: method(*args))
            except BaseException:
                self._let_go()  # it may never return
                raise
            return outcome.unwrap()

    async def close(self) -> None:
        try:
            close = "aclose" if hasattr(self._env, "aclose") else "close"
            if hasattr(self._env, close):
                self._timeout_s = min(self._timeout_s, _CLOSE_S)
                await self.call(close)
        except Exception as exc:  # noqa: BLE001 - other people's; nothing is left to be done
            _LOG.info("an environment could not be closed: %s", exc)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()


def _hopeless(error: Exception) -> bool:
    """Tell an error that another environment would meet too: the task or the settings are wrong."""
    return isinstance(error, OSGymError) and error.error_class is not None and error.error_class != "infra"
