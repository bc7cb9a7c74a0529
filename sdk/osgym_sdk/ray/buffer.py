"""Queue of tasks and buffer of results, in one actor, so that each task is counted once."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from typing import Any

from osgym_sdk._fleet.scheduler import Ticket
from osgym_sdk._models.results import Result


class RolloutBuffer:
    """A bounded queue of results, with the tasks and the leases of those who fill it.

    Args:
        tasks: what is played.
        repeat: whether tasks begin anew after the last.
        capacity: results that wait to be taken; actors wait while it is full, and open no episodes then.
        replay: how many of the newest results that were taken can be sampled.
    """

    def __init__(self, tasks: Sequence[Any], repeat: bool, capacity: int, replay: int) -> None:
        self._tasks = list(tasks)
        self._repeat = repeat
        self._capacity = capacity
        self._number = 0
        self._again: deque[tuple[int, Any]] = deque()
        """Tasks of actors that died."""
        self._given: dict[str, dict[int, Any]] = {}
        self._tickets: dict[str, dict[str, Ticket]] = {}
        self._put: dict[str, int] = {}
        self._fresh: deque[Result] = deque()
        self._replay: deque[Result] = deque(maxlen=replay)
        self._changed = asyncio.Condition()
        self.most_waiting = 0

    async def next(self, actor: str) -> tuple[int, Any] | None:
        """Give a task and its number; None when there are no more."""
        if self._again:
            number, task = self._again.popleft()
        elif self._tasks and (self._repeat or self._number < len(self._tasks)):
            number, task = self._number, self._tasks[self._number % len(self._tasks)]
            self._number += 1
        else:
            return None
        self._given.setdefault(actor, {})[number] = task
        return number, task

    async def put(self, actor: str, number: int, result: Result) -> bool:
        """Take a result, once there is room; False when its task was given to another meanwhile."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._fresh) < self._capacity)
            if self._given.get(actor, {}).pop(number, None) is None:
                return False
            self._fresh.append(result)
            self._put[actor] = self._put.get(actor, 0) + 1
            self.most_waiting = max(self.most_waiting, len(self._fresh))
            self._changed.notify_all()
        return True

    async def take(self) -> Result | None:
        """Give the oldest result, once there is one; None when all tasks were played and taken."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._fresh or self._over)
            if not self._fresh:
                return None
            result = self._fresh.popleft()
            self._replay.append(result)
            self._changed.notify_all()
        return result

    async def sample(self, count: int) -> list[Result]:
        """Give different results of those that were taken, at random; fewer when there are fewer."""
        return random.sample(self._replay, min(count, len(self._replay)))

    async def opened(self, actor: str, ticket: Ticket) -> None:
        """Note a lease of an actor."""
        self._tickets.setdefault(actor, {})[ticket.episode_id] = ticket

    async def closed(self, actor: str, episode_id: str) -> None:
        """Forget it."""
        self._tickets.get(actor, {}).pop(episode_id, None)

    async def died(self, actor: str) -> tuple[list[Ticket], int]:
        """Take back the tasks of an actor; give the leases that it held, and how many results it put."""
        async with self._changed:
            self._again.extend(self._given.pop(actor, {}).items())
            self._changed.notify_all()
        return list(self._tickets.pop(actor, {}).values()), self._put.pop(actor, 0)

    async def stats(self) -> dict[str, int]:
        """Give how many results wait, waited at most, are played, and are in the replay."""
        playing = sum(len(tasks) for tasks in self._given.values())
        return {
            "waiting": len(self._fresh),
            "most_waiting": self.most_waiting,
            "playing": playing,
            "replay": len(self._replay),
        }

    @property
    def _over(self) -> bool:
        """True: nothing more will come."""
        more = self._tasks and (self._repeat or self._number < len(self._tasks))
        return not (more or self._again or any(self._given.values()))
