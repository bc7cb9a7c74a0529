"""Turns for metrics: who waits for a place in the evaluator gets it in a fair order, and soon.

Episodes take turns, so that one whose result makes every metric slow holds up nobody's but its own. A metric
that runs for longer than `QUICK_S` leaves its place to the next and goes on beside, with less of the
processors, so that four slow results do not keep the quick ones waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator

from osgym_host.core.fair_queue import ClientKey, FairQueue

QUICK_S = 2.0
"""Running time after which a metric makes room for another; most take some hundredths of a second."""


class _Turn:
    """One metric's place: quick at first, then among the slow ones."""

    def __init__(self, key: ClientKey) -> None:
        self.key = key
        self.slow = False


class EvaluatorTurns:
    """Hands out places: so many to quick metrics, and so many to those that have run for long."""

    def __init__(self, quick: int, slow: int, quick_s: float = QUICK_S) -> None:
        """Have ``quick`` places and ``slow`` ones; a metric counts as quick for ``quick_s`` seconds."""
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
        """Let another have the quick place, now or when a slow one becomes free."""
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
        """Return who is next: the first of those that have no metric running, else the first of all."""
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
