"""Many environments, each a coroutine; batches of those that are ready."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from osgym_sdk._exceptions import ConfigError, HostUnreachable
from osgym_sdk.data_server.batches import RowMaker, Tokenizer, collate, default_tensors
from osgym_sdk.data_server.replay import Item, ReplayBuffer
from osgym_sdk.data_server.workers import Dead, Lost, Workers


class MultiTurnDataloader:
    """Iterate for batches of prompts, answer each with :meth:`async_step`; close it at the end.

    An environment has one prompt out at a time, and acts while others' prompts are answered. One that dies
    is replaced. Where fewer than ``batch_size`` can be ready, a batch is filled with rows whose ``mask`` is 0
    (and ``worker_id`` -1), which :meth:`async_step` ignores.

    Args:
        env_class: makes an environment of ``(env_config, worker_id)``: :class:`OSGymEnv`, or any class with
            ``reset()`` and ``step(action)``, coroutines or not (those that are not run in threads).
        env_configs: one for each environment.
        tokenizer: see :class:`Tokenizer`.
        processor: of images, as Qwen-VL's; None leaves them in ``multi_modal_data``.
        is_multi_modal: whether prompts have images.
        batch_size: rows of a batch; no more than there are environments.
        replay_capacity, replay_reward_discount, only_keep_outcome_in_replay: of the replay buffer.
        max_prompt_length, max_response_length: in tokens.
        position_ids: see :class:`RowMaker`.
        tensors: ``"pt"`` or ``"np"``; torch's where it is installed.
        ready_timeout_s: how long a batch waits for more than one row.
        step_timeout_s: an environment that takes longer for a reset or a step is replaced.
        seed: of the choice of rows and samples.

    Raises:
        ConfigError: an argument is wrong.
    """

    def __init__(
        self,
        env_class: Callable[..., Any],
        env_configs: Sequence[Mapping[str, Any]],
        tokenizer: Tokenizer,
        processor: Any = None,
        is_multi_modal: bool = True,
        batch_size: int = 8,
        replay_capacity: int = 10000,
        replay_reward_discount: float = 0.9,
        max_prompt_length: int = 1024,
        max_response_length: int = 1024,
        only_keep_outcome_in_replay: bool = False,
        *,
        position_ids: Callable[..., Any] | None = None,
        tensors: str | None = None,
        ready_timeout_s: float = 120.0,
        step_timeout_s: float = 1200.0,
        seed: int | None = None,
    ) -> None:
        self.num_envs = len(env_configs)
        self.batch_size = batch_size
        if not 1 <= batch_size <= self.num_envs:
            raise ConfigError(
                f"batch_size must be from 1 to the {self.num_envs} environments, not {batch_size}"
            )
        self._rng = random.Random(seed)  # noqa: S311 - chooses rows
        self.replay = ReplayBuffer(
            replay_capacity, replay_reward_discount, only_keep_outcome_in_replay, rng=self._rng
        )
        self._tokenizer = tokenizer
        self._rows = RowMaker(
            tokenizer, processor, is_multi_modal, max_prompt_length, max_response_length, position_ids
        )
        self._tensors = tensors or default_tensors()
        self._ready_timeout_s = ready_timeout_s
        self._ready: dict[int, Item] = {}
        """States that wait for a batch."""
        self._dead: dict[int, Exception] = {}
        self._running_reward = 0.0
        self.lost_episodes = 0
        """Episodes that ended without a reward, or with their environment."""
        self.stale_answers = 0
        """Answers to episodes that had gone when they came, and second answers."""
        self._workers = Workers(env_class, env_configs, step_timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all environments and give their replicas back. Idempotent."""
        self._workers.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        """Return a batch of prompts: ``input_ids, attention_mask, position_ids, worker_id, meta_info, mask``.

        Raises:
            StopIteration: it is closed.
            Exception: what the last environment died of.
        """
        if self._workers.closed:
            raise StopIteration
        self._gather(0.0)
        deadline = self._workers.clock() + self._ready_timeout_s
        while len(self._ready) < min(self.batch_size, self.num_envs - len(self._dead)):
            left_s = deadline - self._workers.clock()
            if left_s <= 0 and self._ready:
                break
            self._gather(max(left_s, 1.0))
        chosen = self._rng.sample(sorted(self._ready), min(self.batch_size, len(self._ready)))
        states = [self._ready.pop(worker_id) for worker_id in chosen]
        rows = [self._rows.row(state, worker, meta, response=False) for worker, state, meta in states]
        rows += [self._rows.masked_row(rows[0])] * (self.batch_size - len(rows))
        return collate(rows, self._tensors)

    def async_step(self, batch_return: Mapping[str, Any]) -> None:
        """Send answers to their environments and return at once.

        Args:
            batch_return: ``prompts``, ``responses``, ``attention_mask``, ``worker_id``, ``meta_info`` of the
                rows of a batch.
        """
        self._gather(0.0)
        prompt_length = batch_return["prompts"].shape[-1]
        for index, worker_id in enumerate(batch_return["worker_id"]):
            if int(worker_id) < 0:
                continue
            valid = int(batch_return["attention_mask"][index][prompt_length:].sum())
            said = self._tokenizer.decode(batch_return["responses"][index][:valid])
            if not self._workers.answer(int(worker_id), batch_return["meta_info"][index], said):
                self.stale_answers += 1

    def sample_from_buffer(self, batch_size: int | None = None) -> dict[str, Any]:
        """Return steps of finished episodes; waits until there are enough, while environments act.

        Returns:
            ``input_ids`` (prompt and answer), ``attention_mask``, ``position_ids``, ``responses``, ``reward``
            (discounted), ``worker_id``, ``meta_info``, ``mask``.

        Raises:
            ConfigError: the buffer never holds so many, or has too few while every environment waits for an
                answer: nothing comes before more batches are answered.
            Exception: what the last environment died of.
        """
        count = self.batch_size if batch_size is None else batch_size
        if not 1 <= count <= self.replay.capacity:
            raise ConfigError(f"batch_size must be from 1 to replay_capacity ({self.replay.capacity})")
        self._gather(0.0)
        while len(self.replay) < count:
            idle = self._workers.idle()
            self._gather(0.0 if idle else 1.0)
            if idle and len(self.replay) < count:
                raise ConfigError(
                    f"the buffer has {len(self.replay)} of {count} steps, and every environment waits for an "
                    "answer: answer more batches first"
                )
        picked = self.replay.sample(count)
        rows = [self._rows.row(state, worker, meta, response=True) for worker, state, meta in picked]
        return collate(rows, self._tensors)

    def clear_replay_buffer(self) -> None:
        """Drop what was kept."""
        self.replay.clear()

    def get_balance_stats(self) -> tuple[int, int]:
        """See :meth:`ReplayBuffer.get_balance_stats`."""
        return self.replay.get_balance_stats()

    def calculate_outcome_reward(self) -> float:
        """Return the mean reward of the episodes in the buffer, 0 where there are none."""
        rewards = [state["reward"] for _, state, _ in self.replay.ready_buffer if state["done"]]
        return sum(rewards) / len(rewards) if rewards else 0.0

    def running_outcome_reward(self) -> float:
        """Return the running mean of rewards: ``0.99 * mean + 0.01 * reward`` with each episode."""
        return self._running_reward

    def print_examples(self, n: int = 2) -> None:
        """Print the prompts of some steps in the buffer, without their screenshots."""
        for _, state, _ in self.replay.sample(n):
            prompt = state["obs"]
            print(prompt.text("<image>") if hasattr(prompt, "text") else prompt)

    def print_stats_in_replay_buffer(self) -> None:
        """Print how many steps there are of how many episodes."""
        steps: dict[str, int] = {}
        for _, _, meta in self.replay.ready_buffer:
            steps[meta["uid"]] = steps.get(meta["uid"], 0) + 1
        counts = list(steps.values())
        histogram = ", ".join(f"{count}-{counts.count(count)}" for count in sorted(set(counts)))
        print(
            f"Replay buffer size: {len(self.replay)}. Number of uids: {len(steps)}. "
            f"Histogram of item counts per uid in replay buffer (x-y): {histogram}"
        )

    def _gather(self, wait_s: float) -> None:
        """Take what came from the environments, waiting for the first for so long.

        Raises:
            Exception: what the last environment died of.
        """
        for event in self._workers.take(wait_s):
            match event:
                case Lost(uid=uid, worker_id=worker_id):
                    self.lost_episodes += 1
                    self._ready.pop(worker_id, None)
                    self.replay.forget(uid)
                case Dead(worker_id=worker_id, error=error):
                    self._dead[worker_id] = error
                case _:
                    self._accept(event)
        if len(self._dead) == self.num_envs:
            raise next(iter(self._dead.values()))
        if self._workers.closed:
            raise HostUnreachable("the data loader is closed")

    def _accept(self, item: Item) -> None:
        worker_id, state, _ = item
        if not state["is_init"]:
            self.replay.add(item)
        if not state["done"]:
            self._ready[worker_id] = item
        elif state.get("valid", True):
            self._running_reward = 0.99 * self._running_reward + 0.01 * state["reward"]
        else:
            self.lost_episodes += 1
