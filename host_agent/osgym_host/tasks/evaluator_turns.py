"""A fair queue for metrics that wait for a place in the evaluator.

Episodes take turns, so that slow metrics of one episode delay only its own. A metric that runs for longer
than `QUICK_S` moves from a quick place to a slow one, where it gets less CPU time. Quick metrics of other
episodes therefore need not wait for a few slow ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator

from osgym_host.core.fair_queue import ClientKey, FairQueue

QUICK_S = 2.0
"""Running time after which a metric moves to a slow place; most metrics take some hundredths of a second."""


class _Turn:
    """The place of a running metric: quick at first, later slow."""

    def __init__(self, key: ClientKey) -> None:
        self.key = key
        self.slow = False


class EvaluatorTurns:
    """A fair semaphore with separate places for metrics that start and for those that have run for long."""

    def __init__(self, quick: int, slow: int, quick_s: float = QUICK_S) -> None:
        """Start with all places free.

        Args:
            quick: Number of places for metrics that have run for less than ``quick_s``.
            slow: Number of places for longer ones. A slow metric keeps its quick place while all are taken.
            quick_s: Seconds for which a metric counts as quick.
        """
        self._free_quick = quick
        self._free_slow = slow
        self._quick_s = quick_s
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
        self._overdue: deque[_Turn] = deque()
        self._running: Counter[ClientKey] = Counter()

    @contextlib.asynccontextmanager
    async def turn(self, key: ClientKey) -> AsyncIterator[None]:
        """Wait for a place and hold it."""
        await self._wait(key)
        turn = _Turn(key)
        timer = asyncio.get_running_loop().call_later(self._quick_s, self._is_slow, turn)
        try:
            yield
        finally:
            timer.cancel()
            self._leave(turn)

    async def _wait(self, key: ClientKey) -> None:
        if self._free_quick > 0 and not len(self._waiting):
            self._take(key)
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(key, place)
        try:
            await place
        except asyncio.CancelledError:
            if not self._waiting.remove(key, place) and not place.cancelled():  # it had been handed a place
                self._leave(_Turn(key))
            raise

    def _take(self, key: ClientKey) -> None:
        self._free_quick -= 1
        self._running[key] += 1

    def _is_slow(self, turn: _Turn) -> None:
        """Move a metric to a slow place, now or when one becomes free."""
        self._overdue.append(turn)
        self._move()

    def _move(self) -> None:
        while self._overdue and self._free_slow > 0:
            self._overdue.popleft().slow = True
            self._free_slow -= 1
            self._free_quick += 1
        self._hand_out()

    def _leave(self, turn: _Turn) -> None:
        self._running[turn.key] -= 1
        if not self._running[turn.key]:
            del self._running[turn.key]
        if turn.slow:
            self._free_slow += 1
        else:
            self._free_quick += 1
            if turn in self._overdue:
                self._overdue.remove(turn)
        self._move()

    def _hand_out(self) -> None:
        while self._free_quick > 0 and len(self._waiting):
            key, place = self._next()
            if not place.done():
                place.set_result(None)
                self._take(key)

    def _next(self) -> tuple[ClientKey, asyncio.Future[None]]:
        """Return the next waiter: the first whose client runs no metric, else the first of all."""
        passed: list[tuple[ClientKey, asyncio.Future[None]]] = []
        while len(self._waiting):
            key, place = self._waiting.pop()
            if not self._running[key]:
                break
            passed.append((key, place))
        else:
            key, place = passed.pop(0)
        for other in reversed(passed):
            self._waiting.put_back(*other)
        return key, place
