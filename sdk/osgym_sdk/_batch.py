"""Many tasks at once: a bounded number of workers, results as they finish, failures as data."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from osgym_sdk._episode import AsyncEpisode
from osgym_sdk._exceptions import InvalidAction, OSGymError
from osgym_sdk._options import Actions
from osgym_sdk._progress import OnProgress, Progress
from osgym_sdk._results import Failure, Result, Trajectory, termination_of
from osgym_sdk.wire import ErrorClass, TerminationReason

_LOG = logging.getLogger("osgym.sdk")

Decision = Actions | None
PolicyFunction = Callable[[Any, Any, int], Decision | Awaitable[Decision]]


@runtime_checkable
class PolicyObject(Protocol):
    """A policy with a state. It may also have ``reset(task)``, called before each episode.

    What ``reset`` returns, unless None, acts in that episode: episodes run at the same time, so a
    policy that remembers anything returns one object per episode.
    """

    def act(self, obs: Any, task: Any, step: int) -> Decision | Awaitable[Decision]:
        """The next action or actions; None ends the episode."""


Policy = PolicyFunction | PolicyObject


class PolicyRunner:
    """Calls policies: coroutines on the loop, plain functions in threads of their own."""

    def __init__(self, policy: Policy, concurrency: int) -> None:
        self._policy = policy
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="osgym-policy")

    async def begin(self, task: Any) -> PolicyFunction:
        """Return the function that acts in one episode."""
        policy = self._policy
        reset = getattr(policy, "reset", None)
        if reset is not None:
            own = await self._invoke(reset, task)
            policy = policy if own is None else own
        act = policy.act if isinstance(policy, PolicyObject) else policy
        if not callable(act):
            raise TypeError("a policy is a callable, or an object with act(obs, task, step)")

        async def call(obs: Any, task: Any, step: int) -> Decision:
            decision: Decision = await self._invoke(act, obs, task, step)
            return decision

        return call

    def close(self) -> None:
        """Let the threads end; one that still runs a policy is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _invoke(self, function: Callable[..., Any], *args: Any) -> Any:
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - asks whether an instance is awaited
        ):
            return await function(*args)
        result = await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)
        return await result if inspect.isawaitable(result) else result


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How a batch runs; see :meth:`AsyncClient.run`."""

    concurrency: int
    max_steps: int
    evaluate: bool
    retries: int
    episode_timeout_s: float | None
    on_progress: OnProgress | None


@dataclass(frozen=True, slots=True)
class _Ending:
    """How the acting ended."""

    reason: str
    failure: Failure | None = None
    note: str | None = None


@dataclass(slots=True)
class _Counts:
    finished: int = 0
    failed: int = 0
    running: int = 0
    steps: int = 0
    rewards: int = 0
    reward_sum: float = 0.0

    def add(self, result: Result) -> None:
        self.finished += 1
        self.failed += not result.ok
        self.steps += len(result.steps)
        if result.reward is not None:
            self.rewards += 1
            self.reward_sum += result.reward


class Batch:
    """Iterate over it once: ``async for result in client.run(...)``. Leaving the loop stops the rest.

    Memory is bounded: at most ``concurrency`` results wait for a slow consumer.
    """

    def __init__(
        self,
        tasks: Iterable[Any] | AsyncIterable[Any],
        policy: Policy,
        options: BatchOptions,
        open_episode: Callable[[Any], AsyncEpisode],
        clock: Callable[[], float],
    ) -> None:
        self._tasks = tasks
        self._total = len(tasks) if isinstance(tasks, Sized) else None
        self._options = options
        self._open = open_episode
        self._clock = clock
        self._counts = _Counts()
        self._started_s = 0.0
        self._used = False
        self._runner = PolicyRunner(policy, options.concurrency)
        self._results: asyncio.Queue[Result | BaseException | None] = asyncio.Queue(options.concurrency)
        self._workers: list[asyncio.Task[None]] = []

    async def aclose(self) -> None:
        """Stop all episodes of the batch and wait until their leases are given back. Idempotent."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        self._runner.close()
        if self._used:
            with contextlib.suppress(asyncio.QueueFull):
                self._results.put_nowait(OSGymError("the batch was closed", code="closed"))

    def __aiter__(self) -> AsyncIterator[Result]:
        if self._used:
            raise RuntimeError("a batch is run once")
        self._used = True
        return self._run()

    async def _run(self) -> AsyncIterator[Result]:
        self._started_s = self._clock()
        source = _numbered(self._tasks)
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
                    self._counts.add(item)
                    self._report()
                    yield item
        finally:
            await self.aclose()

    async def _worker(self, source: AsyncIterator[tuple[int, Any]], pulling: asyncio.Lock) -> None:
        results = self._results
        try:
            while True:
                async with pulling:
                    index, task = await anext(source)
                self._counts.running += 1
                self._report()
                try:
                    result = await self._one(index, task)
                finally:
                    self._counts.running -= 1
                await results.put(result)
        except StopAsyncIteration:
            await results.put(None)
        except Exception as exc:  # noqa: BLE001 - top of a task: the consumer raises it
            _LOG.debug("batch worker failed", exc_info=True)
            await results.put(exc)

    async def _one(self, index: int, task: Any) -> Result:
        started = self._clock()
        attempt = 0
        while True:
            attempt += 1
            trajectory, end = await self._attempt(task)
            failure = end.failure
            if failure is None or failure.error_class is not ErrorClass.INFRA:
                break
            if attempt > self._options.retries:
                break
            _LOG.info("task %s lost (%s), trying again on a fresh replica", trajectory.task_id, failure)
        evaluation = trajectory.evaluation
        return Result(
            index=index,
            task=task,
            task_id=trajectory.task_id,
            reward=None if failure or evaluation is None else evaluation.reward,
            failure=failure,
            termination_reason=end.reason,
            valid_for_training=failure is None and (evaluation is None or evaluation.valid_for_training),
            trajectory=trajectory,
            attempts=attempt,
            duration_s=self._clock() - started,
            note=end.note,
        )

    async def _attempt(self, task: Any) -> tuple[Trajectory, _Ending]:
        """Run one episode. Everything that can go wrong in it comes back as a failure."""
        trajectory = Trajectory(None)
        limit_s = self._options.episode_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                episode = self._open(task)
                trajectory = episode.trajectory
                async with episode:
                    end = await self._play(episode, task)
                    if end.failure is not None or not self._options.evaluate or task is None:
                        return trajectory, end
                    evaluation = await episode.evaluate()
                    if evaluation.failure is not None:
                        return trajectory, _Ending(evaluation.termination_reason, evaluation.failure)
                    return trajectory, end
        except TimeoutError as exc:
            if isinstance(exc, OSGymError):
                return trajectory, _Ending(termination_of(exc), Failure.of(exc))
            text = f"the episode took longer than {limit_s} s"
            return trajectory, _Ending(
                TerminationReason.DEADLINE, Failure("deadline", text, ErrorClass.INFRA)
            )
        except OSGymError as exc:
            return trajectory, _Ending(termination_of(exc), Failure.of(exc))

    async def _play(self, episode: AsyncEpisode, task: Any) -> _Ending:
        try:
            act = await self._runner.begin(task)
        except Exception as exc:  # noqa: BLE001 - the user's code: its fault is data here
            return _policy_failed(exc)
        for step in range(self._options.max_steps):
            try:
                decision = act(episode.observation, task, step)
                actions = await decision if inspect.isawaitable(decision) else decision
            except Exception as exc:  # noqa: BLE001 - the same
                return _policy_failed(exc)
            if actions is None:
                return _Ending(TerminationReason.POLICY_STOPPED)
            try:
                obs = await episode.step(actions)
            except InvalidAction as exc:
                return _Ending(TerminationReason.INVALID_ACTION, note=exc.message)
            if obs.done is not None:
                return _Ending(TerminationReason(obs.done.value))
        return _Ending(TerminationReason.MAX_STEPS)

    def _report(self) -> None:
        if self._options.on_progress is None:
            return
        counts = self._counts
        self._options.on_progress(
            Progress(
                finished=counts.finished,
                failed=counts.failed,
                running=counts.running,
                total=self._total,
                mean_reward=counts.reward_sum / counts.rewards if counts.rewards else None,
                steps=counts.steps,
                elapsed_s=self._clock() - self._started_s,
            )
        )


def _policy_failed(exc: Exception) -> _Ending:
    _LOG.warning("the policy raised %s", type(exc).__name__, exc_info=exc)
    text = f"{type(exc).__name__}: {exc}"
    failure = Failure("policy_error", text, ErrorClass.MODEL, {}, exc)
    return _Ending(TerminationReason.POLICY_ERROR, failure)


async def _numbered(tasks: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[tuple[int, Any]]:
    index = 0
    if isinstance(tasks, AsyncIterable):
        async for task in tasks:
            yield index, task
            index += 1
    else:
        for task in tasks:
            yield index, task
            index += 1
