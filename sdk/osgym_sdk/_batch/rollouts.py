"""Groups of episodes from the same start: set up once where hosts branch, refilled where members are lost."""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from typing import Any

from osgym_sdk._background import BackgroundTasks
from osgym_sdk._batch.batch import BatchPlan, PlannedRun, numbered
from osgym_sdk._batch.policy import PolicyRunner
from osgym_sdk._batch.progress import Tally
from osgym_sdk._batch.task_run import TaskRun
from osgym_sdk._episode.checkpoints import AsyncCheckpoint
from osgym_sdk._episode.episode import AsyncEpisode
from osgym_sdk._exceptions import BranchFailed, NoCapacity, Unsupported
from osgym_sdk._models.evaluation import Failure
from osgym_sdk._models.results import Group, Result, is_lost

_LOG = logging.getLogger("osgym.sdk")

START_TTL_S = 4 * 3600.0
"""A start is a checkpoint on its host, deleted when its group is done; after so long should we have died."""


class PrioritySemaphore:
    """A semaphore that serves waiters by priority, the lowest rank first. For one event loop."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._asked = 0
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []

    async def acquire(self, rank: float) -> None:
        """Acquire it; wait while none is free, or a waiter of a lower rank is served first."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        self._asked += 1
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rank, self._asked, given))
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():
                self.release()
            raise

    def release(self) -> None:
        while self._waiting:
            given = heapq.heappop(self._waiting)[2]
            if not given.done():
                given.set_result(None)
                return
        self._free += 1


class Rollouts(PlannedRun[Group]):
    """Iterate over it once: ``async for group in client.rollouts(...)``. Leaving the loop stops the rest.

    Memory is bounded: at most ``concurrency`` groups are under way, and as many wait for a slow consumer.
    """

    name = "rollouts"

    def __init__(self, plan: BatchPlan, size: int, background: BackgroundTasks) -> None:
        super().__init__(plan, size)
        self._size = size
        self._background = background
        self._slots = PrioritySemaphore(plan.options.concurrency)
        self._open_groups = asyncio.Semaphore(plan.options.concurrency)

    async def _play(self) -> None:
        """Begin a group whenever a slot is free that no member of an earlier group waits for."""
        groups: set[asyncio.Task[None]] = set()
        source = numbered(self.plan.tasks)
        while True:
            await self._open_groups.acquire()
            await self._slots.acquire(math.inf)
            pulled = await anext(source, None)
            if pulled is None:
                break
            group = self._spawn(self._group(*pulled), f"osgym-group-{pulled[0]}")
            groups.add(group)
            group.add_done_callback(groups.discard)
        while groups:
            await asyncio.wait(set(groups))

    async def _group(self, index: int, task: Any) -> None:
        """Run a group; the slot that is held goes to its set-up, and then to a member."""
        try:
            run = _GroupRun(self.plan, self._slots, self._background, self._size, self._tally)
            group = await run.run(index, task)
            self._tally.fail(self._size - len(group.results))
            await self._results.put(group)
        except Exception as exc:  # noqa: BLE001 - as above
            _LOG.error("internal error of the client in a group", exc_info=exc)
            await self._results.put(exc)
        finally:
            self._open_groups.release()


class _GroupRun:
    """One group, from its set-up to its last member."""

    def __init__(
        self, plan: BatchPlan, slots: PrioritySemaphore, background: BackgroundTasks, size: int, tally: Tally
    ) -> None:
        self._plan = plan
        self._slots = slots
        self._tally = tally
        self._background = background
        self._size = size
        self._first: AsyncEpisode | None = None
        """Set up, and nobody's yet: the first member of a group that does not branch."""
        self._start: AsyncCheckpoint | None = None
        self._task_id: str | None = None

    async def run(self, index: int, task: Any) -> Group:
        """Return the group; release the slot that the caller acquired for it."""
        plan = self._plan
        began_s = plan.clock()
        results: tuple[Result, ...] = ()
        try:
            failure = await self._begin(task)
            if failure is None:
                results = await self._members(index, task)
                failure = next((result.failure for result in results if is_lost(result)), None)
            branched, spent_s = self._start is not None, plan.clock() - began_s
            return Group(index, task, self._task_id, self._size, results, failure, branched, spent_s)
        finally:
            if self._first is not None:
                await self._first.aclose()
            if self._start is not None:
                name = f"delete the start {self._start.checkpoint_id}"
                await self._background.finish(self._start.delete(), name)

    async def _begin(self, task: Any) -> Failure | None:
        """Set the task up; then pass the slot to the first member, or release it where there is none."""
        plan, begun = self._plan, False
        runs = TaskRun(plan.options, PolicyRunner(plan.policy), plan.open_episode, plan.clock)
        try:
            failure = await runs.opened(task, self._set_up)
            begun = failure is None
            return failure
        finally:
            if not begun:
                self._slots.release()

    async def _set_up(self, first: AsyncEpisode) -> None:
        """Start the first episode, and keep that moment where its host can."""
        context = first._context
        recording, context.recording = context.recording, None
        self._task_id = first.trajectory.task_id
        try:
            await first.start()
            try:
                self._start = await first.checkpoint(keep=True, ttl_s=START_TTL_S)
            except (Unsupported, NoCapacity, BranchFailed) as exc:
                if not isinstance(exc, Unsupported):
                    _LOG.warning(
                        "the members of a group are set up one by one, without a shared checkpoint: %s", exc
                    )
                context.recording = recording
                context.begin_recording(first.observation)
                self._first = first
        finally:
            if self._first is not first:
                await first.aclose()

    async def _members(self, index: int, task: Any) -> tuple[Result, ...]:
        members = [
            asyncio.create_task(self._member(index, task, number), name=f"osgym-group-{index}.{number}")
            for number in range(self._size)
        ]
        try:
            return tuple(await asyncio.gather(*members))
        finally:
            for member in members:
                member.cancel()
            await asyncio.gather(*members, return_exceptions=True)

    async def _member(self, index: int, task: Any, number: int) -> Result:
        if number > 0:
            await self._slots.acquire(index)
        plan = self._plan

        def open_episode(task: Any) -> AsyncEpisode:
            if number == 0 and self._first is not None:
                first, self._first = self._first, None
                return first
            episode = plan.open_episode(task)
            return episode if self._start is None else episode._at_checkpoint(self._start)

        runner = PolicyRunner(plan.policy)
        self._tally.run(+1)
        try:
            result = await TaskRun(plan.options, runner, open_episode, plan.clock).run(index, task, number)
        finally:
            self._tally.run(-1)
            runner.close()
            self._slots.release()
        self._tally.add(result)
        return result
