"""Slot of an environment: a desktop that acts, ends, is lost and is replaced, as arrays."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from osgym_sdk._environment import Environment, Transition
from osgym_sdk._exceptions import BadFrame, OSGymError
from osgym_sdk._inputs.options import Task, as_task
from osgym_sdk._models.evaluation import Failure
from osgym_sdk._models.observation import Observation
from osgym_sdk.gym.actions import ActionForm, Size

Pixels = npt.NDArray[np.uint8]
"""``(height, width, 3)``, RGB."""

MAX_LOST_RESETS = 3
"""Number of resets in a row without a replica after which the error is raised."""


@dataclass(slots=True)
class Outcome:
    """Result of one reset or step, as Gymnasium has it."""

    pixels: Pixels
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    final: tuple[Pixels, dict[str, Any]] | None = None
    """Last observation and info of the episode that ended, with autoreset in the same step."""

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


class Slot:
    """Turns transitions into arrays and infos."""

    def __init__(
        self,
        environment: Environment,
        form: ActionForm,
        size: Size,
        choose: Callable[[], Task | None],
        lost_reward: float = math.nan,
    ) -> None:
        """Lease nothing yet. ``choose`` gives the task of the next episode."""
        self._environment = environment
        self._form = form
        self._choose = choose
        self._lost_reward = lost_reward
        self._pixels: Pixels = np.zeros((size[1], size[0], 3), np.uint8)
        self._screen: Size = size
        self._lost_resets = 0
        self._step = 0
        self._episode_id = ""
        self.ended = True

    @property
    def pixels(self) -> Pixels:
        """A copy of the newest observation; black before the first."""
        return self._pixels.copy()

    async def reset(self, task: Task | None = None) -> Outcome:
        """Begin an episode on a fresh replica; with the chosen task unless one is given.

        Raises:
            OSGymError: see :meth:`Environment.reset`.
        """
        self.ended = True
        environment = self._environment
        chosen = self._choose() if task is None else task
        obs = await environment.reset(chosen)
        await self._look(obs)
        self.ended = False
        self._lost_resets = self._step = 0
        episode = environment.episode
        assert episode is not None, "a reset opens one"
        self._episode_id = episode.episode_id
        info = self._info(Transition(obs))
        info["task_id"] = episode.trajectory.task_id or ""
        info["instruction"] = instruction_of(chosen)
        return Outcome(self.pixels, info=info)

    async def step(self, action: Any) -> Outcome:
        """Act. A loss is part of what is returned: truncated, with ``info["lost"]``.

        Raises:
            EpisodeEnded: the episode has ended; reset first.
            InvalidAction, ValueError: the action is refused.
        """
        actions = self._form.actions(action, self._screen)
        made = await self._environment.step(actions)
        self._step += 1
        try:
            await self._look(made.observation)
        except BadFrame as exc:
            await self._environment.aclose()
            made = Transition(made.observation, truncated=True, failure=Failure.of(exc))
        reward = made.reward if made.reward is not None else 0.0
        if made.failure is not None:
            reward = self._lost_reward
        self.ended = made.ended
        return Outcome(self.pixels, reward, made.terminated, made.truncated, self._info(made))

    async def replace(self) -> Outcome:
        """Reset where nobody can be told of a failure but by a step: there is none, so it is lost again.

        Raises:
            OSGymError: the infrastructure gave no replica several times in a row, or the task is wrong.
        """
        try:
            return await self.reset()
        except OSGymError as exc:
            self._lost_resets += 1
            failure = Failure.of(exc)
            if self._lost_resets >= MAX_LOST_RESETS or not _infra(failure):
                raise
        return Outcome(self.pixels, self._lost_reward, truncated=True, info=_failure_info(failure))

    async def aclose(self) -> None:
        """Give the replica back. Idempotent."""
        self.ended = True
        await self._environment.aclose()

    async def _look(self, obs: Observation) -> None:
        self._screen = obs.screen
        if not obs.unchanged or not self._step:
            self._pixels = await asyncio.to_thread(as_pixels, obs)

    def _info(self, made: Transition) -> dict[str, Any]:
        """Return the info of a step: plain values that are there each time, and those of failures."""
        info: dict[str, Any] = {
            "lost": made.lost,
            "valid": made.failure is None,
            "refused": made.refused or "",
            "step": self._step,
            "episode_id": self._episode_id,
        }
        timing = made.observation.timing
        if timing is not None and not made.lost:
            info["total_ms"], info["settle_ms"] = timing.total_ms, timing.settle_ms
        if made.reward is not None:
            info["score"] = made.reward
        if made.failure is not None:
            info |= _failure_info(made.failure)
        if made.loss is not None:
            info["loss"] = str(made.loss.details.get("cause", made.loss.code))
        return info


def as_pixels(obs: Observation) -> Pixels:
    """Return an observation's image as an array of its own."""
    return np.array(obs.image, dtype=np.uint8)


def instruction_of(task: Task | None) -> str:
    """Return what a task asks for; empty where there is none."""
    loaded = as_task(task)
    return "" if loaded is None else str(loaded.get("instruction", ""))


def _infra(failure: Failure) -> bool:
    return bool(_failure_info(failure)["lost"])


def _failure_info(failure: Failure) -> dict[str, Any]:
    kind = failure.error_class
    return {
        "lost": kind is not None and kind.value == "infra",
        "valid": False,
        "failure": failure.code,
        "failure_message": failure.message,
        "failure_class": "" if kind is None else kind.value,
    }
