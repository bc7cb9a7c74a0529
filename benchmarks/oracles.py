"""A policy for benchmarks: each task of the repository by its oracle, with a think time before each step."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

from osgym_host.tasks.shipped import ShippedTask, load_shipped, next_actions


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
    tasks = [t for t in load_shipped(flavor=flavor) if not only or any(o in t.name for o in only)]
    if not tasks:
        raise SystemExit("no task matches")
    return tasks


def rounds(tasks: list[ShippedTask]) -> Iterator[dict[str, Any]]:
    """The task files, round and round."""
    return (task.task for task in itertools.cycle(tasks))
