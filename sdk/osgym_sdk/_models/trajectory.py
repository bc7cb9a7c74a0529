"""The trajectory of an episode: its steps and its score, and its form as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from osgym_protocol.reach import ReachEvent
from osgym_sdk._exceptions import ConfigError
from osgym_sdk._models.evaluation import Evaluation, Failure
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
    FrameInfo,
    Message,
    ParentInfo,
    SetupWarning,
    StepAnswer,
    WireFormatError,
)


@dataclass(slots=True)
class StepRecord(AnsweredStep):
    """Record of one step. ``final`` and ``changed_after_ms`` come with the next look at the screen.

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
    """Reason why nothing was done: the screen had changed, or, in a batch with ``on_invalid="noop"``, the
    fault of the policy's output."""
    info: Any = None
    """Info of the policy's :class:`Decision`."""

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
    image_digest: str | None = None
    """Golden image of its desktop; None where the host does not say it."""
    screen: tuple[int, int] = (0, 0)
    reset_ms: Mapping[str, float] = field(default_factory=dict)
    """``wait``, ``setup``, ``observe``, ``total`` in the host, ``client`` the whole call."""
    parent: ParentInfo | None = None
    """Origin of a child or a restored episode, whose steps go on from there."""
    setup_warnings: tuple[SetupWarning, ...] = ()
    """Commands of the task's setup that failed; the episode began all the same unless ``strict_setup``."""
    first_frame: FrameInfo | None = None
    first_data: bytes | None = None
    steps: list[StepRecord] = field(default_factory=list)
    evaluation: Evaluation | None = None
    last_info: Any = None
    """Info of the last :class:`Decision` that led to no step: it ended the episode, was refused, or its step
    was not answered."""
    reaches: list[ReachEvent] = field(default_factory=list)
    """Calls of the client into the desktop past its screen, in the order of their ends."""

    def begin(self, host: str, answer: CreateAnswer, client_ms: float) -> None:
        """Fill in what the host said when it leased the replica; the whole call took ``client_ms``."""
        self.episode_id, self.host = answer.episode_id, host
        self.replica_id, self.generation = answer.replica_id, answer.generation
        self.screen, self.parent = answer.screen, answer.parent
        self.image_digest = answer.image_digest
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
        """Number of steps whose frame changed after the answer.

        Nobody looks after the last step's: it counts when ``obs.final()`` or ``observe()`` did.
        """
        return sum(step.final is False for step in self.steps)

    @property
    def interventions(self) -> int:
        """Number of times that a person acted on the desktop beside the policy, by the last step's answer.

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


def _stored(trajectory: Trajectory, frames: bool) -> dict[str, Any]:
    steps = [
        StoredStep(
            **_fields(
                StoredStep,
                step,
                data=as_base64(step.data) if frames else None,
                info=stored_info(step.info, f"steps[{index}].info", INFO_DEPTH),
            )
        )
        for index, step in enumerate(trajectory.steps)
    ]
    found = trajectory.evaluation
    return StoredTrajectory(
        **_fields(
            StoredTrajectory,
            trajectory,
            version=VERSION,
            first_data=as_base64(trajectory.first_data) if frames else None,
            steps=tuple(steps),
            evaluation=None if found is None else _stored_evaluation(found),
            last_info=stored_info(trajectory.last_info, "last_info", INFO_DEPTH),
            reaches=tuple(trajectory.reaches),
        )
    ).to_dict()


def _restored(data: Any) -> Trajectory:
    version = data.get("version") if isinstance(data, Mapping) else None
    if type(version) is not int or not 1 <= version <= VERSION:
        text = f"a trajectory of version {version!r}" if version is not None else "no trajectory"
        raise ConfigError(
            f"the version of the trajectory is {text[:100]}; versions 1 to {VERSION} can be read"
        )
    try:
        found = StoredTrajectory.from_dict(data)
        fields = _fields(
            StoredTrajectory,
            found,
            first_data=of_base64(found.first_data),
            steps=[_restored_step(step) for step in found.steps],
            evaluation=None if found.evaluation is None else _restored_evaluation(found.evaluation),
            last_info=restored_info(found.last_info),
            reaches=list(found.reaches),
        )
        del fields["version"]
        return Trajectory(**fields)
    except WireFormatError as exc:
        raise ConfigError(f"the data is not a trajectory: {exc}") from exc


def _restored_step(step: StoredStep) -> StepRecord:
    if step.answer.observation is None:
        raise WireFormatError("a step has no observation")
    if not all(isinstance(action, (str, Mapping)) for action in step.requested):
        raise WireFormatError("an action is neither text nor an object")
    info = restored_info(step.info)
    return StepRecord(**_fields(StoredStep, step, data=of_base64(step.data), info=info))


def _stored_evaluation(found: Evaluation) -> StoredEvaluation:
    failure, loss = (
        None if one is None else StoredFailure(**_fields(StoredFailure, one))
        for one in (found.failure, found.loss)
    )
    return StoredEvaluation(**_fields(StoredEvaluation, found, failure=failure, loss=loss))


def _restored_evaluation(found: StoredEvaluation) -> Evaluation:
    failure, loss = (
        None if one is None else Failure(**_fields(StoredFailure, one)) for one in (found.failure, found.loss)
    )
    return Evaluation(**_fields(StoredEvaluation, found, failure=failure, loss=loss))


def _fields(stored: type[Message], source: object, **changed: Any) -> dict[str, Any]:
    """Return the fields of a stored form by name, from an object with the same names."""
    names = stored.field_names()
    return {name: changed[name] if name in changed else getattr(source, name) for name in names}
