"""So many at a time, the lowest rank first."""

from __future__ import annotations

import asyncio
import heapq


class Places:
    """Like a semaphore, but whoever has the lowest rank is served next. For one event loop."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._asked = 0
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []

    async def take(self, rank: float) -> None:
        """Take a place; wait until there is one that nobody of a lower rank waits for."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        self._asked += 1
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rank, self._asked, given))
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():
                self.give()
            raise

    def give(self) -> None:
        """Give a place back."""
        while self._waiting:
            given = heapq.heappop(self._waiting)[2]
            if not given.done():
                given.set_result(None)
                return
        self._free += 1
