"""Steps and starts that nobody waits for one by one: their outcomes come in the order they are ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any

from osgym_sdk._batch.host_steps import Results, StepOutcome, step_on_host
from osgym_sdk._episode.episode import AsyncEpisode
from osgym_sdk._exceptions import ConfigError, EpisodeEnded, OSGymError
from osgym_sdk._inputs.actions import Actions
from osgym_sdk._inputs.decision import Decision
from osgym_sdk._inputs.options import Observe, Settle, as_observe, as_settle
from osgym_sdk.wire import ObserveOptions, SettleOptions

_Tick = tuple[str, SettleOptions | None, ObserveOptions | None]
"""Key of the steps that go into one request: host and options."""


class ReadyQueue:
    """Queue of the outcomes of begun steps and starts, in the order they are ready. For one event loop."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._outcomes: Results = asyncio.Queue()
        self._under_way: set[AsyncEpisode] = set()
        self._next: dict[_Tick, list[tuple[AsyncEpisode, Actions | Decision]]] = {}
        self._works: set[asyncio.Task[None]] = set()

    def start(self, episodes: Iterable[AsyncEpisode]) -> None:
        """Start episodes, all at the same time."""
        for episode in episodes:
            self._under_way.add(episode)
            self._spawn(self._start(episode))

    def step(
        self,
        episode: AsyncEpisode,
        actions: Actions | Decision,
        settle: Settle | None,
        observe: Observe | None,
    ) -> None:
        """Begin a step; those begun before the loop turns go to their host in one request.

        Raises:
            ConfigError: a start or step of this episode is under way.
            EpisodeEnded: it was never started.
        """
        if episode in self._under_way:
            raise ConfigError("a step of this episode is under way: take its outcome from ready() first")
        tick = (episode.host, as_settle(settle), as_observe(observe))
        if not self._next:
            asyncio.get_running_loop().call_soon(self._send)
        self._under_way.add(episode)
        self._next.setdefault(tick, []).append((episode, actions))

    async def ready(self, count: int | None) -> AsyncIterator[tuple[AsyncEpisode, StepOutcome]]:
        """Yield the next outcomes, fewer where nothing more is under way."""
        while self._under_way and (count is None or count > 0):
            outcome = await self._outcomes.get()
            if isinstance(outcome, asyncio.Task):
                outcome.result()  # a fault of the client
                continue
            self._under_way.discard(outcome[0])
            count = None if count is None else count - 1
            yield outcome

    async def aclose(self) -> None:
        """Cancel what is under way; its episodes are closed with the client. Idempotent."""
        works, self._works = self._works, set()
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        for episode in [*self._under_way]:
            self._under_way.discard(episode)
            self._outcomes.put_nowait((episode, EpisodeEnded("the client was closed")))

    def _send(self) -> None:
        ticks, self._next = self._next, {}
        for (_, settle, observe), steps in ticks.items():
            self._spawn(step_on_host(steps, settle, observe, self._step_s, self._give))

    def _give(self, episode: AsyncEpisode, outcome: StepOutcome) -> None:
        self._outcomes.put_nowait((episode, outcome))

    async def _start(self, episode: AsyncEpisode) -> None:
        outcome: StepOutcome
        try:
            await episode.start()
            outcome = episode.observation
        except OSGymError as exc:
            outcome = exc
        self._outcomes.put_nowait((episode, outcome))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._works.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._works.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._outcomes.put_nowait(task)
