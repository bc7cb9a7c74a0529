"""Steps of many episodes in one request per host, answered as they are ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass

from osgym_sdk._episode.episode import AsyncEpisode, AsyncObservation
from osgym_sdk._episode.steps import PreparedStep
from osgym_sdk._exceptions import (
    ConfigError,
    HostUnreachable,
    OSGymError,
    ProtocolError,
    RateLimited,
    error_from_wire,
)
from osgym_sdk._inputs.actions import Actions
from osgym_sdk._inputs.decision import Decision
from osgym_sdk._inputs.options import Observe, Settle
from osgym_sdk._transport.link import HostLink
from osgym_sdk.wire import BatchStepItem, BatchStepRequest, RecordDecoder, StepAnswer, WireFormatError

StepOutcome = AsyncObservation | OSGymError
Results = asyncio.Queue[tuple[AsyncEpisode, StepOutcome] | asyncio.Task[None]]
"""Outcomes as they come; a task once it has ended."""
Give = Callable[[AsyncEpisode, StepOutcome], None]


@dataclass(frozen=True, slots=True)
class _ReadyStep:
    episode: AsyncEpisode
    prepared: PreparedStep


async def step_many(
    steps: Iterable[tuple[AsyncEpisode, Actions | Decision]],
    settle: Settle | None,
    observe: Observe | None,
    timeout_s: float,
) -> AsyncIterator[tuple[AsyncEpisode, StepOutcome]]:
    """See :meth:`AsyncClient.step_many`."""
    listed = list(steps)
    if len({id(episode) for episode, _ in listed}) != len(listed):
        raise ConfigError("an episode occurs twice in the list; give all its actions in one list")
    groups: dict[str, list[tuple[AsyncEpisode, Actions | Decision]]] = {}
    for episode, actions in listed:
        groups.setdefault(episode.host, []).append((episode, actions))
    results: Results = asyncio.Queue()

    def give(episode: AsyncEpisode, outcome: StepOutcome) -> None:
        results.put_nowait((episode, outcome))

    works = [step_on_host(group, settle, observe, timeout_s, give) for group in groups.values()]
    tasks = [asyncio.create_task(work) for work in works]
    for task in tasks:
        task.add_done_callback(results.put_nowait)
    try:
        running = len(tasks)
        while running:
            item = await results.get()
            if isinstance(item, asyncio.Task):
                item.result()
                running -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def step_on_host(
    group: Sequence[tuple[AsyncEpisode, Actions | Decision]],
    settle: Settle | None,
    observe: Observe | None,
    timeout_s: float,
    deliver: Give,
) -> None:
    """Deliver one outcome for each episode of the group, whatever happens.

    An episode may be stepped again as soon as its result is there: one that is slow holds up no other.
    """
    held: set[AsyncEpisode] = set()

    def give(episode: AsyncEpisode, outcome: StepOutcome) -> None:
        held.discard(episode)
        episode._steps.lock.release()
        deliver(episode, outcome)

    try:
        ready: list[_ReadyStep] = []
        # In one order everywhere, so that two callers cannot wait for each other.
        for episode, actions in sorted(group, key=lambda item: item[0].episode_id):
            await episode._steps.lock.acquire()
            held.add(episode)
            try:
                ready.append(_ReadyStep(episode, await episode._steps.prepare(actions, settle, observe)))
            except OSGymError as exc:
                give(episode, exc)
        open_steps = dict(enumerate(ready))
        if not ready:
            return
        timeout_s += max(item.prepared.request.think_s or 0.0 for item in ready)
        try:
            async with asyncio.timeout(timeout_s):
                await _when_it_may(ready[0].episode._steps.link, open_steps, give)
        except (TimeoutError, HostUnreachable, ProtocolError, WireFormatError):
            pass  # the sequence numbers make it safe to ask for each answer again
        await asyncio.gather(*(_step_one(item, timeout_s, give) for item in open_steps.values()))
    finally:
        for episode in held:
            episode._steps.lock.release()


async def _when_it_may(link: HostLink, open_steps: dict[int, _ReadyStep], give: Give) -> None:
    """Stream the steps, and again after each refusal for the token's rate; the deadline is the caller's."""
    while True:
        try:
            return await _stream(link, open_steps, give)
        except RateLimited as error:
            await asyncio.sleep(error.retry_after_s)


async def _stream(
    link: HostLink,
    open_steps: dict[int, _ReadyStep],
    give: Give,
) -> None:
    """Take the answers that come; what has none stays in ``open_steps``."""
    items = [
        BatchStepItem(episode_id=ready.episode.episode_id, **ready.prepared.request.values())
        for ready in open_steps.values()
    ]
    decoder = RecordDecoder()
    async with link.stream("POST", "/v1/steps", BatchStepRequest(tuple(items))) as (_, chunks):
        async for chunk in chunks:
            for record in decoder.feed(chunk):
                answer = StepAnswer.from_dict(record.meta)
                ready = open_steps.pop(-1 if answer.index is None else answer.index, None)
                if ready is None:
                    raise ProtocolError("the host answered a step that was not requested", host=link.url)
                if answer.error is not None:
                    error = error_from_wire(answer.error, host=link.url, episode_id=ready.episode.episode_id)
                    ready.episode._steps.reject(ready.prepared, error)
                    give(ready.episode, error)
                else:
                    obs = ready.episode._steps.accept(ready.prepared, answer, bytes(record.blob), None)
                    give(ready.episode, obs)
    decoder.close()


async def _step_one(ready: _ReadyStep, timeout_s: float, give: Give) -> None:
    try:
        outcome: StepOutcome = await ready.episode._steps.send(ready.prepared, timeout_s)
    except OSGymError as exc:
        outcome = exc
    give(ready.episode, outcome)
