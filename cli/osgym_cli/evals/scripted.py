"""Policies without a model: a task's oracle, its near miss, nothing, chance, or earlier actions.

A script is a list of steps, each a list of actions; before a step that follows one with `certain` the policy
waits for the final screen. A mark in the `osgym` object of a task names its script, since one file may be run
many times.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from osgym_cli.evals.jobs import ORACLE, Job
from osgym_host.tasks.shipped import Step, Steps, next_actions, steps_of
from osgym_protocol.targets import has_targets, reaching

MARK = "script"
RANDOM_STEPS = 8
MAX_SCRIPT_BYTES = 32 << 20
DONE: Steps = (Step(({"op": "done"},)),)
_KEYS = (["enter"], ["escape"], ["tab"], ["down"], ["up"], ["ctrl", "a"], ["delete"], ["alt", "f"])


_ANY_SCREEN = (1920, 1080)


class NoScript(ValueError):
    """A task has no script; the message says what is missing."""


Script = Callable[[tuple[int, int]], Steps]
"""Function from the screen's width and height in pixels to the steps of one episode."""


@dataclass(frozen=True, slots=True)
class ScriptedActor:
    """Policy of one episode."""

    script: Script

    async def act(self, obs: Any, task: Any, step: int) -> list[dict[str, Any]] | None:
        """Return the actions of the step; None after the last one."""
        steps = self.script(obs.image.size)
        return await next_actions(obs, steps, step) if step < len(steps) else None


class ScriptedPolicy:
    """Policy of a run: each episode by the script of its job."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self._scripts = scripts

    def reset(self, task: Mapping[str, Any]) -> ScriptedActor:
        """Return the policy of an episode that begins."""
        return ScriptedActor(self._scripts[int(task["osgym"][MARK])])

    def act(self, obs: Any, task: Any, step: int) -> list[dict[str, Any]]:
        """Never called: `reset` gives each episode a policy of its own."""
        raise NotImplementedError


def marked(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs with the number of its script in each task."""
    return [
        replace(job, task={**job.task, "osgym": {**job.task.get("osgym", {}), MARK: number}})
        for number, job in enumerate(jobs)
    ]


def reached(jobs: Sequence[Job], scripts: Sequence[Script]) -> list[Job]:
    """Return the jobs; tasks whose script points at elements may read the accessibility tree."""
    return [
        replace(job, task=reaching(job.task)) if has_targets(script(_ANY_SCREEN)) else job
        for job, script in zip(jobs, scripts, strict=True)
    ]


def script_of(policy: str, job: Job, seed: int) -> Script:
    """Return the script of one job.

    Args:
        policy: `oracle`, `near`, `noop`, `random`, or the path of a `steps.jsonl`.
        seed: Seed of `random`; the same seed, task and repeat give the same actions.

    Raises:
        NoScript: The task has no such file, or one that cannot be read.
    """
    if policy == "noop":
        return lambda screen: DONE
    if policy == "random":
        named = f"{seed}:{job.task_name}:{job.repeat}"
        return lambda screen: by_chance(random.Random(named), screen)  # noqa: S311 - dice
    if policy in ("oracle", "near"):
        beside = job.path.with_name(job.path.name.removesuffix(".json") + ORACLE)
        steps = _oracle(beside, policy)
    else:
        steps = _replay(Path(policy))
    return lambda screen: steps


def by_chance(dice: random.Random, screen: tuple[int, int]) -> Steps:
    """Some actions by chance, and the claim to be done."""
    width, height = screen

    def point() -> dict[str, int]:
        return {"x": dice.randrange(width), "y": dice.randrange(height)}

    def action() -> dict[str, Any]:
        kind = dice.choice(("click", "click", "click", "type", "key", "scroll", "drag"))
        if kind == "click":
            return {"op": "click", **point(), "button": dice.choice(("left", "left", "right"))}
        if kind == "type":
            return {"op": "type", "text": "".join(dice.choices(string.ascii_lowercase + " ", k=12))}
        if kind == "key":
            return {"op": "key", "keys": dice.choice(_KEYS)}
        if kind == "scroll":
            return {"op": "scroll", **point(), "dy": dice.choice((-3, 3))}
        a, b = point(), point()
        return {"op": "drag", "path": [[a["x"], a["y"]], [b["x"], b["y"]]]}

    return (*(Step((action(),)) for _ in range(RANDOM_STEPS)), *DONE)


def _oracle(path: Path, way: str) -> Steps:
    try:
        found = json.loads(_text(path))
        if not isinstance(found, dict) or way not in found:
            raise NoScript(
                f"{path}: the file has no {way!r}, which must be a list of steps, each a list of actions"
            )
        return steps_of(found[way])
    except (ValueError, RecursionError) as error:
        raise error if isinstance(error, NoScript) else NoScript(f"{path}: {error}") from error


def _replay(path: Path) -> Steps:
    """Read the actions in a `steps.jsonl` of an earlier episode."""
    steps: list[Step] = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        try:
            kept = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise NoScript(f"{path}, line {number}: {error}") from error
        actions = kept.get("actions") if isinstance(kept, dict) else None
        if actions:
            try:
                steps += steps_of([actions])
            except ValueError as error:
                raise NoScript(f"{path}, line {number}: {error}") from error
    if not steps:
        raise NoScript(
            f"{path}: no line has actions; give a steps.jsonl that `osgym eval run` or `osgym demo` wrote"
        )
    return tuple(steps)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_SCRIPT_BYTES:
            raise NoScript(f"{path}: the file is larger than {MAX_SCRIPT_BYTES} bytes")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise NoScript(f"{path}: {error.strerror or error}") from error
