"""Scores of episodes, and the failures in their place."""

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
from osgym_sdk.wire import ErrorClass, ErrorCode, ErrorInfo, Evidence, TerminationReason


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason why there is no reward. ``cause`` is the exception of the client, where there was one.

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
    """Score of an episode. ``reward`` is None, never 0, when there is no score; ``failure`` says why."""

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
