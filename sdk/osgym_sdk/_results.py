"""What an episode leaves behind: evaluation, failure, steps, trajectory, batch result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from osgym_sdk import wire
from osgym_sdk._exceptions import (
    EpisodeEnded,
    EpisodeLost,
    EvaluatorError,
    HostUnreachable,
    InvalidAction,
    NoCapacity,
    OSGymError,
    SetupFailed,
    TaskError,
    Timeout,
)
from osgym_sdk._observation import AnsweredStep, Observation, Timing
from osgym_sdk.wire import (
    CreateAnswer,
    ErrorClass,
    ErrorCode,
    ErrorInfo,
    FrameInfo,
    ParentInfo,
    SetupWarning,
    StepAnswer,
    TerminationReason,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no reward. ``cause`` is the exception of the client, where there was one.

    With ``policy_error`` it is what the policy raised, and ``details["traceback"]`` its text: a pickled
    failure has the text, but of the causes only the SDK's own.
    """

    code: str
    message: str
    error_class: ErrorClass | None
    details: Mapping[str, Any] = field(default_factory=dict)
    cause: BaseException | None = field(default=None, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out exceptions of others: nobody knows whether they can be pickled and read again."""
        cause = self.cause if isinstance(self.cause, OSGymError) else None
        return Failure, (self.code, self.message, self.error_class, dict(self.details), cause)

    @classmethod
    def of(cls, error: OSGymError) -> Failure:
        return cls(error.code, str(error), error.error_class, dict(error.details), error)

    @classmethod
    def from_wire(cls, info: ErrorInfo, error_class: ErrorClass | None) -> Failure:
        return cls(info.code, info.message, error_class, dict(info.details))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The score. ``reward`` is None, never 0, when it could not be found out; ``failure`` says why."""

    reward: float | None
    termination_reason: str
    error_class: ErrorClass | None
    valid_for_training: bool
    details: tuple[Any, ...] = ()
    failure: Failure | None = None

    @classmethod
    def from_wire(cls, answer: wire.EvaluationAnswer) -> Evaluation:
        failure = Failure.from_wire(answer.error, answer.error_class) if answer.error else None
        reward = None if failure else answer.reward
        return cls(
            reward,
            answer.termination_reason,
            answer.error_class,
            answer.valid_for_training and reward is not None,
            answer.details,
            failure,
        )

    @classmethod
    def failed(cls, error: OSGymError) -> Evaluation:
        return cls(
            None, termination_of(error), error.error_class or ErrorClass.INFRA, False, (), Failure.of(error)
        )


@dataclass(slots=True)
class StepRecord(AnsweredStep):
    """One step as it went. ``final`` and ``changed_after_ms`` are filled in by the step after it."""

    requested: tuple[Any, ...]
    answer: StepAnswer
    timing: Timing | None
    data: bytes | None = None
    """The image, where ``keep_frames`` was asked for."""
    final: bool | None = None
    changed_after_ms: float | None = None
    refused: str | None = None
    """In a batch with ``on_invalid="noop"``: what was wrong with what the policy gave; nothing was done."""

    @property
    def executed(self) -> tuple[Mapping[str, Any], ...]:
        """Internal actions, in pixels."""
        return self.answer.actions

    @property
    def frame(self) -> FrameInfo:
        return self.meta.frame

    @property
    def replayed(self) -> bool:
        return self.meta.replayed


@dataclass(slots=True)
class Trajectory:
    """An episode as the client saw it; grows while the episode runs."""

    task_id: str | None
    episode_id: str = ""
    host: str = ""
    replica_id: str = ""
    generation: int = 0
    screen: tuple[int, int] = (0, 0)
    reset_ms: Mapping[str, float] = field(default_factory=dict)
    """``wait``, ``setup``, ``observe``, ``total`` in the host, ``client`` the whole call."""
    parent: ParentInfo | None = None
    """What a child or a restored episode was branched from; its steps go on from there."""
    setup_warnings: tuple[SetupWarning, ...] = ()
    """Commands of the task's setup that failed; the episode began all the same unless ``strict_setup``."""
    first_frame: FrameInfo | None = None
    first_data: bytes | None = None
    steps: list[StepRecord] = field(default_factory=list)
    evaluation: Evaluation | None = None

    def begin(self, host: str, answer: CreateAnswer, client_ms: float) -> None:
        """Fill in what the host said when it leased the replica; the whole call took ``client_ms``."""
        self.episode_id, self.host = answer.episode_id, host
        self.replica_id, self.generation = answer.replica_id, answer.generation
        self.screen, self.parent = answer.screen, answer.parent
        self.reset_ms = {**answer.timing_ms, "client": client_ms}
        self.setup_warnings = answer.setup_warnings

    def add_first(self, obs: Observation, keep_frame: bool) -> None:
        """Fill in the first desktop."""
        self.first_frame = obs.meta.frame
        self.first_data = obs.data if keep_frame else None

    def add(self, requested: tuple[Any, ...], obs: Observation, keep_frame: bool) -> StepRecord:
        """Append a step, and give what the answer says of the one before to that one."""
        previous = obs.previous
        if previous is not None and self.steps:
            last = self.steps[-1]
            last.final, last.changed_after_ms = previous.final, previous.changed_after_ms
        record = StepRecord(requested, obs.answer, obs.timing, obs.data if keep_frame else None)
        self.steps.append(record)
        return record


@dataclass(frozen=True, slots=True)
class Result:
    """One task of a batch. Exactly one of ``reward`` and ``failure`` is set, unless nothing was to be scored.

    ``index`` counts the tasks in the order they were given; results come in the order they finish.
    """

    index: int
    task: Any
    task_id: str | None
    reward: float | None
    failure: Failure | None
    termination_reason: str
    valid_for_training: bool
    trajectory: Trajectory
    attempts: int
    duration_s: float
    note: str | None = None
    """With ``invalid_action``: what was wrong with it."""
    invalid_actions: int = 0
    """How often the policy gave what is no action, or one that was refused; nothing was done then."""

    @property
    def steps(self) -> list[StepRecord]:
        return self.trajectory.steps

    @property
    def ok(self) -> bool:
        """The episode ran to its end and was scored (or nothing was to be scored)."""
        return self.failure is None


_HOST_LOST = (HostUnreachable.default_code, ErrorCode.UNKNOWN_EPISODE, "shutdown", "host_restarted")
"""Causes of a lost episode that mean the host agent, not the replica."""


def termination_of(error: OSGymError) -> str:
    """Return the termination reason that an error of an episode stands for."""
    if isinstance(error, EpisodeLost):
        if error.code == ErrorCode.LEASE_EXPIRED:
            return TerminationReason.LEASE_EXPIRED
        return TerminationReason.HOST_LOST if error.cause in _HOST_LOST else TerminationReason.REPLICA_LOST
    table: tuple[tuple[type[OSGymError], TerminationReason], ...] = (
        (InvalidAction, TerminationReason.INVALID_ACTION),
        (NoCapacity, TerminationReason.NO_CAPACITY),
        (HostUnreachable, TerminationReason.HOST_LOST),
        (SetupFailed, TerminationReason.SETUP_FAILED),
        (TaskError, TerminationReason.TASK_INVALID),
        (EvaluatorError, TerminationReason.EVALUATOR_ERROR),
        (EpisodeEnded, TerminationReason.CLOSED),
        (Timeout, TerminationReason.DEADLINE),
    )
    return next((reason for kind, reason in table if isinstance(error, kind)), TerminationReason.INTERNAL)
