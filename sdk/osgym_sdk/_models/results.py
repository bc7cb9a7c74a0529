"""What an episode leaves behind: evaluation, failure, steps, trajectory, batch result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from osgym_protocol.reach import ReachEvent
from osgym_sdk import wire
from osgym_sdk._exceptions import (
    ConfigError,
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
from osgym_sdk._models.observation import AnsweredStep, Observation, Timing
from osgym_sdk._models.stored import (
    INFO_DEPTH,
    VERSION,
    StoredEvaluation,
    StoredFailure,
    StoredStep,
    StoredTrajectory,
    as_base64,
    of_base64,
    restored_info,
    stored_info,
)
from osgym_sdk.wire import (
    CreateAnswer,
    ErrorClass,
    ErrorCode,
    ErrorInfo,
    Evidence,
    FrameInfo,
    ParentInfo,
    SetupWarning,
    StepAnswer,
    TerminationReason,
    WireFormatError,
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
    loss: Failure | None = None
    """Error that ended the episode or its check because of the policy; ``reward`` is then 0."""
    evidence: Evidence | None = None
    """Source of the check's evidence: ``guest`` if it asked programs of the desktop, which may be forged."""

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
            Failure.from_wire(answer.loss, answer.error_class) if answer.loss else None,
            answer.evidence,
        )

    @classmethod
    def lost_by_policy(cls, error: EpisodeLost, interventions: int) -> Evaluation:
        """Return the evaluation of an episode whose desktop the policy broke: reward 0.

        Args:
            error: Error that ended the episode.
            interventions: Number of times that a person acted. If any, that person may have broken the
                desktop, and the evaluation is not valid for training.
        """
        valid = interventions == 0
        return cls(0.0, termination_of(error), ErrorClass.POLICY, valid, loss=Failure.of(error))

    @classmethod
    def failed(cls, error: OSGymError) -> Evaluation:
        return cls(
            None, termination_of(error), error.error_class or ErrorClass.INFRA, False, (), Failure.of(error)
        )


@dataclass(slots=True)
class StepRecord(AnsweredStep):
    """One step as it went. ``final`` and ``changed_after_ms`` are filled in by what looks after it.

    A step that settled by ``"certain"`` says ``final`` itself, until then.
    """

    requested: tuple[Any, ...]
    answer: StepAnswer
    timing: Timing | None
    data: bytes | None = None
    """The image, where ``keep_frames`` was asked for."""
    final: bool | None = None
    changed_after_ms: float | None = None
    refused: str | None = None
    """In a batch with ``on_invalid="noop"``: what was wrong with what the policy gave; nothing was done."""
    info: Any = None
    """Of the policy's :class:`Decision`, as it was given."""

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
    last_info: Any = None
    """Of the last :class:`Decision`, where no step came of it: it ended the episode, was refused, or its step
    was never answered."""
    reaches: list[ReachEvent] = field(default_factory=list)
    """What its client did in the desktop past its screen, in the order in which it ended."""

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
        self.judge_last(obs)
        data = obs.data if keep_frame else None
        record = StepRecord(requested, obs.answer, obs.timing, data, final=obs.meta.final)
        self.steps.append(record)
        return record

    def judge_last(self, obs: Observation) -> None:
        """Give what an answer says of the frame before it to the last step, if it was that one's."""
        previous = obs.previous
        if previous is not None and self.steps and self.steps[-1].meta.seq == previous.seq:
            last = self.steps[-1]
            last.final, last.changed_after_ms = previous.final, previous.changed_after_ms

    @property
    def frames_not_final(self) -> int:
        """How many steps' frames changed after they were answered.

        Nobody looks after the last step's: it counts when ``obs.final()`` or ``observe()`` did.
        """
        return sum(step.final is False for step in self.steps)

    @property
    def interventions(self) -> int:
        """How often a person acted on the desktop beside the policy, as the last step's answer knew.

        The reward of such an episode is not ``valid_for_training``.
        """
        return max((step.answer.interventions or 0 for step in self.steps), default=0)

    def to_dict(self, *, frames: bool = False) -> dict[str, Any]:
        """Return it as JSON, with its version; :meth:`from_dict` reads it again.

        Args:
            frames: the images too, where ``keep_frames`` kept them, as base64.

        Raises:
            ConfigError: an ``info`` is not JSON, bytes or arrays; the message says where.
        """
        return _stored(self, frames)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trajectory:
        """Return what :meth:`to_dict` wrote; of a failure's ``cause`` nothing is left.

        Raises:
            ConfigError: it is no trajectory, or one of a later version.
        """
        return _restored(data)


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
    member: int = 0
    """In a group of rollouts: which one, counted from 0."""
    invalid_actions: int = 0
    """How often the policy gave what is no action, or one that was refused; nothing was done then."""
    losses: int = 0
    """Number of attempts that were lost for infrastructure after the policy had begun to act, repeated ones
    included. Look at tasks with two or more: the policy may do something that breaks its desktop."""

    @property
    def steps(self) -> list[StepRecord]:
        return self.trajectory.steps

    @property
    def frames_not_final(self) -> int:
        """How many steps' frames changed after they were answered; see :class:`Trajectory`."""
        return self.trajectory.frames_not_final

    @property
    def interventions(self) -> int:
        """How often a person acted beside the policy; see :class:`Trajectory`."""
        return self.trajectory.interventions

    @property
    def loss(self) -> Failure | None:
        """Error of an episode that ended since the policy broke its desktop; the reward is then 0."""
        evaluation = self.trajectory.evaluation
        return None if evaluation is None or self.failure is not None else evaluation.loss

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


