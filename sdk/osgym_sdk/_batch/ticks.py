"""Steps of many callers in one request per host: each waits for its own, and none for another's."""

from __future__ import annotations

import asyncio

from osgym_sdk._batch.host_steps import StepOutcome, step_on_host
from osgym_sdk._episode.episode import AsyncEpisode, AsyncObservation
from osgym_sdk._exceptions import EpisodeEnded
from osgym_sdk._inputs.actions import Actions
from osgym_sdk._inputs.decision import Decision

_Waiter = asyncio.Future[AsyncObservation]
_Begun = tuple[AsyncEpisode, Actions | Decision, _Waiter]


class StepTicks:
    """Steps that are begun before the loop turns go to their hosts together. For one event loop."""

    def __init__(self, step_s: float) -> None:
        """``step_s``: deadline of a step."""
        self._step_s = step_s
        self._next: dict[str, list[_Begun]] = {}
        self._under_way: set[AsyncEpisode] = set()
        self._works: set[asyncio.Task[None]] = set()

    async def step(self, episode: AsyncEpisode, actions: Actions | Decision) -> AsyncObservation:
        """Do what :meth:`AsyncEpisode.step` does. Raises OSGymError as for that one."""
        if episode in self._under_way:  # a caller was cancelled, and its step goes on
            return await episode.step(actions)
        loop, host = asyncio.get_running_loop(), episode.host
        if not self._next:
            loop.call_soon(self._send)
        waiter: _Waiter = loop.create_future()
        self._under_way.add(episode)
        self._next.setdefault(host, []).append((episode, actions, waiter))
        return await waiter

    async def aclose(self) -> None:
        """Cancel what is under way; waiters get EpisodeEnded. Idempotent."""
        works, self._works = self._works, set()
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    def _send(self) -> None:
        groups, self._next = self._next, {}
        for group in groups.values():
            work = asyncio.create_task(self._on_host(group))
            self._works.add(work)
            work.add_done_callback(self._works.discard)

    async def _on_host(self, group: list[_Begun]) -> None:
        waiters = {episode: waiter for episode, _, waiter in group}

        def give(episode: AsyncEpisode, outcome: StepOutcome | Exception) -> None:
            waiter = waiters.pop(episode)
            self._under_way.discard(episode)
            if waiter.done():
                return
            if isinstance(outcome, Exception):
                waiter.set_exception(outcome)
            else:
                waiter.set_result(outcome)

        ended: Exception = EpisodeEnded("the client was closed")
        try:
            steps = [(episode, actions) for episode, actions, _ in group]
            await step_on_host(steps, None, None, self._step_s, give)
        except Exception as exc:  # noqa: BLE001 - a fault of the client: whoever waits raises it
            ended = exc
        finally:
            for episode in [*waiters]:
                give(episode, ended)
