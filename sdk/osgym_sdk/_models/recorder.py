"""Interface between the client and recorders, which receive episodes while they run.

``osgym_sdk.data.DatasetWriter`` is one; anything with these methods is another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from osgym_sdk._models.evaluation import Evaluation, Failure
from osgym_sdk._models.observation import Observation
from osgym_sdk._models.trajectory import StepRecord, Trajectory
from osgym_sdk.wire import ErrorClass, HostState, TerminationReason


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """End of an episode. ``index`` and ``attempt`` (from 1) are those of a batch."""

    reward: float | None
    failure: Failure | None
    termination_reason: str
    valid_for_training: bool
    index: int | None = None
    attempt: int | None = None
    note: str | None = None
    invalid_actions: int = 0
    duration_s: float | None = None

    @classmethod
    def by_hand(cls, evaluation: Evaluation | None, failure: Failure | None, reason: str) -> EpisodeOutcome:
        """Return how an episode ended that no batch ran."""
        if evaluation is None or failure is not None:
            valid = failure is None or failure.error_class is ErrorClass.MODEL
            return cls(None, failure, reason, valid)
        reason = evaluation.termination_reason or TerminationReason.CLOSED
        return cls(evaluation.reward, evaluation.failure, reason, evaluation.valid_for_training)


class EpisodeRecording(Protocol):
    """Recording of one episode. All methods but ``room`` return at once and raise nothing."""

    async def room(self) -> None:
        """Wait until there is room for another step; a recorder that cannot keep up slows the episode."""

    def begin(self, trajectory: Trajectory, obs: Observation, host: HostState | None) -> None:
        """Take the first desktop. ``host`` is what the host last said of itself, None when it is unknown."""

    def step(self, record: StepRecord, obs: Observation) -> None:
        """Take a step that was answered."""

    def end(self, trajectory: Trajectory, outcome: EpisodeOutcome) -> None:
        """Take the end; the last call."""


class Recorder(Protocol):
    """Given as ``record=`` to :meth:`AsyncClient.run` and :meth:`AsyncClient.episode`."""

    def record(self, task: Mapping[str, Any] | None) -> EpisodeRecording:
        """Return the recording of a new episode of this task."""

    async def flush(self) -> None:
        """Wait until everything that was recorded is stored.

        Raises:
            OSGymError: it cannot be.
        """
