"""Watchdog of the X server: detects that it stopped answering while the agent waits for it.

An X server that ended breaks its connections. One that was stopped or hangs leaves them open, and a call of
the display's thread never returns. So when work for the display takes long, a connection of its own asks the
server for nothing but the answer to its greeting. A slow server is not a hung one: time in which the server
was ready to run and got no processor is not counted, within a bound.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable

PATIENCE_S = 1.0
"""Time after which work for the display is checked. Nearly all work is shorter."""
SILENT_S = 2.0
STARVED_S = 20.0
_LOOK_S = 0.25
_GREETING = struct.pack("<BxHHHHxx", ord("l"), 11, 0, 0, 0)
"""Greeting: little endian, protocol 11.0, without authorisation. A refusal is an answer too."""


class DisplayWatchdog:
    """Checks the X server while there is work for it.

    Args:
        on_silent: Called once when the server did not answer although it could have run.
        name: Name of the display. Only a display of this machine, such as ``:0``, is checked.
    """

    def __init__(self, on_silent: Callable[[], None], name: str | None = None) -> None:
        name = os.environ.get("DISPLAY", "") if name is None else name
        number = name[1:].partition(".")[0]
        self._path = f"/tmp/.X11-unix/X{number}" if name[:1] == ":" and number.isdigit() else ""  # noqa: S108 - where X servers listen
        self._on_silent = on_silent
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start checking: work for the display has begun."""
        if self._path and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._ask)

    def stop(self) -> None:
        """Stop checking: no work is left. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _ask(self) -> None:
        self._asking = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            if not await self._answers():
                self._on_silent()
                return
            await asyncio.sleep(PATIENCE_S)

    async def _answers(self) -> bool:
        """Return whether the server answers a greeting, or has ended, which other connections notice."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as sock:
            try:
                _connect(sock, self._path)
                sock.send(_GREETING)
                peer = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            except BlockingIOError:
                return True  # its queue is full: many ask
            except OSError:
                return True
            answer = asyncio.ensure_future(loop.sock_recv(sock, 1))
            try:
                return await _in_time(answer, peer)
            finally:
                answer.cancel()
                await asyncio.gather(answer, return_exceptions=True)


def _connect(sock: socket.socket, path: str) -> None:
    """Connect to a server's abstract socket, which no program can replace as it can the socket file.

    Raises:
        OSError: Neither socket exists.
    """
    try:
        sock.connect(f"\0{path}")
    except ConnectionRefusedError:
        sock.connect(path)


async def _in_time(answer: asyncio.Future[bytes], pid: int) -> bool:
    """Return whether an answer arrives before the server has been silent for too long."""
    loop = asyncio.get_running_loop()
    counted_s = starved_s = 0.0
    at_s, waited_s = loop.time(), cpu_wait_s(pid)
    while True:
        await asyncio.wait((answer,), timeout=_LOOK_S)
        if answer.done():
            return True
        now_s, now_waited_s = loop.time(), cpu_wait_s(pid)
        # We may have come late ourselves; then the answer may lie there already, unread.
        passed_s, starved = min(now_s - at_s, 2 * _LOOK_S), now_waited_s - waited_s
        at_s, waited_s = now_s, now_waited_s
        starved_s += starved
        counted_s += passed_s if starved_s > STARVED_S else max(0.0, passed_s - starved)
        if counted_s >= SILENT_S:
            return False


def cpu_wait_s(pid: int) -> float:
    """Return the time for which a process was ready to run and got no processor; 0 when that is unknown."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:  # noqa: PTH123 (no pathlib on this way)
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
