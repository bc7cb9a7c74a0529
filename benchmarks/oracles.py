"""A policy for benchmarks: each task of the repository by its oracle, with a think time before each step."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from osgym_host.tasks.shipped import ShippedTask, Step, load_shipped, next_actions
from osgym_protocol.targets import has_targets, reaching
from osgym_tasks import FAMILIES, LEVELS
from osgym_tasks.pieces import without_last_wait

LONG = range(10, 26)
"""Number of steps of a real task, as in the OSGym paper: 10 to 25."""


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


def with_enters_in_texts(oracle: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return an oracle whose texts end in a line break where it pressed Enter after them, in the same step or
    as the first action of the next. Many models submit that way."""
    steps: list[Step] = []
    for step in oracle:
        made: list[dict[str, Any]] = []
        for action in step:
            before = made or (list(steps[-1]) if steps else [])
            if not (_is_enter(action) and before and _is_line(before[-1])):
                made.append(action)
                continue
            before[-1] = {**before[-1], "text": before[-1]["text"] + "\n"}
            if not made:
                steps[-1] = _step(before, steps[-1].certain)
        if made:
            steps.append(_step(made, step.certain))
    return tuple(steps)


def _is_line(action: dict[str, Any]) -> bool:
    """Return whether an action types a text that does not end in Enter."""
    return action.get("op") == "type" and not action["text"].endswith("\n")


def _is_enter(action: dict[str, Any]) -> bool:
    keys = action.get("keys", ())
    is_key = action.get("op") == "key" and action.get("repeat", 1) == 1
    return is_key and len(keys) == 1 and keys[0].lower() in ("return", "enter")


def choose(flavor: str, only: tuple[str, ...]) -> list[ShippedTask]:
    """Return the tasks of a flavor whose name contains one of ``only`` (all if empty).

    Raises:
        SystemExit: No task has such a name.
    """
    return _some(load_shipped(flavor=flavor), only)


def choose_long(flavor: str, only: tuple[str, ...], certain: bool = False) -> list[ShippedTask]:
    """Return tasks of 10 to 25 steps: of each family that the image can run, one of each level that is as
    long.

    Args:
        certain: Wait for the final screen before each step, as the proofs of families do.

    Raises:
        SystemExit: None has one of ``only`` in its name.
    """
    long = [task for task in family_tasks(flavor, LEVELS, certain) if len(task.oracle) in LONG]
    return _some(long, only)


def family_tasks(flavor: str, levels: Iterable[int], certain: bool = False) -> list[ShippedTask]:
    """Return one task of each level of each family that the image can run, with its oracle.

    Args:
        certain: Wait for the final screen before each step, as the proofs of families do.
    """
    found = []
    for family in FAMILIES.values():
        if flavor != "full" and family.flavor != flavor:
            continue
        for level in levels:
            instance = family.make(seed=level, level=level)
            oracle = tuple(
                _step(without_last_wait(actions) if certain else actions, certain)
                for actions in instance.ways.oracle
            )
            task = reaching(instance.task) if has_targets(oracle) else instance.task
            apps = tuple(task["osgym"]["apps"])
            found.append(ShippedTask(instance.name, task, task["osgym"]["flavor"], apps, oracle, ()))
    return found


def _step(actions: list[dict[str, Any]], certain: bool) -> Step:
    step = Step(actions)
    step.certain = certain
    return step


def _some(tasks: list[ShippedTask], only: tuple[str, ...]) -> list[ShippedTask]:
    found = [task for task in tasks if not only or any(part in task.name for part in only)]
    if not found:
        raise SystemExit("--only: no task has that text in its name")
    return found


def rounds(tasks: list[ShippedTask]) -> Iterator[dict[str, Any]]:
    return (task.task for task in itertools.cycle(tasks))
