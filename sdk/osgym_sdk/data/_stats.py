"""Statistics of a data set."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from osgym_sdk.data._dataset import Dataset


@dataclass(slots=True)
class TaskStats:
    """Episodes of one task. ``solved``: those with a reward of 1 or more."""

    episodes: int = 0
    scored: int = 0
    solved: int = 0
    reward_sum: float = 0.0
    steps: int = 0

    @property
    def mean_reward(self) -> float | None:
        return self.reward_sum / self.scored if self.scored else None


@dataclass(slots=True)
class DatasetStats:
    """Counts over all episodes and steps."""

    episodes: int = 0
    complete: int = 0
    steps: int = 0
    frames: int = 0
    lengths: list[int] = field(default_factory=list)
    tasks: dict[str, TaskStats] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    final: Counter[str] = field(default_factory=Counter)
    step_ms: list[float] = field(default_factory=list)

    def quantile(self, values: list[float] | list[int], at: float) -> float | None:
        """Return the value below which this part of them is."""
        if not values:
            return None
        if len(values) == 1:
            return float(values[0])
        return float(statistics.quantiles(values, n=100, method="inclusive")[round(at * 100) - 1])


def dataset_stats(dataset: Dataset, on_episode: Callable[[], object] = lambda: None) -> DatasetStats:
    """Count.

    Raises:
        DatasetError: the data set cannot be read.
    """
    found = DatasetStats(frames=dataset.frame_count)
    for episode in dataset.episodes():
        values = episode.values
        found.episodes += 1
        found.complete += bool(values["complete"])
        found.steps += len(episode)
        found.lengths.append(len(episode))
        found.endings[str(values["termination_reason"] or "goes on")] += 1
        if values["failure_code"] is not None:
            found.failures[f"{values['failure_code']} ({values['error_class'] or 'nobody'})"] += 1
        task = found.tasks.setdefault(str(values["task_id"] or "(no task)"), TaskStats())
        task.episodes += 1
        task.steps += len(episode)
        if episode.reward is not None:
            task.scored += 1
            task.solved += episode.reward >= 1.0
            task.reward_sum += episode.reward
        for step in episode.steps:
            found.final[{True: "final", False: "not final", None: "not known"}[step.raw["final"]]] += 1
            if step.raw["total_ms"] is not None:
                found.step_ms.append(step.raw["total_ms"])
        on_episode()
    return found
