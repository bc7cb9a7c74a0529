"""Many desktops as a :class:`gymnasium.vector.VectorEnv`, of which also the first ready answer."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, iterate

from osgym_sdk._exceptions import ConfigError
from osgym_sdk.gym._pool import Answer, SlotPool
from osgym_sdk.gym._settings import Desktops, DesktopSettings
from osgym_sdk.gym._slot import Pixels, Slot

Batch = tuple[Pixels, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]


class DesktopVectorEnv(VectorEnv[Pixels, Any, npt.NDArray[Any]]):
    """``num_envs`` real desktops on one host or many; spaces and infos are as :class:`DesktopEnv` has them.

    ``step`` acts in all of them at the same time, with one request to each host, as ``send`` does. ``send``
    and ``recv`` do without the slowest: ``recv(n)`` returns the first ``n`` that are ready. What is lost is
    truncated with ``infos["lost"]`` and replaced: by autoreset, or by the caller's reset with
    ``autoreset_mode="Disabled"``.

    Args:
        num_envs: how many desktops; they have to fit on the hosts.
        autoreset_mode: ``NEXT_STEP``, ``SAME_STEP`` or ``DISABLED`` of Gymnasium, or its value as text.
        render_mode: None or ``"rgb_array"``.
        settings: see :class:`DesktopSettings`.

    Raises:
        ConfigError: an argument is wrong.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        **settings: Unpack[DesktopSettings],
    ) -> None:
        if num_envs < 1:
            raise ConfigError("num_envs must be 1 or more")
        self._arguments: dict[str, Any] = {
            "autoreset_mode": autoreset_mode,
            "render_mode": render_mode,
            **settings,
        }
        if render_mode not in (None, "rgb_array"):
            raise ConfigError(f"render_mode must be None or 'rgb_array', not {render_mode!r}")
        try:
            mode = AutoresetMode(autoreset_mode)
        except ValueError as exc:
            raise ConfigError(f"autoreset_mode: {exc}") from exc
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 2, "autoreset_mode": mode}
        self._desktops = desktops = Desktops(settings)
        self.single_observation_space = desktops.observation_space
        self.single_action_space = desktops.form.space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rngs = [seeding.np_random()[0] for _ in range(num_envs)]
        self._ticks = desktops.ticks()
        self._pool = SlotPool([self._slot(index) for index in range(num_envs)], mode)
        self._portal = desktops.client._portal

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments: the copy has no desktops before its first reset."""
        return functools.partial(type(self), self.num_envs, **self._arguments), ()

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Pixels, dict[str, Any]]:
        """Begin episodes on fresh replicas, all at the same time; running episodes are abandoned.

        Args:
            seed: one number (environment i gets ``seed + i``), or one for each.
            options: ``reset_mask``, an array of bool: only these; ``task``: for these episodes.

        Raises:
            OSGymError: a replica was not to be had, or the task is wrong.
        """
        chosen = self._masked(options)
        self._seed(seed, chosen)
        task = (options or {}).get("task")
        self._portal.call(self._start_resets(chosen, task))
        answers = self._portal.call(self._pool.receive(len(chosen), None))
        observations = np.stack([slot.pixels for slot in self._pool.slots])
        return observations, self._infos(answers, self.num_envs, by_index=True)

    def step(self, actions: Any) -> Batch:
        """Act in all environments and wait for all of them.

        Returns:
            Observations ``(num_envs, height, width, 3)``, rewards, terminations, truncations ``(num_envs,)``,
            and infos, each key of which has its mask.

        Raises:
            ValueError: one has ended, and resets are the caller's; or one still acts (``send``).
            OSGymError: an environment could not be replaced several times in a row.
        """
        self.send(actions)
        answers = self._portal.call(self._pool.receive(self.num_envs, None))
        return self._batch(sorted(answers, key=lambda answer: answer[0]))

    def send(self, actions: Any, env_ids: Sequence[int] | npt.NDArray[Any] | None = None) -> None:
        """Begin a step in these environments (all by default) and return at once.

        Args:
            actions: as many as ``env_ids``: a batch of the action space, or a list of single actions.
            env_ids: which; none whose answer has not been received.

        Raises:
            ValueError: as for :meth:`step`.
        """
        ids = list(range(self.num_envs)) if env_ids is None else [int(one) for one in env_ids]
        singles = self._singles(actions, len(ids))
        self._portal.call(self._start_steps(ids, singles))

    def recv(self, count: int = 1, timeout_s: float | None = None) -> Batch:
        """Return the first ``count`` answers, in the order they came; fewer when no more are under way.

        The arrays have as many rows; ``infos["env_id"]`` says of which environments.

        Args:
            count: how many.
            timeout_s: return with fewer, even none, when this is over.

        Raises:
            OSGymError: as for :meth:`step`.
        """
        answers = self._portal.call(self._pool.receive(count, timeout_s))
        batch = self._batch(answers)
        batch[4]["env_id"] = np.array([index for index, _ in answers], dtype=np.int64)
        return batch

    @property
    def under_way(self) -> int:
        """Number of answers that :meth:`recv` can return before something is sent again."""
        return self._pool.under_way

    def render(self) -> tuple[Any, ...] | None:
        """Return the newest observation of each environment with ``rgb_array``, else None."""
        if self.render_mode is None:
            return None
        return tuple(slot.pixels for slot in self._pool.slots)

    def close_extras(self, **kwargs: Any) -> None:
        """Give all replicas back; called by ``close``."""
        if self._portal.open:
            self._portal.call(self._pool.aclose())
            self._portal.call(self._ticks.aclose())
        self._desktops.close()

    async def _start_resets(self, chosen: Iterable[int], task: Any) -> None:
        for index in chosen:
            await self._pool.drop(index)
            self._pool.start_reset(index, task)

    async def _start_steps(self, ids: Sequence[int], actions: Sequence[Any]) -> None:
        if len(set(ids)) != len(ids):
            raise ValueError("an environment occurs twice")
        for index in ids:
            self._pool.check(index)
        for index, action in zip(ids, actions, strict=True):
            self._pool.start_step(index, action)

    def _slot(self, index: int) -> Slot:
        desktops = self._desktops
        return Slot(
            desktops.environment(self._ticks),
            desktops.form,
            desktops.size,
            lambda: desktops.task(self._rngs[index]),
            desktops.lost_reward,
        )

    def _masked(self, options: dict[str, Any] | None) -> list[int]:
        mask = (options or {}).get("reset_mask")
        if mask is None:
            return list(range(self.num_envs))
        mask = np.asarray(mask)
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise ValueError(
                f"reset_mask must be an array of {self.num_envs} bools, at least one of them true"
            )
        return [int(index) for index in np.flatnonzero(mask)]

    def _seed(self, seed: int | Sequence[int | None] | None, chosen: Sequence[int]) -> None:
        if seed is None:
            return
        if isinstance(seed, int):
            super().reset(seed=seed)
            seed = [seed + index for index in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"{len(seed)} seeds were given for {self.num_envs} environments")
        for index in chosen:
            if seed[index] is not None:
                self._rngs[index] = seeding.np_random(seed[index])[0]

    def _singles(self, actions: Any, count: int) -> list[Any]:
        if not isinstance(actions, (list, tuple)):
            space = self.action_space
            if count != self.num_envs:
                space = batch_space(self.single_action_space, count)
            actions = iterate(space, actions)
        singles = list(actions)
        if len(singles) != count:
            raise ValueError(f"{len(singles)} actions were given for {count} environments")
        return singles

    def _batch(self, answers: Sequence[Answer]) -> Batch:
        made = [outcome for _, outcome in answers]
        height, width, depth = self._desktops.observation_space.shape
        observations = np.empty((len(made), height, width, depth), np.uint8)
        for row, outcome in enumerate(made):
            observations[row] = outcome.pixels
        return (
            observations,
            np.array([outcome.reward for outcome in made], dtype=np.float64),
            np.array([outcome.terminated for outcome in made], dtype=np.bool_),
            np.array([outcome.truncated for outcome in made], dtype=np.bool_),
            self._infos(answers, len(made), by_index=False),
        )

    def _infos(self, answers: Sequence[Answer], rows: int, by_index: bool) -> dict[str, Any]:
        """Return infos in Gymnasium's form: by key an array of ``rows``, and its mask under ``_key``."""
        shaped: VectorEnv[Any, Any, Any] = VectorEnv()
        shaped.num_envs = rows
        infos: dict[str, Any] = {}
        for row, (index, outcome) in enumerate(answers):
            info = dict(outcome.info)
            if outcome.final is not None:
                info["final_obs"], info["final_info"] = outcome.final
            infos = shaped._add_info(infos, info, index if by_index else row)
        return infos
