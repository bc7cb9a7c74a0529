"""Events of this host in a bounded ring that clients can follow."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

MAX_EVENTS = 1000
"""Number of events in one answer."""


class EventLog:
    """Latest events, numbered from 1. For one event loop."""

    def __init__(self, size: int = 4096) -> None:
        """Keep at most `size` events."""
        self._ring: deque[dict[str, Any]] = deque(maxlen=size)
        self._last = 0
        self._news: asyncio.Event = asyncio.Event()
        self._closed = False

    def add(self, kind: str, **fields: Any) -> None:
        """Append an event and wake all waiting calls."""
        self._last += 1
        self._ring.append({"id": self._last, "time": round(time.time(), 3), "kind": kind, **fields})
        self._news.set()
        self._news = asyncio.Event()

    def close(self) -> None:
        """End all waits for events, now and later."""
        self._closed = True
        self._news.set()

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    @property
    def last_id(self) -> int:
        """Number of the newest event, 0 when there was none."""
        return self._last

    async def after(self, number: int, wait_s: float, replica_id: str | None = None) -> list[dict[str, Any]]:
        """Return events newer than `number`; wait up to `wait_s` for the first of them.

        With `replica_id` those of others are left out, once there is something new.

        Events that have dropped out of the ring are missing: the first id tells.
        """
        if number >= self._last and wait_s > 0 and not self._closed:
            news = self._news
            try:
                async with asyncio.timeout(wait_s):
                    await news.wait()
            except TimeoutError:
                return []
        found = [event for event in self._ring if event["id"] > number]
        if replica_id is not None:
            return [event for event in found if event.get("replica_id") == replica_id][-MAX_EVENTS:]
        return found[:MAX_EVENTS]
