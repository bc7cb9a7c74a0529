"""Options of a batch as callers write them, and as the batch reads them."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from typing import Any, cast

from osgym_sdk._batch.progress import OnProgress, ProgressLine
from osgym_sdk._batch.verifier import DEFAULT_REWARD_S, Reward, check_reward
from osgym_sdk._episode.plan import EpisodeArguments
from osgym_sdk._exceptions import ConfigError
from osgym_sdk._inputs.options import as_choice
from osgym_sdk._models.recorder import Recorder

DEFAULT_MAX_INVALID = 5
BATCH_DEFAULTS: EpisodeArguments = {"max_steps": 100, "wait_s": 600.0}
"""Defaults of episodes that no person waits for."""


class OnInvalid(enum.StrEnum):
    """Consequence of a policy's output that is no action, or of an action that the host refuses."""

    ERROR = "error"
    """The episode is a failure of the class ``model``, without a reward."""
    NOOP = "noop"
    """The desktop stays as it is; the output counts as a step, and the policy is asked again."""
    END = "end"
    """The acting ends, and the desktop is scored as it stands."""


class RunArguments(EpisodeArguments, total=False):
    """Arguments of :meth:`AsyncClient.run` and :meth:`AsyncClient.rollouts`, with those of their episodes."""

    concurrency: int
    """Number of episodes played at once: 8 in :meth:`AsyncClient.run`, 16 in rollouts."""
    evaluate: bool
    """False leaves the episodes without a score."""
    retries: int
    """Number of further attempts, each on a fresh replica, after the infrastructure failed under a task: 1 in
    :meth:`AsyncClient.run`, 2 in rollouts. An episode is not attempted again after a reward, after a
    fault of the policy or the task, when no host or replica was free within ``wait_s``, or after
    ``episode_timeout_s``."""
    on_invalid: OnInvalid | str
    """Consequence of a policy's output that is no action, or that the host refuses. ``"error"``, the default:
    a failure of the class ``model``, so no reward. ``"noop"``: nothing is done, it counts as a step, and the
    policy is asked again (``obs.refused`` says why). ``"end"``: the acting ends and the desktop is scored as
    it stands."""
    max_invalid: int | None
    """Number of such outputs that an episode may have with ``"noop"``, 5 by default; one more is a failure as
    with ``"error"``."""
    episode_timeout_s: float | None
    """Deadline of one episode, waiting and scoring included."""
    on_progress: OnProgress | None
    """Function that is called with a :class:`Progress` at every change."""
    progress: bool
    """True shows the progress on stderr; rollouts do so where that is a terminal."""
    reward: Reward | None
    """``async def reward(episode, task)``, a verifier of one's own in the place of the task's check. It is
    called when the acting has ended, and gives the reward, or None where nothing can be scored. An error in
    it is a failure of its episode."""
    reward_timeout_s: float
    """Deadline of ``reward``, 300 s by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """Options of a batch; see :class:`RunArguments`."""

    concurrency: int = 8
    max_steps: int
    evaluate: bool = True
    retries: int = 1
    on_invalid: OnInvalid = OnInvalid.ERROR
    max_invalid: int | None = None
    episode_timeout_s: float | None = None
    on_progress: OnProgress | None = None
    recorder: Recorder | None = None
    reward: Reward | None = None
    reward_timeout_s: float = DEFAULT_REWARD_S

    def __post_init__(self) -> None:
        """Check the options. Raises ConfigError if one is wrong."""
        if self.concurrency < 1 or self.max_steps < 1 or self.retries < 0:
            raise ConfigError("concurrency and max_steps must be 1 or more, retries 0 or more")
        if self.max_invalid is not None and (self.max_invalid < 0 or self.on_invalid != OnInvalid.NOOP):
            raise ConfigError('max_invalid must be 0 or more, and needs on_invalid="noop"')
        if self.reward is not None:
            check_reward(self.reward, self.reward_timeout_s)

    @property
    def invalid_limit(self) -> int:
        """Number of invalid outputs that an episode may have."""
        return DEFAULT_MAX_INVALID if self.max_invalid is None else self.max_invalid


_OWN = frozenset(field.name for field in dataclasses.fields(BatchOptions)) - {"max_steps", "recorder"}


def read_run_arguments(arguments: RunArguments) -> tuple[BatchOptions, EpisodeArguments]:
    """Return the options of a batch, and those of its episodes.

    Raises:
        ConfigError: an option is wrong.
    """
    given: dict[str, Any] = {**BATCH_DEFAULTS, **{k: v for k, v in arguments.items() if v is not None}}
    own = {name: given.pop(name) for name in _OWN & given.keys()}
    if "on_invalid" in own:
        own["on_invalid"] = as_choice(OnInvalid, own["on_invalid"], "on_invalid")
    if given.pop("progress", False):
        own.setdefault("on_progress", ProgressLine())
    options = BatchOptions(max_steps=given["max_steps"], recorder=given.get("record"), **own)
    return options, cast(EpisodeArguments, given)
