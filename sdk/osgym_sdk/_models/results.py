"""Results of a batch: one for each task, or a group of them for each task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from osgym_sdk._models.evaluation import Failure
from osgym_sdk._models.trajectory import StepRecord, Trajectory
from osgym_sdk.wire import ErrorClass


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one task. Exactly one of ``reward`` and ``failure`` is set, unless nothing was to be scored.

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
    """Fault of the action, with the reason ``invalid_action``."""
    member: int = 0
    """Number of the member in a group of rollouts, from 0."""
    invalid_actions: int = 0
    """Number of outputs of the policy that were no action or were refused; nothing was done then."""
    losses: int = 0
    """Number of attempts that were lost for infrastructure after the policy had begun to act, repeated ones
    included. Look at tasks with two or more: the policy may do something that breaks its desktop."""

    @property
    def steps(self) -> list[StepRecord]:
        return self.trajectory.steps

    @property
    def frames_not_final(self) -> int:
        """Number of steps whose frame changed after the answer; see :class:`Trajectory`."""
        return self.trajectory.frames_not_final

    @property
    def interventions(self) -> int:
        """Number of times that a person acted beside the policy; see :class:`Trajectory`."""
        return self.trajectory.interventions

    @property
    def loss(self) -> Failure | None:
        """Error of an episode that ended since the policy broke its desktop; the reward is then 0."""
        evaluation = self.trajectory.evaluation
        return None if evaluation is None or self.failure is not None else evaluation.loss

    @property
    def ok(self) -> bool:
        """True: the episode ran to its end and was scored, or nothing was to be scored."""
        return self.failure is None


@dataclass(frozen=True, slots=True)
class Group:
    """Several episodes of one task from the same start, as GRPO and its kin compare them.

    Advantages are the trainer's to compute; members without a reward have None in ``rewards``, never 0.
    A member that broke its own desktop has the reward 0.
    """

    index: int
    """Counts the tasks in the order they were given; groups come in the order they finish."""
    task: Any
    task_id: str | None
    size: int
    """Number of members that were asked for."""
    results: tuple[Result, ...]
    """Results of the members in their order, lost ones included; empty where the set-up failed."""
    failure: Failure | None
    """Reason why the group is short: failure of the set-up, or of the first member that was lost for good."""
    branched: bool
    """True: the set-up ran once and the members are children of that moment; else each was set up itself."""
    duration_s: float

    @property
    def rewards(self) -> tuple[float | None, ...]:
        """Rewards of the members, in their order."""
        return tuple(result.reward for result in self.results)

    @property
    def complete(self) -> bool:
        """True: no member is missing; one that failed by its own policy is there, without a reward."""
        return self.failure is None and len(self.results) == self.size

    @property
    def lost(self) -> tuple[Result, ...]:
        """Members that the infrastructure lost, as often as they were refilled."""
        return tuple(result for result in self.results if is_lost(result))

    @property
    def same_start(self) -> bool | None:
        """True: all first frames are equal bit by bit; None where there are not two to compare."""
        frames = [result.trajectory.first_frame for result in self.results]
        hashes = [frame.hash for frame in frames if frame is not None and frame.hash]
        return len(set(hashes)) == 1 if len(hashes) > 1 else None


def is_lost(result: Result) -> bool:
    """Tell a member that is missing from one whose policy or task ended it."""
    failure = result.failure
    return failure is not None and failure.error_class not in (
        ErrorClass.MODEL,
        ErrorClass.POLICY,
        ErrorClass.TASK,
    )
