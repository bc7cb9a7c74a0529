"""Proof of instances on real desktops: each way earns its reward.

The oracle, twice, and other right ways earn 1.0, a way that reaches some checkpoints their part of that, all
others 0.0.

One episode is one line of a record. Trials that the record has are not run again.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from osgym_sdk import AsyncClient, ReachFailed, Recorder, Result
from osgym_tasks.family import Instance, Steps
from osgym_tasks.pieces import execute, without_last_wait
from osgym_tasks.record import ORACLE, Outcome
from osgym_tasks.targets import TargetMissing, has_targets, placed_on, reaching

Settle = Literal["exact", "fast", "certain"]
_MARK = "osgym_tasks_way"
_WORDS = ("done", "fail")


@dataclass(frozen=True, slots=True)
class Trial:
    """One way to act in one instance.

    Attributes:
        spoil: Shell command at the end of the set-up; none if it is empty.
        patient: Each step acts on the final screen of the one before. Pauses at the end of steps are left
            out then.
    """

    instance: Instance
    way: str
    steps: Steps
    wanted: float
    patient: bool = True
    spoil: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Key that identifies the trial, also in another run."""
        return self.instance.name, self.way


def oracle_of(instance: Instance, number: int = 1) -> Trial:
    """Return the trial that must earn 1.0."""
    return Trial(instance, f"{ORACLE}{number}", instance.ways.oracle, 1.0)


def nothing_in(instance: Instance, way: str) -> Trial:
    """Return the trial that says nothing: the desktop is scored as set-up left it."""
    return Trial(instance, way, [], 0.0)


def trials_of(instance: Instance) -> list[Trial]:
    return [
        *(oracle_of(instance, number) for number in (1, 2)),
        nothing_in(instance, "nothing"),
        *(Trial(instance, f"right: {name}", steps, 1.0) for name, steps in instance.ways.right.items()),
        *(Trial(instance, f"near: {name}", steps, 0.0) for name, steps in instance.ways.near.items()),
        *(
            Trial(instance, f"part: {name}", steps, reward)
            for name, (steps, reward) in instance.ways.part.items()
        ),
        *(
            Trial(instance, f"spoilt: {name}", instance.ways.oracle, 0.0, spoil=command)
            for name, command in instance.ways.spoilt.items()
        ),
    ]


def in_turns(instances: Sequence[Instance], together: int) -> list[Trial]:
    """Return all trials of instances in batches: the first trial of each instance, then the others.

    So the first one sets the task up, and a host with `task_templates: on` clones that for the others, while
    at most twice `together` templates are in use.
    """
    turns: list[Trial] = []
    for start in range(0, len(instances), together):
        every = [trials_of(one) for one in instances[start : start + together]]
        turns += [trials[0] for trials in every] + [trial for trials in every for trial in trials[1:]]
    return turns


class _Actor:
    def __init__(self, trial: Trial) -> None:
        self._steps = [without_last_wait(step) for step in trial.steps] if trial.patient else trial.steps
        self._patient = trial.patient

    async def act(self, obs: Any, task: Any, step: int) -> list[dict[str, Any]] | None:
        """Return the actions of the step on the final screen; None after the last one.

        The last step needs no final screen: scoring waits for it.

        Raises:
            TargetMissing: A target of the step is not visible.
        """
        if step >= len(self._steps):
            return None
        actions = self._steps[step]
        if step and self._patient and not all(action["op"] in _WORDS for action in actions):
            await obs.final()
        if not has_targets([actions]):
            return actions
        return await placed_on(obs.episode, actions, again_after=(TargetMissing, ReachFailed))


class _Policy:
    def __init__(self, trials: Sequence[Trial]) -> None:
        self._trials = trials

    def reset(self, task: Mapping[str, Any]) -> _Actor:
        """Called before each episode; the returned actor acts in it."""
        return _Actor(self._trials[int(task[_MARK])])

    def act(self, obs: Any, task: Any, step: int) -> list[dict[str, Any]]:
        """Never called: `reset` gives an actor of its own to each episode."""
        raise NotImplementedError


async def play(
    client: AsyncClient,
    trials: Sequence[Trial],
    *,
    concurrency: int,
    settle: Settle | None = None,
    keep_frames: bool = False,
    record: Recorder | None = None,
) -> AsyncIterator[tuple[Trial, Result]]:
    """Run trials and yield results in the order they end.

    Args:
        concurrency: Number of trials at once.
        settle: Wait of each step for the screen; with `certain`, trials need not be patient.
        keep_frames: Keep each step's picture in the result.
        record: Place where the episodes are recorded.

    Raises:
        OSGymError: The client refuses an argument.
    """
    batch = client.run(
        map(_task_of, trials, itertools.count()),  # made one by one: thousands with their files are much
        _Policy(trials),
        concurrency=concurrency,
        max_steps=1 + max((len(trial.steps) for trial in trials), default=0),
        settle=settle,
        keep_frames=keep_frames,
        record=record,
    )
    async for result in batch:
        yield trials[result.index], result


def _task_of(trial: Trial, number: int) -> dict[str, Any]:
    """Return the task of a trial.

    All trials of an instance but the spoilt ones share a set-up, and so a task template.
    """
    instance = trial.instance
    task = {**instance.task, _MARK: number, "osgym": {**instance.task["osgym"], "seed": instance.seed}}
    if trial.spoil:
        task["config"] = [*task["config"], execute("bash", "-c", trial.spoil)]
    return reaching(task) if any(map(has_targets, _all_steps(instance, trial.steps))) else task


def task_and_seed(marked: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Return the task of a trial as its family makes it, and its seed."""
    task = {name: value for name, value in marked.items() if name != _MARK}
    osgym = {**task["osgym"]}
    seed = osgym.pop("seed")
    return {**task, "osgym": osgym}, seed


def _all_steps(instance: Instance, steps: Steps) -> Iterator[Steps]:
    ways = instance.ways
    yield from (steps, ways.oracle, *ways.right.values(), *ways.near.values())
    yield from (some for some, _ in ways.part.values())


async def verify(
    client: AsyncClient,
    trials: Sequence[Trial],
    *,
    image: str,
    concurrency: int,
    settle: Settle | None = None,
) -> AsyncIterator[Outcome]:
    """Run trials and yield outcomes in the order they end.

    Raises:
        OSGymError: The client refuses an argument.
    """
    async for trial, result in play(client, trials, concurrency=concurrency, settle=settle):
        yield outcome_of(trial, result, image)


def outcome_of(trial: Trial, result: Result, image: str) -> Outcome:
    """Return the record line of a trial's result."""
    failure, instance = result.failure, trial.instance
    done = [action for step in result.steps for action in step.executed if action["op"] not in _WORDS]
    setup_ms = result.trajectory.reset_ms.get("setup")
    return Outcome(
        image=image,
        family=instance.family,
        seed=instance.seed,
        level=instance.level,
        instance=instance.name,
        way=trial.way,
        wanted=trial.wanted,
        reward=result.reward,
        failure="" if failure is None else f"{failure.code}: {failure.message[:500]}",
        steps=len(result.steps),
        duration_s=round(result.duration_s, 3),
        actions=len(done),
        characters=sum(len(action.get("text", "")) for action in done if action["op"] == "type"),
        setup_s=None if setup_ms is None else round(setup_ms / 1000, 3),
        vary=",".join(instance.vary),
    )
