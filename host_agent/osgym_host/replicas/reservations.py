"""Room reserved ahead: whoever is about to have several replicas made gets room for all or none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from osgym_host.core.fair_queue import UNNAMED, ClientKey, FairQueue
from osgym_host.replicas.lease_queue import HAND_OVER_S
from osgym_host.replicas.pool_errors import PoolExhausted, PoolStopping


@dataclass(slots=True, eq=False)
class Reservation:
    """Room for `count` replicas; `left` of them are not being made yet."""

    count: int
    granted: asyncio.Future[None]
    client: ClientKey = UNNAMED
    left: int = 0


class Reservations:
    """The reservations of a pool; clients take turns, and no small one overtakes. For one event loop."""

    def __init__(self, replan: Callable[[], None], exhausted: Callable[[float], PoolExhausted]) -> None:
        """Start empty; `replan` makes the pool plan again, `exhausted` makes the error after a wait."""
        self._replan = replan
        self._exhausted = exhausted
        self._asked: FairQueue[Reservation] = FairQueue()
        self.held = 0

    @property
    def waiting(self) -> bool:
        """Whether somebody still waits for room."""
        return len(self._asked) > 0

    async def ask(self, count: int, wait_s: float, client: ClientKey = UNNAMED) -> Reservation:
        """Reserve room; whoever got it gives back with `give_back` what is left of it.

        Raises:
            PoolExhausted: There was none within `wait_s`.
            PoolStopping: The service is stopping.
        """
        reservation = Reservation(count, asyncio.get_running_loop().create_future(), client)
        self._asked.add(client, reservation)
        self._replan()
        began = time.monotonic()
        try:
            async with asyncio.timeout(max(wait_s, HAND_OVER_S)):
                await reservation.granted
        except BaseException as error:
            self._asked.remove(client, reservation)
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
        """Grant room to one client after the other, to each in the order of its asking.

        Returns:
            What is left of `free`, and how much the next in turn lacks (0 when nobody waits).
        """
        while (reservation := self._asked.peek()) is not None and reservation.count <= free:
            self._asked.pop()
            if not reservation.granted.done():
                reservation.granted.set_result(None)
                reservation.left = reservation.count
                self.held += reservation.count
                free -= reservation.count
        return free, 0 if reservation is None else reservation.count - free

    def refuse_all(self, refusal: Callable[[], PoolStopping]) -> None:
        """Refuse everyone who waits, with what `refusal` makes."""
        while self._asked:
            _, reservation = self._asked.pop()
            if not reservation.granted.done():
                reservation.granted.set_exception(refusal())
