"""Pings a window over and over, as a window manager does (_NET_WM_PING).

A program answers from its main loop, so the longest wait is how long the loop stood still. On a busy machine
most of that is waiting for a processor, so the CPU time of the program's main thread meanwhile is recorded
too: for that long the loop stood still because of its own work.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple

from osgym_guest.osworld.x11 import SOCKET_DIR, XConnection

TIMEOUT_S = 5.0
PAUSE_S = 0.002
LINE_S = 0.05
_CHANGE_ATTRIBUTES, _SEND_EVENT, _CLIENT_MESSAGE = 2, 25, 33
_EVENT_MASK, _SUBSTRUCTURE_NOTIFY = 0x800, 0x80000


class Gap(NamedTuple):
    """Time for which a main loop stood still, and the part in which its thread worked."""

    wall_ms: float
    busy_ms: float


class Pinger(XConnection):
    """A connection to the X server that sends one ping at a time to one window."""

    def __init__(self) -> None:
        super().__init__()
        self._answer: asyncio.Future[float] | None = None
        self._number = 0
        self._window = 0
        self._schedule = Path("/proc/self/schedstat")

    @classmethod
    async def connect(cls, window: int, pid: int) -> Pinger:
        """Connect to the session's display, for a window of a process."""
        number = os.environ.get("DISPLAY", ":0").rpartition(":")[2].partition(".")[0]
        loop = asyncio.get_running_loop()
        _, made = await loop.create_unix_connection(cls, f"{SOCKET_DIR}/X{number}")
        await made.set_up(b"", b"")
        made._window = window
        made._schedule = Path(f"/proc/{pid}/schedstat")  # of its first thread, which has the main loop
        body = struct.pack("<III", made.root, _EVENT_MASK, _SUBSTRUCTURE_NOTIFY)
        made._send(_CHANGE_ATTRIBUTES, 0, body)
        return made

    def _dispatch(self, packet: bytes) -> None:
        if self._setup is None and packet[0] & 0x7F == _CLIENT_MESSAGE:
            number, window = struct.unpack_from("<II", packet, 16)
            if window == self._window and number == self._number and self._answer is not None:
                if not self._answer.done():
                    self._answer.set_result(time.monotonic())
                return
        super()._dispatch(packet)

    async def ping(self) -> Gap | None:
        """Return how long the program took to answer; None if it does not within `TIMEOUT_S`."""
        protocols, kind = await self.atom("WM_PROTOCOLS"), await self.atom("_NET_WM_PING")
        self._number += 1
        self._answer = asyncio.get_running_loop().create_future()
        event = struct.pack("<BBHII", _CLIENT_MESSAGE, 32, 0, self._window, protocols)
        event += struct.pack("<5I", kind, self._number, self._window, 0, 0)
        began, busy_ms = time.monotonic(), self._busy_ms()
        self._send(_SEND_EVENT, 0, struct.pack("<II", self._window, 0) + event)
        try:
            taken_s = await asyncio.wait_for(self._answer, TIMEOUT_S) - began
        except TimeoutError:
            return None
        return Gap(taken_s * 1000, self._busy_ms() - busy_ms)

    def _busy_ms(self) -> float:
        """Return the CPU time of the program's main thread; that of a program that ended stays 0."""
        try:
            return int(self._schedule.read_text().split()[0]) / 1e6
        except OSError:
            return 0.0

    async def during(self, work: Coroutine[Any, Any, None]) -> list[Gap]:
        """Ping while `work` goes on; returns the largest gap of each `LINE_S`, in both respects.

        The list is empty for a program that does not answer pings.
        """
        answers = await self._knows_pings() and await self.ping() is not None
        task = asyncio.ensure_future(work)
        gaps: list[Gap] = []
        begun = 0.0
        while answers and not task.done():
            gap = await self.ping() or Gap(TIMEOUT_S * 1000, 0.0)
            if time.monotonic() - begun > LINE_S:
                begun = time.monotonic()
                gaps.append(gap)
            gaps[-1] = Gap(max(gap.wall_ms, gaps[-1].wall_ms), max(gap.busy_ms, gaps[-1].busy_ms))
            await asyncio.sleep(PAUSE_S)
        await task
        return gaps

    async def _knows_pings(self) -> bool:
        return await self.atom("_NET_WM_PING") in await self.numbers(self._window, "WM_PROTOCOLS")
