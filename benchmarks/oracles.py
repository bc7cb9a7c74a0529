"""A policy for benchmarks: each task of the repository by its oracle, with a think time before each step."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

from osgym_host.tasks.shipped import ShippedTask, Step, load_shipped, next_actions
from osgym_protocol.targets import has_targets, reaching
from osgym_tasks import FAMILIES, LEVELS

LONG = range(10, 26)
"""Steps of a real task, as the OSGym paper has them: 10 to 25."""


class OraclePolicy:
    """Solves the tasks it was made from."""

    def __init__(self, tasks: list[ShippedTask], think_s: float = 0.0) -> None:
        self._by_id = {task.task["id"]: task for task in tasks}
        self._think_s = think_s

    async def act(self, obs: Any, task: dict[str, Any], step: int) -> list[dict[str, Any]]:
        """The oracle's next step, after the think time."""
        if self._think_s > 0:
            await asyncio.sleep(self._think_s)
        return await next_actions(obs, self._by_id[task["id"]].oracle, step)


def choose(flavor: str, only: tuple[str, ...]) -> list[ShippedTask]:
    """The tasks of a flavor whose name contains one of ``only`` (all if empty).

    Raises:
        SystemExit: none does.
    """
    return _some(load_shipped(flavor=flavor), only)


def choose_long(flavor: str, only: tuple[str, ...], certain: bool = False) -> list[ShippedTask]:
    """Tasks of 10 to 25 steps: of each family that the image can run, one of each level that is as long.

    Args:
        certain: wait for the final screen before each step, as the proofs of families do.

    Raises:
        SystemExit: none has one of ``only`` in its name.
    """
    made = [
        family.make(seed=level, level=level)
        for family in FAMILIES.values()
        if flavor == "full" or family.flavor == flavor
        for level in LEVELS
    ]
    found = []
    for instance in made:
        if len(instance.ways.oracle) in LONG:
            oracle = tuple(_step(actions, certain) for actions in instance.ways.oracle)
            task = reaching(instance.task) if has_targets(oracle) else instance.task
            apps = tuple(task["osgym"]["apps"])
            found.append(ShippedTask(instance.name, task, task["osgym"]["flavor"], apps, oracle, ()))
    return _some(found, only)


def _step(actions: list[dict[str, Any]], certain: bool) -> Step:
    step = Step(actions)
    step.certain = certain
    return step


def _some(tasks: list[ShippedTask], only: tuple[str, ...]) -> list[ShippedTask]:
    found = [task for task in tasks if not only or any(part in task.name for part in only)]
    if not found:
        raise SystemExit("no task matches")
    return found


def rounds(tasks: list[ShippedTask]) -> Iterator[dict[str, Any]]:
    """The task files, round and round."""
    return (task.task for task in itertools.cycle(tasks))
