"""Many tasks at once: a bounded number of workers, results as they finish, failures as data."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Sized
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

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


T = TypeVar("T")


class PlannedRun(ABC, Generic[T]):
    """Run of a plan's episodes: iterated over once, for results as they are ready.

    Leaving the loop stops the rest. At most ``concurrency`` results wait for a slow consumer.
    """

    name: ClassVar[str]

    def __init__(self, plan: BatchPlan, size: int = 1) -> None:
        self.plan = plan
        total = len(plan.tasks) * size if isinstance(plan.tasks, Sized) else None
        self._tally = Tally(total, plan.options.on_progress, plan.clock)
        self._results: asyncio.Queue[T | BaseException | None] = asyncio.Queue(plan.options.concurrency)
        self._used = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Stop all episodes and wait until what they hold is given back. Idempotent."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._used:
            with contextlib.suppress(asyncio.QueueFull):
                self._results.put_nowait(OSGymError(f"aclose() ended the {self.name}", code="closed"))

    def __aiter__(self) -> AsyncIterator[T]:
        if self._used:
            raise RuntimeError(f"the {self.name} can be iterated over once only")
        self._used = True
        return self._run()

    async def _run(self) -> AsyncIterator[T]:
        self._tally.start()
        self._spawn(self._play_all(), f"osgym-{self.name}")
        try:
            while (item := await self._results.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                self._yielded(item)
                yield item
        finally:
            await self.aclose()
            self._tally.report(done=True)

    async def _play_all(self) -> None:
        try:
            await self._play()
            if self.plan.options.recorder is not None:
                await self.plan.options.recorder.flush()
            await self._results.put(None)
        except Exception as exc:  # noqa: BLE001 - top of a task: the consumer raises it
            _LOG.debug("the %s failed", self.name, exc_info=True)
            await self._results.put(exc)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @abstractmethod
    async def _play(self) -> None:
        """Play all episodes and put each result into the queue."""

    def _yielded(self, item: T) -> None:
        """Note that the consumer takes a result."""


class Batch(PlannedRun[Result]):
    """Iterate over it once: ``async for result in client.run(...)``. Leaving the loop stops the rest.

    Memory is bounded: at most ``concurrency`` results wait for a slow consumer.
    """

    name = "batch"

    async def _play(self) -> None:
        source = numbered(self.plan.tasks)
        pulling = asyncio.Lock()
        workers = [
            self._spawn(self._worker(source, pulling), f"osgym-batch-{i}")
            for i in range(self.plan.options.concurrency)
        ]
        await asyncio.gather(*workers)

    def _yielded(self, item: Result) -> None:
        self._tally.add(item)

    async def _worker(self, source: AsyncIterator[tuple[int, Any]], pulling: asyncio.Lock) -> None:
        plan = self.plan
        runner = PolicyRunner(plan.policy)
        tasks = TaskRun(plan.options, runner, plan.open_episode, plan.clock)
        try:
            while True:
                async with pulling:
                    pulled = await anext(source, None)
                if pulled is None:
                    return
                self._tally.run(+1)
                try:
                    result = await tasks.run(*pulled)
                finally:
                    self._tally.run(-1)
                await self._results.put(result)
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
