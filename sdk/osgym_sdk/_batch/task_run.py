"""One task of a batch: its episode from lease to score. A failure of the episode is its result."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, assert_never

from osgym_sdk._batch.options import BatchOptions, OnInvalid
from osgym_sdk._batch.policy import MAX_TRACEBACK_CHARS, PolicyError, PolicyRunner
from osgym_sdk._batch.verifier import verified
from osgym_sdk._episode.episode import AsyncEpisode
from osgym_sdk._exceptions import (
    ConfigError,
    EpisodeLost,
    HostUnreachable,
    InvalidAction,
    ModelError,
    OSGymError,
)
from osgym_sdk._inputs.decision import Decision
from osgym_sdk._models.evaluation import Evaluation, Failure, termination_of
from osgym_sdk._models.recorder import EpisodeOutcome, EpisodeRecording
from osgym_sdk._models.results import Result
from osgym_sdk._models.trajectory import Trajectory
from osgym_sdk.wire import ErrorClass, ErrorCode, TerminationReason

_LOG = logging.getLogger("osgym.sdk")

_DEADLINE = "deadline"
_NOT_REPEATED = frozenset(
    (
        _DEADLINE,
        HostUnreachable.default_code,
        ErrorCode.UNAUTHORIZED,
        ErrorCode.FORBIDDEN,
        ErrorCode.NO_CAPACITY,
        ErrorCode.DRAINING,
        ErrorCode.SHUTTING_DOWN,
        ModelError.REFUSED,
        ModelError.SAFETY,
    )
)
"""Infrastructure failures that a second attempt only takes longer to meet: the waiting for a host and a
replica has its own deadline (`wait_s`), and the episode's is the caller's."""
_LOOK = {"op": "screenshot"}
"""Action in place of a refused one; it does nothing."""


@dataclass(frozen=True, slots=True)
class _Ending:
    """End of the acting."""

    reason: str
    failure: Failure | None = None
    note: str | None = None
    loss: EpisodeLost | None = None
    """Error of an episode that the policy ended, whose reward is 0; None for others."""


@dataclass(slots=True)
class _Attempt:
    """One attempt at a task: its trajectory and what was counted."""

    trajectory: Trajectory
    acted: bool = False
    invalid_actions: int = 0
    recording: EpisodeRecording | None = None

    @property
    def reward(self) -> float | None:
        evaluation = self.trajectory.evaluation
        return None if evaluation is None else evaluation.reward


class TaskRun:
    """Runs tasks one after the other, each in an episode of its own, tried again where we were at fault."""

    def __init__(
        self,
        options: BatchOptions,
        runner: PolicyRunner,
        open_episode: Callable[[Any], AsyncEpisode],
        clock: Callable[[], float],
    ) -> None:
        self._options = options
        self._runner = runner
        self._open = open_episode
        self._clock = clock

    async def run(self, index: int, task: Any, member: int = 0) -> Result:
        """Return the result of one task. Raises only CancelledError."""
        started = self._clock()
        count = losses = 0
        while True:
            count += 1
            attempt = _Attempt(Trajectory(None))
            began = self._clock()
            try:
                end = await self._attempt(attempt, task)
            except asyncio.CancelledError:
                cut = Failure("cancelled", "the batch was closed", None)
                end = _Ending(TerminationReason.CLOSED, cut)
                _record(attempt, end, index, count, self._clock() - began)
                raise
            _record(attempt, end, index, count, self._clock() - began)
            losses += attempt.acted and _repeated(end.failure)
            if count > self._options.retries or not _repeated(end.failure):
                break
            _LOG.info(
                "the episode of task %s was lost (%s); it is tried again on a fresh replica",
                attempt.trajectory.task_id,
                end.failure,
            )
        trajectory, failure = attempt.trajectory, end.failure
        return Result(
            index=index,
            task=task,
            task_id=trajectory.task_id,
            reward=None if failure is not None else attempt.reward,
            failure=failure,
            termination_reason=end.reason,
            valid_for_training=_is_valid(attempt, end),
            trajectory=trajectory,
            attempts=count,
            duration_s=self._clock() - started,
            note=end.note,
            member=member,
            invalid_actions=attempt.invalid_actions,
            losses=losses,
        )

    async def opened(self, task: Any, start: Callable[[AsyncEpisode], Awaitable[None]]) -> Failure | None:
        """Have an episode started for what follows, tried again as a task is; return why it could not be.

        Args:
            task: which one.
            start: starts the episode and what belongs to it; raises as an episode does.
        """
        count = 0
        while True:
            count += 1
            try:
                async with asyncio.timeout(self._options.episode_timeout_s):
                    await start(self._open_episode(_Attempt(Trajectory(None)), task))
                return None
            except Exception as exc:  # noqa: BLE001 - top of a group: it must not be that of the others
                failure = self._failed(exc).failure
            if count > self._options.retries or not _repeated(failure):
                return failure

    async def _attempt(self, attempt: _Attempt, task: Any) -> _Ending:
        """Run one episode; every error in it becomes a failure.

        Once there is a reward it counts: what fails after it (giving the replica back) takes it from nobody.
        """
        end: _Ending | None = None
        try:
            async with asyncio.timeout(self._options.episode_timeout_s):
                episode = self._open_episode(attempt, task)
                async with episode:
                    end = await self._play(attempt, episode, task)
                    evaluation = None if end.failure is not None else await self._score(episode, task, end)
                    return _scored_ending(end, evaluation)
        except Exception as exc:  # noqa: BLE001 - top of an episode: it must not be that of the batch
            if end is not None and attempt.reward is not None:
                _LOG.warning(
                    "task %s was scored, but closing its episode failed: %s", attempt.trajectory.task_id, exc
                )
                return end
            return self._failed(exc)

    async def _score(self, episode: AsyncEpisode, task: Any, end: _Ending) -> Evaluation | None:
        """Score an episode whose acting has ended; None where nothing is to be scored."""
        options = self._options
        if options.reward is not None and end.loss is not None:
            trajectory = episode.trajectory
            trajectory.evaluation = Evaluation.lost_by_policy(end.loss, trajectory.interventions)
            return trajectory.evaluation
        if options.reward is not None:
            found = await verified(options.reward, episode, task, end.reason, options.reward_timeout_s)
            episode.trajectory.evaluation = found
            return found
        return None if not options.evaluate or task is None else await episode.evaluate()

    def _open_episode(self, attempt: _Attempt, task: Any) -> AsyncEpisode:
        try:
            episode = self._open(task)
        except ConfigError as exc:
            failure = Failure(exc.code, str(exc), ErrorClass.TASK, dict(exc.details), exc)
            raise _Ended(_Ending(TerminationReason.TASK_INVALID, failure)) from exc
        attempt.trajectory, attempt.recording = episode.trajectory, episode._context.take_recording()
        return episode

    def _failed(self, error: Exception) -> _Ending:
        if isinstance(error, _Ended):
            return error.end
        if isinstance(error, OSGymError):
            return _Ending(termination_of(error), Failure.of(error))
        if isinstance(error, TimeoutError):
            text = f"the episode took longer than {self._options.episode_timeout_s} s"
            return _Ending(TerminationReason.DEADLINE, Failure(_DEADLINE, text, ErrorClass.INFRA))
        _LOG.error("internal error of the client in a batch", exc_info=error)
        trace = "".join(traceback.format_exception(error))[-MAX_TRACEBACK_CHARS:]
        text = f"{type(error).__name__} in the client"
        failure = Failure(ErrorCode.INTERNAL, text, ErrorClass.INFRA, {"traceback": trace}, error)
        return _Ending(TerminationReason.INTERNAL, failure)

    async def _play(self, attempt: _Attempt, episode: AsyncEpisode, task: Any) -> _Ending:
        try:
            act = await self._runner.begin(task)
            for step in range(self._options.max_steps):
                try:
                    decided = await act(episode.observation, task, step)
                    attempt.trajectory.last_info = decided.info
                    if decided.refusal is not None:
                        raise decided.refusal
                    if decided.actions is None:
                        return _Ending(TerminationReason.POLICY_STOPPED)
                    attempt.acted = True
                    obs = await episode.step(decided.decision())
                except InvalidAction as exc:
                    attempt.invalid_actions += 1
                    end = self._after_refusal(attempt, exc)
                    if end is not None:
                        return end
                    look = Decision(_LOOK, attempt.trajectory.last_info)
                    obs = await episode.step(look, grammar="osgym")
                    obs.refused = attempt.trajectory.steps[-1].refused = exc.message
                if obs.done is not None:
                    return _Ending(TerminationReason(obs.done.value))
        except PolicyError as exc:
            _LOG.warning("the policy failed: %s", exc.failure.message, exc_info=exc.__cause__)
            return _Ending(TerminationReason.POLICY_ERROR, exc.failure)
        except EpisodeLost as exc:
            if not exc.by_policy:
                raise
            return _Ending(termination_of(exc), loss=exc)
        return _Ending(TerminationReason.MAX_STEPS)

    def _after_refusal(self, attempt: _Attempt, error: InvalidAction) -> _Ending | None:
        """Return how the acting ends, None when it goes on."""
        failure = Failure(error.code, str(error), ErrorClass.MODEL, dict(error.details), error)
        match self._options.on_invalid:
            case OnInvalid.ERROR:
                return _Ending(TerminationReason.INVALID_ACTION, failure, error.message)
            case OnInvalid.END:
                return _Ending(TerminationReason.INVALID_ACTION, note=error.message)
            case OnInvalid.NOOP:
                if attempt.invalid_actions <= self._options.invalid_limit:
                    return None
                return _Ending(TerminationReason.INVALID_ACTION, failure, error.message)
            case _ as never:
                assert_never(never)


class _Ended(Exception):
    """Raised inside an attempt to end it."""

    def __init__(self, end: _Ending) -> None:
        super().__init__(end.reason)
        self.end = end


def _scored_ending(end: _Ending, evaluation: Evaluation | None) -> _Ending:
    """Return the ending of an episode in the light of its evaluation; None if it was not to be scored."""
    if evaluation is None:
        if end.loss is None:
            return end
        return replace(end, failure=Failure.of(end.loss))  # without a score, the loss shows as a failure
    if evaluation.failure is not None:
        return _Ending(evaluation.termination_reason, evaluation.failure)
    return end if evaluation.loss is None else replace(end, reason=evaluation.termination_reason)


def _is_valid(attempt: _Attempt, end: _Ending) -> bool:
    evaluation = attempt.trajectory.evaluation
    return end.failure is None and (evaluation is None or evaluation.valid_for_training)


def _record(attempt: _Attempt, end: _Ending, index: int, count: int, duration_s: float) -> None:
    """Tell the recorder how an attempt ended."""
    if attempt.recording is None:
        return
    outcome = EpisodeOutcome(
        reward=None if end.failure is not None else attempt.reward,
        failure=end.failure,
        termination_reason=end.reason,
        valid_for_training=_is_valid(attempt, end),
        index=index,
        attempt=count,
        note=end.note,
        invalid_actions=attempt.invalid_actions,
        duration_s=duration_s,
    )
    attempt.recording.end(attempt.trajectory, outcome)


def _repeated(failure: Failure | None) -> bool:
    """Tell failures of the infrastructure, which are tried again, from those of policies and tasks."""
    return (
        failure is not None and failure.error_class is ErrorClass.INFRA and failure.code not in _NOT_REPEATED
    )
