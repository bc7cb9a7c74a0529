"""Reservations of capacity for several replicas at once, all or none."""

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
    """Capacity for `count` replicas, of which `left` are not being made yet."""

    count: int
    granted: asyncio.Future[None]
    client: ClientKey = UNNAMED
    left: int = 0


class Reservations:
    """Reservations of a pool; clients take turns, and small requests do not overtake. For one event loop."""

    def __init__(self, replan: Callable[[], None], exhausted: Callable[[float], PoolExhausted]) -> None:
        """Start empty; `replan` triggers a plan, `exhausted` makes the error after a wait."""
        self._replan = replan
        self._exhausted = exhausted
        self._asked: FairQueue[Reservation] = FairQueue()
        self.held = 0

    @property
    def waiting(self) -> bool:
        """True while a client waits for capacity."""
        return len(self._asked) > 0

    async def ask(self, count: int, wait_s: float, client: ClientKey = UNNAMED) -> Reservation:
        """Reserve capacity; the caller must return the unused part with `give_back`.

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
        """Use one place, since the replica itself is counted from now on."""
        if reservation.left:
            reservation.left -= 1
            self.held -= 1

    def give_back(self, reservation: Reservation) -> None:
        """Return the unused part of a reservation. Idempotent."""
        self.held, reservation.left = self.held - reservation.left, 0
        self._replan()

    def grant(self, free: int) -> tuple[int, int]:
        """Grant capacity to clients in turn, to each in the order of its requests.

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
        """Refuse all waiting clients with the error of `refusal`."""
        while self._asked:
            _, reservation = self._asked.pop()
            if not reservation.granted.done():
                reservation.granted.set_exception(refusal())
