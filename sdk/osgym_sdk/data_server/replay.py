"""Finished episodes, step by step, with discounted returns. Pure, but for the choice of samples."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

Item = tuple[int, dict[str, Any], dict[str, Any]]
"""Worker, what its environment returned (see :meth:`OSGymEnv.step`), and ``{"uid": episode}``."""


class ReplayBuffer:
    """The newest ``capacity`` steps of episodes that ended with a reward.

    Args:
        capacity: in steps; the oldest go first.
        gamma: discount of returns: ``G = reward + gamma * G of the next step``.
        only_keep_outcome: keep the last step of each episode only.
        balance_thres: returns below it count as low in :meth:`get_balance_stats`.
        rng: chooses the samples.
    """

    def __init__(
        self,
        capacity: int = 10000,
        gamma: float = 1.0,
        only_keep_outcome: bool = False,
        balance_thres: float = 0.1,
        rng: random.Random | None = None,
    ) -> None:
        if capacity < 1:
            raise ValueError("capacity must be 1 or more")
        self.capacity = capacity
        self.gamma = gamma
        self.only_keep_outcome = only_keep_outcome
        self.balance_thres = balance_thres
        self.ready_buffer: deque[Item] = deque(maxlen=capacity)
        self.episode_buffer: dict[str, list[Item]] = {}
        """Steps of episodes that go on."""
        self.masked_episodes = 0
        """Episodes that ended without a reward: they are in no sample."""
        self._rng = rng or random.Random()  # noqa: S311 - chooses samples

    def add(self, data: Item) -> None:
        """Take a step; with the last one its episode can be sampled, unless it has no reward."""
        _, env_ret, meta_info = data
        uid = meta_info["uid"]
        steps = self.episode_buffer.setdefault(uid, [])
        steps.append(data)
        if not env_ret["done"]:
            return
        del self.episode_buffer[uid]
        if not env_ret.get("valid", True):
            self.masked_episodes += 1
            return
        self._keep(steps)

    def forget(self, uid: str) -> None:
        """Drop the steps of an episode that will not end."""
        if self.episode_buffer.pop(uid, None) is not None:
            self.masked_episodes += 1

    def sample(self, batch_size: int) -> list[Item]:
        """Return different steps, at random; all of them where there are fewer."""
        return self._rng.sample(self.ready_buffer, min(batch_size, len(self.ready_buffer)))

    def get_balance_stats(self) -> tuple[int, int]:
        """Return how many returns are below the threshold, and how many are not."""
        below = sum(item[1]["reward"] < self.balance_thres for item in self.ready_buffer)
        return below, len(self.ready_buffer) - below

    def should_keep(self, curr_below: int, curr_above: int, curr_ret: float) -> bool:
        """Tell a step whose return brings low and high returns nearer to balance."""
        rate = (curr_above - curr_below) / (curr_above + curr_below + 1e-8)
        if -0.1 < rate < 0.1:
            return True
        return curr_ret < self.balance_thres if rate > 0 else curr_ret > self.balance_thres

    def clear(self) -> None:
        """Drop everything, also what is known of episodes that go on."""
        self.ready_buffer.clear()
        self.episode_buffer.clear()

    def __len__(self) -> int:
        return len(self.ready_buffer)

    def _keep(self, steps: list[Item]) -> None:
        if self.only_keep_outcome:
            self.ready_buffer.append(steps[-1])
            return
        returns: list[float] = []
        following = 0.0
        for _, env_ret, _ in reversed(steps):
            following = env_ret["reward"] + self.gamma * following
            returns.append(following)
        for (worker, env_ret, meta), value in zip(steps, reversed(returns), strict=True):
            self.ready_buffer.append((worker, {**env_ret, "reward": value}, meta))
