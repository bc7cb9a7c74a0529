"""Proof of instances on real desktops: the oracle earns 1.0, twice; nothing and each near miss earn 0.0.

One episode is one line of a record; what the record has is not run again.
"""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from osgym_sdk import AsyncClient
from osgym_tasks.family import Instance, Steps
from osgym_tasks.pieces import DONE
from osgym_tasks.registry import FAMILIES
from osgym_tasks.sampling import Split, split_of
from osgym_tasks.targets import has_targets, place_in, placed, reaching

_MARK = "osgym_tasks_way"


@dataclass(frozen=True, slots=True)
class Trial:
    """One way to act in one instance."""

    instance: Instance
    way: str
    steps: Steps
    wanted: float

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from others, also in another run."""
        return self.instance.name, self.way


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a trial: a line of the record.

    Attributes:
        image: the golden image, as whoever ran it named it.
        reward: None when the infrastructure failed; `failure` says how. Such a trial is run again.
    """

    image: str
    family: str
    seed: int
    level: int
    instance: str
    way: str
    wanted: float
    reward: float | None
    failure: str
    steps: int
    duration_s: float

    @property
    def is_right(self) -> bool:
        """Whether it earned what it must."""
        return self.reward == self.wanted


def trials_of(instance: Instance) -> list[Trial]:
    """All that is tried of an instance."""
    ways = instance.ways
    return [
        *(Trial(instance, f"oracle {number}", ways.oracle, 1.0) for number in (1, 2)),
        Trial(instance, "nothing", [DONE], 0.0),
        *(Trial(instance, f"near: {name}", steps, 0.0) for name, steps in ways.near.items()),
    ]


class _Actor:
    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def act(self, obs: Any, task: Any, step: int) -> list[dict[str, Any]] | None:
        """The actions of the step, on the final screen; None after the last one.

        Raises:
            TargetMissing: what the step points at does not show.
        """
        if step:
            await obs.final()
        if step >= len(self._steps):
            return None
        actions = self._steps[step]
        if not has_targets([actions]):
            return actions
        return placed(actions, place_in((await obs.episode.a11y()).nodes()))


class _Policy:
    def __init__(self, trials: Sequence[Trial]) -> None:
        self._trials = trials

    def reset(self, task: Mapping[str, Any]) -> _Actor:
        """Called before each episode; what it returns acts in it."""
        return _Actor(self._trials[int(task["osgym"][_MARK])].steps)

    def act(self, obs: Any, task: Any, step: int) -> list[dict[str, Any]]:
        """Never called: `reset` gives an actor of its own to each episode."""
        raise NotImplementedError


async def verify(
    client: AsyncClient, trials: Sequence[Trial], *, image: str, concurrency: int
) -> AsyncIterator[Outcome]:
    """Run trials, so many at once; outcomes in the order they end.

    Raises:
        OSGymError: the client refuses how it is to be run.
    """
    tasks = []
    for number, trial in enumerate(trials):
        task = copy.deepcopy(trial.instance.task)
        task["osgym"][_MARK] = number
        tasks.append(reaching(task) if has_targets(trial.steps) else task)
    batch = client.run(tasks, _Policy(trials), concurrency=concurrency, max_steps=100, retries=1)
    async for result in batch:
        trial = trials[result.index]
        failure = result.failure
        yield Outcome(
            image=image,
            family=trial.instance.family,
            seed=trial.instance.seed,
            level=trial.instance.level,
            instance=trial.instance.name,
            way=trial.way,
            wanted=trial.wanted,
            reward=result.reward,
            failure="" if failure is None else f"{failure.code}: {failure.message[:500]}",
            steps=len(result.steps),
            duration_s=round(result.duration_s, 3),
        )


def read_record(path: Path, image: str) -> list[Outcome]:
    """The newest outcome of each trial on this image that has a reward; none where there is no record.

    A line that was not written to its end is none.

    Raises:
        OSError: it is there and cannot be read.
    """
    found: dict[tuple[str, str], Outcome] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            outcome = Outcome(**json.loads(line))
        except (ValueError, TypeError):
            continue
        if outcome.image == image and outcome.reward is not None:
            found[outcome.instance, outcome.way] = outcome
    return list(found.values())


def proved_instances(path: Path, image: str, split: Split | str | None = None) -> Iterator[Instance]:
    """Instances that a record proves for an image, made again: to train on these alone.

    Whose family is gone, or of another version by now, is left out.

    Args:
        image: the digest of the golden image that they are used on (`client.host_states()` says it).
        split: only the seeds of that one.

    Raises:
        OSError: the record is there and cannot be read.
        ValueError: there is no such split.
    """
    wanted = None if split is None else Split(split)
    found: dict[str, list[Outcome]] = {}
    for outcome in read_record(path, image):
        found.setdefault(outcome.instance, []).append(outcome)
    for name, outcomes in found.items():
        family, seed, level = outcomes[0].family, outcomes[0].seed, outcomes[0].level
        if family not in FAMILIES or (wanted is not None and split_of(family, seed) is not wanted):
            continue
        instance = FAMILIES[family].make(seed, level)
        right = {outcome.way for outcome in outcomes if outcome.is_right}
        if instance.name == name and right >= {trial.way for trial in trials_of(instance)}:
            yield instance


def line_of(outcome: Outcome) -> str:
    """The outcome as a line of the record."""
    return json.dumps(asdict(outcome), ensure_ascii=False, allow_nan=False) + "\n"


def summary(outcomes: Iterable[Outcome]) -> dict[str, dict[str, Any]]:
    """By family: what was proved, and of the oracle median steps and seconds."""
    rows: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        rows.setdefault(outcome.family, []).append(outcome)
    return {family: _row(rows[family]) for family in sorted(rows)}


def _row(outcomes: list[Outcome]) -> dict[str, Any]:
    oracles = [one for one in outcomes if one.wanted == 1.0]
    instances: dict[str, list[Outcome]] = {}
    for one in outcomes:
        instances.setdefault(one.instance, []).append(one)
    return {
        "instances": len(instances),
        "proved": sum(all(one.is_right for one in all_of) for all_of in instances.values()),
        "levels": sorted({one.level for one in outcomes}),
        "episodes": len(outcomes),
        "wrong": [[one.instance, one.way, one.reward] for one in outcomes if not one.is_right],
        "oracle_steps_median": median([one.steps for one in oracles]) if oracles else None,
        "oracle_duration_s_median": median([one.duration_s for one in oracles]) if oracles else None,
    }
