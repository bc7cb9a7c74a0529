"""Oracles as a data set of trajectories, for fine-tuning a policy before it is trained by rewards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osgym_sdk import AsyncClient, EpisodeRecording, Result
from osgym_tasks.family import Instance, Steps
from osgym_tasks.pieces import key
from osgym_tasks.verify import Trial, play, task_and_seed

if TYPE_CHECKING:
    from osgym_sdk.data import DatasetWriter


@dataclass(frozen=True, slots=True)
class Recorded:
    """Numbers of the written data set.

    Attributes:
        solved: Number of episodes with the reward 1.0; the others are in the data set with their rewards.
        folder_bytes: Size of the whole data set, earlier episodes included.
    """

    episodes: int
    solved: int
    steps: int
    actions: int
    folder_bytes: int


def plain_steps(steps: Steps, *, single: bool) -> Steps:
    """Return the steps in actions that every model's grammar has.

    Enter after a text is a key of its own. A wait is the end of its step, since each step ends with a final
    screen.

    Args:
        single: Every action is a step.
    """
    made: Steps = []
    for step in steps:
        now: list[dict[str, Any]] = []
        for action in step:
            if action["op"] == "wait":
                made, now = [*made, now], []
            elif action.get("press_enter"):
                now += [
                    {name: value for name, value in action.items() if name != "press_enter"},
                    key("enter"),
                ]
            else:
                now.append(action)
        made.append(now)
    return [part for step in made if step for part in ([[action] for action in step] if single else [step])]


async def record_oracles(
    client: AsyncClient,
    instances: Sequence[Instance],
    folder: Path,
    *,
    concurrency: int,
    single: bool = False,
    on_result: Callable[[Instance, Result], object] = lambda instance, result: None,
) -> Recorded:
    """Play the oracle of each instance and add its episodes to a data set; every frame is a final one.

    Args:
        single: One action per step, for policies that are asked after each.

    Raises:
        ImportError: `osgym_sdk.data` needs pyarrow; the message has the remedy.
        DatasetError: The folder cannot be written, or holds something else.
        OSGymError: The client refuses an argument.
    """
    from osgym_sdk.data import DatasetWriter  # here: only this needs pyarrow

    ways = [plain_steps(one.ways.oracle, single=single) for one in instances]
    trials = [Trial(one, "oracle", way, 1.0, patient=False) for one, way in zip(instances, ways, strict=True)]
    solved = steps = actions = 0
    with DatasetWriter(folder) as writer:
        recorder = _Recorder(writer)
        batch = play(client, trials, concurrency=concurrency, settle="certain", record=recorder)
        async for trial, result in batch:
            solved += result.reward == 1.0
            steps += len(result.steps)
            actions += sum(len(step.executed) for step in result.steps)
            on_result(trial.instance, result)
    return Recorded(len(trials), solved, steps, actions, await asyncio.to_thread(_size_of, folder))


class _Recorder:
    """Recorder of a data set whose tasks are those that families make, so that certificates hold for them."""

    def __init__(self, writer: DatasetWriter) -> None:
        self._writer = writer

    def record(self, task: Mapping[str, Any] | None) -> EpisodeRecording:
        """Return the recording of a new episode of a trial's task."""
        assert task is not None
        plain, seed = task_and_seed(task)
        return self._writer.record(plain, seed=seed)

    async def flush(self) -> None:
        """Wait until the disk has all that was recorded.

        Raises:
            DatasetError: The disk cannot take it.
        """
        await self._writer.flush()


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