# Trajectories as JSON and back -----------------------------------------------------------------------


def _stored(trajectory: Trajectory, frames: bool) -> dict[str, Any]:
    """See :meth:`Trajectory.to_dict`."""
    steps = []
    for index, step in enumerate(trajectory.steps):
        data = as_base64(step.data) if frames else None
        info = stored_info(step.info, f"steps[{index}].info", INFO_DEPTH)
        steps.append(
            StoredStep(
                step.requested,
                step.answer,
                step.timing,
                data,
                step.final,
                step.changed_after_ms,
                step.refused,
                info,
            )
        )
    found = trajectory.evaluation
    return StoredTrajectory(
        version=VERSION,
        task_id=trajectory.task_id,
        episode_id=trajectory.episode_id,
        host=trajectory.host,
        replica_id=trajectory.replica_id,
        generation=trajectory.generation,
        screen=trajectory.screen,
        reset_ms=trajectory.reset_ms,
        parent=trajectory.parent,
        setup_warnings=trajectory.setup_warnings,
        first_frame=trajectory.first_frame,
        first_data=as_base64(trajectory.first_data) if frames else None,
        steps=tuple(steps),
        evaluation=None if found is None else _stored_evaluation(found),
        last_info=stored_info(trajectory.last_info, "last_info", INFO_DEPTH),
        reaches=tuple(trajectory.reaches),
    ).to_dict()


def _restored(data: Any) -> Trajectory:
    """See :meth:`Trajectory.from_dict`."""
    version = data.get("version") if isinstance(data, Mapping) else None
    if type(version) is not int or not 1 <= version <= VERSION:
        text = f"a trajectory of version {version!r}" if version is not None else "no trajectory"
        raise ConfigError(f"it is {text[:100]}; versions 1 to {VERSION} can be read")
    try:
        found = StoredTrajectory.from_dict(data)
        steps = [_restored_step(step) for step in found.steps]
        return Trajectory(
            found.task_id,
            found.episode_id,
            found.host,
            found.replica_id,
            found.generation,
            found.screen,
            found.reset_ms,
            found.parent,
            found.setup_warnings,
            found.first_frame,
            of_base64(found.first_data),
            steps,
            None if found.evaluation is None else _restored_evaluation(found.evaluation),
            restored_info(found.last_info),
            list(found.reaches),
        )
    except WireFormatError as exc:
        raise ConfigError(f"it is no trajectory: {exc}") from exc


def _restored_step(step: StoredStep) -> StepRecord:
    if step.answer.observation is None:
        raise WireFormatError("a step has no observation")
    if not all(isinstance(action, (str, Mapping)) for action in step.requested):
        raise WireFormatError("an action is neither text nor an object")
    return StepRecord(
        step.requested,
        step.answer,
        step.timing,
        of_base64(step.data),
        step.final,
        step.changed_after_ms,
        step.refused,
        restored_info(step.info),
    )


def _stored_evaluation(found: Evaluation) -> StoredEvaluation:
    return StoredEvaluation(
        found.reward,
        found.termination_reason,
        found.error_class,
        found.valid_for_training,
        found.details,
        _stored_failure(found.failure),
        _stored_failure(found.loss),
        found.evidence,
    )


def _stored_failure(failure: Failure | None) -> StoredFailure | None:
    if failure is None:
        return None
    return StoredFailure(failure.code, failure.message, failure.error_class, failure.details)


def _restored_failure(failure: StoredFailure | None) -> Failure | None:
    if failure is None:
        return None
    return Failure(failure.code, failure.message, failure.error_class, failure.details)


def _restored_evaluation(found: StoredEvaluation) -> Evaluation:
    return Evaluation(
        found.reward,
        found.termination_reason,
        found.error_class,
        found.valid_for_training,
        found.details,
        _restored_failure(found.failure),
        _restored_failure(found.loss),
        found.evidence,
    )
