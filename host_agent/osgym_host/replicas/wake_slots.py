"""Bounds of the wakes of replicas whose memory was reclaimed. For one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable

from osgym_host.core.rest import EXPECTED_WORKING_SET_MIB

WAKES_PER_CORE = 8
"""Number of reclaimed replicas that wake at the same time, for each core: further ones wait in their order.
Each needs 10 to 30 ms of a processor for its pages, so that more would only delay each other."""
ROOM_LOOK_S = 0.05


class WakeSlots:
    """Bounds how many reclaimed replicas wake at once, and lets none wake before there is memory for it.

    Attributes:
        each_mib: Memory that a woken replica takes.
        awake: Number of replicas that are awake, as last counted, and of those woken since.
        short: Set while somebody waits for memory.
    """

    def __init__(self, room_mib: Callable[[], float], most_awake: int, count: int | None = None) -> None:
        """Args:
        room_mib: Returns the memory that woken replicas may take now.
        most_awake: Number of awake replicas from which another one wakes only if there would be memory for
            as many again. Without this bound they would take memory that those that work need a moment later.
        count: Number of wakes at once; None: `WAKES_PER_CORE` times the number of cores.
        """
        self.each_mib = EXPECTED_WORKING_SET_MIB
        self.awake = 0
        self.short = asyncio.Event()
        self._most_awake = most_awake
        self._room_mib = room_mib
        self._waking = 0
        self._slots = asyncio.Semaphore(count or WAKES_PER_CORE * len(os.sched_getaffinity(0)))

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot and for memory; those that came first go first."""
        async with self._slots:
            self._waking += 1
            try:
                while not self._has_room():
                    self.short.set()
                    await asyncio.sleep(ROOM_LOOK_S)
                self.awake += 1
                yield
            finally:
                self._waking -= 1

    def _has_room(self) -> bool:
        spare = 0 if self.awake < self._most_awake else self._most_awake
        return self._room_mib() >= (self._waking + spare) * self.each_mib
