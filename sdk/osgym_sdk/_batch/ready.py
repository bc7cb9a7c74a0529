"""Steps that go to their hosts together, and outcomes in the order they are ready."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterable

from osgym_sdk._batch.host_steps import StepOutcome, step_on_host
from osgym_sdk._episode.episode import AsyncEpisode, AsyncObservation
from osgym_sdk._exceptions import ConfigError, EpisodeEnded, OSGymError
from osgym_sdk._inputs.actions import Actions
from osgym_sdk._inputs.decision import Decision
from osgym_sdk._inputs.options import Observe, Settle, as_observe, as_settle
from osgym_sdk.wire import ObserveOptions, SettleOptions

_Tick = tuple[str, SettleOptions | None, ObserveOptions | None]
"""Key of the steps that go into one request: host and options."""
_Take = Callable[[AsyncEpisode, AsyncObservation | Exception], None]
"""Function that takes an outcome; one that is no OSGymError is a fault of the client."""


class StepTicks:
    """Steps that are begun before the loop turns go to each host in one request. For one event loop."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._next: dict[_Tick, list[tuple[AsyncEpisode, Actions | Decision, _Take]]] = {}
        self._under_way: set[AsyncEpisode] = set()
        self._works: set[asyncio.Task[None]] = set()

    def begin(
        self,
        episode: AsyncEpisode,
        actions: Actions | Decision,
        settle: Settle | None,
        observe: Observe | None,
        take: _Take,
    ) -> None:
        """Begin a step of an episode that has none under way; ``take`` gets its outcome in any case.

        Raises:
            ConfigError: an option is wrong.
            EpisodeEnded: the episode was never started.
        """
        tick = (episode.host, as_settle(settle), as_observe(observe))
        if not self._next:
            asyncio.get_running_loop().call_soon(self._send)
        self._next.setdefault(tick, []).append((episode, actions, take))

    async def step(self, episode: AsyncEpisode, actions: Actions | Decision) -> AsyncObservation:
        """Do what :meth:`AsyncEpisode.step` does. Raises OSGymError as for that one."""
        if episode in self._under_way:  # a caller was cancelled, and its step goes on
            return await episode.step(actions)
        waiter: asyncio.Future[AsyncObservation] = asyncio.get_running_loop().create_future()

        def take(episode: AsyncEpisode, outcome: AsyncObservation | Exception) -> None:
            self._under_way.discard(episode)
            if waiter.done():
                return
            if isinstance(outcome, Exception):
                waiter.set_exception(outcome)
            else:
                waiter.set_result(outcome)

        self.begin(episode, actions, None, None, take)
        self._under_way.add(episode)
        return await waiter

    async def aclose(self) -> None:
        """Cancel the steps under way; their outcome is EpisodeEnded. Idempotent."""
        self._send()
        works = [*self._works]
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    def _send(self) -> None:
        ticks, self._next = self._next, {}
        for (_, settle, observe), begun in ticks.items():
            waiting = {episode: take for episode, _, take in begun}
            steps = [(episode, actions) for episode, actions, _ in begun]
            give = functools.partial(_give, waiting)
            work = asyncio.create_task(step_on_host(steps, settle, observe, self._step_s, give))
            self._works.add(work)
            work.add_done_callback(functools.partial(self._ended, waiting))

    def _ended(self, waiting: dict[AsyncEpisode, _Take], work: asyncio.Task[None]) -> None:
        self._works.discard(work)
        error = None if work.cancelled() else work.exception()
        closed = EpisodeEnded("the client was closed")
        for episode in [*waiting]:
            _give(waiting, episode, error if isinstance(error, Exception) else closed)


def _give(
    waiting: dict[AsyncEpisode, _Take], episode: AsyncEpisode, outcome: AsyncObservation | Exception
) -> None:
    waiting.pop(episode)(episode, outcome)


class ReadyQueue:
    """Queue of the outcomes of begun steps and starts, in the order they are ready. For one event loop."""

    def __init__(self, step_s: float) -> None:
        self._ticks = StepTicks(step_s)
        self._outcomes: asyncio.Queue[tuple[AsyncEpisode, AsyncObservation | Exception]] = asyncio.Queue()
        self._under_way: set[AsyncEpisode] = set()
        self._starts: dict[AsyncEpisode, asyncio.Task[None]] = {}

    def start(self, episodes: Iterable[AsyncEpisode]) -> None:
        """Start episodes, all at the same time."""
        for episode in episodes:
            self._under_way.add(episode)
            self._starts[episode] = task = asyncio.create_task(episode.start())
            task.add_done_callback(functools.partial(self._started, episode))

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
            raise ConfigError("a step of this episode is still running: take its outcome from ready() first")
        self._ticks.begin(episode, actions, settle, observe, self._take)
        self._under_way.add(episode)

    async def ready(self, count: int | None) -> AsyncIterator[tuple[AsyncEpisode, StepOutcome]]:
        """Yield the next outcomes, fewer where nothing more is under way."""
        while self._under_way and (count is None or count > 0):
            episode, outcome = await self._outcomes.get()
            self._under_way.discard(episode)
            if isinstance(outcome, Exception) and not isinstance(outcome, OSGymError):
                raise outcome
            count = None if count is None else count - 1
            yield episode, outcome

    async def aclose(self) -> None:
        """Cancel what is under way; its episodes are closed with the client. Idempotent."""
        await self._ticks.aclose()
        starts = [*self._starts.values()]
        for start in starts:
            start.cancel()
        await asyncio.gather(*starts, return_exceptions=True)

    def _started(self, episode: AsyncEpisode, task: asyncio.Task[None]) -> None:
        del self._starts[episode]
        error = EpisodeEnded("the client was closed") if task.cancelled() else task.exception()
        self._take(episode, error if isinstance(error, Exception) else episode.observation)

    def _take(self, episode: AsyncEpisode, outcome: AsyncObservation | Exception) -> None:
        self._outcomes.put_nowait((episode, outcome))
