"""Many tasks at once: a bounded number of workers, results as they finish, failures as data."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sized
from dataclasses import dataclass
from typing import Any

from osgym_sdk._batch.options import BatchOptions
from osgym_sdk._batch.policy import Policy, PolicyRunner
from osgym_sdk._batch.progress import Tally
from osgym_sdk._batch.task_run import TaskRun
from osgym_sdk._episode.episode import AsyncEpisode
from osgym_sdk._exceptions import OSGymError
from osgym_sdk._models.results import Result

_LOG = logging.getLogger("osgym.sdk")


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Tasks of a batch, the policy that plays them, and the options."""

    tasks: Iterable[Any] | AsyncIterable[Any]
    policy: Policy
    options: BatchOptions
    open_episode: Callable[[Any], AsyncEpisode]
    clock: Callable[[], float]


class Batch:
    """Iterate over it once: ``async for result in client.run(...)``. Leaving the loop stops the rest.

    Memory is bounded: at most ``concurrency`` results wait for a slow consumer.
    """

    def __init__(self, plan: BatchPlan) -> None:
        self.plan = plan
        self._options = plan.options
        self._clock = plan.clock
        total = len(plan.tasks) if isinstance(plan.tasks, Sized) else None
        self._tally = Tally(total, plan.options.on_progress, plan.clock)
        self._used = False
        self._results: asyncio.Queue[Result | BaseException | None] = asyncio.Queue(plan.options.concurrency)
        self._workers: list[asyncio.Task[None]] = []

    async def aclose(self) -> None:
        """Stop all episodes of the batch and wait until their leases are given back. Idempotent."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        if self._used:
            with contextlib.suppress(asyncio.QueueFull):
                self._results.put_nowait(OSGymError("the batch was closed", code="closed"))

    def __aiter__(self) -> AsyncIterator[Result]:
        if self._used:
            raise RuntimeError("a batch is run once")
        self._used = True
        return self._run()

    async def _run(self) -> AsyncIterator[Result]:
        self._tally.start()
        source = numbered(self.plan.tasks)
        pulling = asyncio.Lock()
        # A plain list, not a task group: its scope must not stretch over a yield.
        self._workers = [
            asyncio.create_task(self._worker(source, pulling), name=f"osgym-batch-{i}")
            for i in range(self._options.concurrency)
        ]
        try:
            open_workers = len(self._workers)
            while open_workers:
                item = await self._results.get()
                if item is None:
                    open_workers -= 1
                elif isinstance(item, BaseException):
                    raise item
                else:
                    self._tally.add(item)
                    yield item
            if self._options.recorder is not None:
                await self._options.recorder.flush()
        finally:
            await self.aclose()
            self._tally.report(done=True)

    async def _worker(self, source: AsyncIterator[tuple[int, Any]], pulling: asyncio.Lock) -> None:
        results = self._results
        runner = PolicyRunner(self.plan.policy)
        tasks = TaskRun(self._options, runner, self.plan.open_episode, self._clock)
        try:
            while True:
                async with pulling:
                    pulled = await anext(source, None)
                if pulled is None:
                    break
                self._tally.run(+1)
                try:
                    result = await tasks.run(*pulled)
                finally:
                    self._tally.run(-1)
                await results.put(result)
            await results.put(None)
        except Exception as exc:  # noqa: BLE001 - top of a task: the consumer raises it
            _LOG.debug("batch worker failed", exc_info=True)
            await results.put(exc)
        finally:
            runner.close()


async def numbered(tasks: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[tuple[int, Any]]:
    """Count tasks as they are taken."""
    index = 0
    if isinstance(tasks, AsyncIterable):
        async for task in tasks:
            yield index, task
            index += 1
    else:
        for task in tasks:
            yield index, task
            index += 1
