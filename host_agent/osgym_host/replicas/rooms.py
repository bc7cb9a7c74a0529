"""Room reserved ahead: whoever is about to have several replicas made gets room for all or none."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from osgym_host.replicas.asking import HAND_OVER_S, NoCapacity, PoolStopping


@dataclass(slots=True, eq=False)
class Room:
    """Room for `count` replicas; `left` of them are not being made yet."""

    count: int
    granted: asyncio.Future[None]
    left: int = 0


class Rooms:
    """The reservations of a pool, first come first served. For one event loop."""

    def __init__(self, kick: Callable[[], None], refusal: Callable[[float], NoCapacity]) -> None:
        """Takes what makes the pool plan again, and what makes the error after a wait of so many seconds."""
        self._kick = kick
        self._refusal = refusal
        self._asked: deque[Room] = deque()
        self.held = 0

    @property
    def waiting(self) -> bool:
        """Whether somebody still waits for room."""
        return bool(self._asked)

    async def ask(self, count: int, wait_s: float) -> Room:
        """Reserves room; whoever got it gives back with `give_back` what is left of it.

        Raises:
            NoCapacity: There was none within `wait_s`.
            PoolStopping: The service is stopping.
        """
        room = Room(count, asyncio.get_running_loop().create_future())
        self._asked.append(room)
        self._kick()
        began = time.monotonic()
        try:
            async with asyncio.timeout(max(wait_s, HAND_OVER_S)):
                await room.granted
        except BaseException as error:
            if room in self._asked:
                self._asked.remove(room)
            self.give_back(room)
            if isinstance(error, TimeoutError):
                raise self._refusal(time.monotonic() - began) from None
            raise
        return room

    def take(self, room: Room) -> None:
        """One of the replicas is being made: from now on the replica itself is counted."""
        if room.left:
            room.left -= 1
            self.held -= 1

    def give_back(self, room: Room) -> None:
        """Gives back what is left. Idempotent."""
        self.held, room.left = self.held - room.left, 0
        self._kick()

    def grant(self, free: int) -> tuple[int, int]:
        """Gives room away in the order of asking.

        Returns:
            What is left of `free`, and how much the first who still waits lacks (0 when nobody does).
        """
        while self._asked and self._asked[0].count <= free:
            room = self._asked.popleft()
            if not room.granted.done():
                room.granted.set_result(None)
                room.left = room.count
                self.held += room.count
                free -= room.count
        return free, self._asked[0].count - free if self._asked else 0

    def refuse_all(self, refusal: Callable[[], PoolStopping]) -> None:
        """Tells everyone who waits that there will be none."""
        while self._asked:
            room = self._asked.popleft()
            if not room.granted.done():
                room.granted.set_exception(refusal())
