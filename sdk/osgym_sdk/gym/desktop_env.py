"""One desktop as a :class:`gymnasium.Env`."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Unpack

import gymnasium

from osgym_sdk._exceptions import ConfigError
from osgym_sdk.gym._settings import Desktops, DesktopSettings
from osgym_sdk.gym._slot import Outcome, Pixels, Slot


class DesktopEnv(gymnasium.Env[Pixels, Any]):
    """A real desktop.

    Observation: ``Box(0, 255, (height, width, 3), uint8)``, the screen in RGB at ``size``. Action: see
    :mod:`osgym_sdk.gym.actions`. Reward: 0 while the episode goes on, the task's score at its end.
    Terminated: the agent ended it. Truncated: out of ``max_steps`` (and scored as it stands), or lost: then
    the reward is ``lost_reward`` (NaN), ``info["lost"]`` is true and ``info["valid"]`` false, and the next
    reset takes a fresh replica. ``info`` also has ``refused``, ``step``, timings, and after a reset
    ``instruction`` and ``task_id``. A seed decides which tasks come; programs take their own time.

    Args:
        render_mode: None or ``"rgb_array"``: the newest observation.
        settings: see :class:`DesktopSettings`.

    Raises:
        ConfigError: an argument is wrong.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 2}  # type: ignore[misc] # theirs is an instance's

    def __init__(self, render_mode: str | None = None, **settings: Unpack[DesktopSettings]) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ConfigError(f"render_mode must be None or 'rgb_array', not {render_mode!r}")
        self._arguments: dict[str, Any] = {"render_mode": render_mode, **settings}
        self.render_mode = render_mode
        self._desktops = desktops = Desktops(settings)
        self.observation_space = desktops.observation_space
        self.action_space = desktops.form.space
        self._slot = Slot(
            desktops.environment(),
            desktops.form,
            desktops.size,
            lambda: desktops.task(self.np_random),
            desktops.lost_reward,
        )
        self._closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments: the copy has no desktop before its first reset."""
        return functools.partial(type(self), **self._arguments), ()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Pixels, dict[str, Any]]:
        """Begin an episode on a fresh replica.

        Args:
            seed: of the choice among tasks.
            options: ``task`` for this episode.

        Raises:
            OSGymError: no replica was to be had, or the task is wrong.
        """
        super().reset(seed=seed)
        task = (options or {}).get("task")
        outcome: Outcome = self._portal.call(self._slot.reset(task))
        return outcome.pixels, outcome.info

    def step(self, action: Any) -> tuple[Pixels, float, bool, bool, dict[str, Any]]:
        """Act, wait for the screen, look.

        Raises:
            EpisodeEnded: the episode has ended; reset first.
            InvalidAction: refused, with ``on_invalid="error"``.
        """
        made: Outcome = self._portal.call(self._slot.step(action))
        return made.pixels, made.reward, made.terminated, made.truncated, made.info

    def render(self) -> Any:
        """Return the newest observation with ``rgb_array``, else None."""
        return self._slot.pixels if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Give the replica back. Idempotent."""
        if not self._closed:
            self._closed = True
            if self._portal.open:
                self._portal.call(self._slot.aclose())
            self._desktops.close()

    @property
    def _portal(self) -> Any:
        return self._desktops.client._portal
