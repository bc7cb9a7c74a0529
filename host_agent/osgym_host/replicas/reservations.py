"""Room reserved ahead: whoever is about to have several replicas made gets room for all or none."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from osgym_host.replicas.lease_queue import HAND_OVER_S
from osgym_host.replicas.pool_errors import PoolExhausted, PoolStopping


@dataclass(slots=True, eq=False)
class Reservation:
    """Room for `count` replicas; `left` of them are not being made yet."""

    count: int
    granted: asyncio.Future[None]
    left: int = 0


class Reservations:
    """The reservations of a pool, first come first served. For one event loop."""

    def __init__(self, replan: Callable[[], None], exhausted: Callable[[float], PoolExhausted]) -> None:
        """Start empty; `replan` makes the pool plan again, `exhausted` makes the error after a wait."""
        self._replan = replan
        self._exhausted = exhausted
        self._asked: deque[Reservation] = deque()
        self.held = 0

    @property
    def waiting(self) -> bool:
        """Whether somebody still waits for room."""
        return bool(self._asked)

    async def ask(self, count: int, wait_s: float) -> Reservation:
        """Reserve room; whoever got it gives back with `give_back` what is left of it.

        Raises:
            PoolExhausted: There was none within `wait_s`.
            PoolStopping: The service is stopping.
        """
        reservation = Reservation(count, asyncio.get_running_loop().create_future())
        self._asked.append(reservation)
        self._replan()
        began = time.monotonic()
        try:
            async with asyncio.timeout(max(wait_s, HAND_OVER_S)):
                await reservation.granted
        except BaseException as error:
            if reservation in self._asked:
                self._asked.remove(reservation)
            self.give_back(reservation)
            if isinstance(error, TimeoutError):
                raise self._exhausted(time.monotonic() - began) from None
            raise
        return reservation

    def take(self, reservation: Reservation) -> None:
        """One of the replicas is being made: from now on the replica itself is counted."""
        if reservation.left:
            reservation.left -= 1
            self.held -= 1

    def give_back(self, reservation: Reservation) -> None:
        """Return what is left of a reservation. Idempotent."""
        self.held, reservation.left = self.held - reservation.left, 0
        self._replan()

    def grant(self, free: int) -> tuple[int, int]:
        """Grant room in the order of asking.

        Returns:
            What is left of `free`, and how much the first who still waits lacks (0 when nobody does).
        """
        while self._asked and self._asked[0].count <= free:
            reservation = self._asked.popleft()
            if not reservation.granted.done():
                reservation.granted.set_result(None)
                reservation.left = reservation.count
                self.held += reservation.count
                free -= reservation.count
        return free, self._asked[0].count - free if self._asked else 0

    def refuse_all(self, refusal: Callable[[], PoolStopping]) -> None:
        """Refuse everyone who waits, with what `refusal` makes."""
        while self._asked:
            reservation = self._asked.popleft()
            if not reservation.granted.done():
                reservation.granted.set_exception(refusal())
