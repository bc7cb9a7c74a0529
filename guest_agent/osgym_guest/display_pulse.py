"""Whether the X server still answers while somebody waits for it.

A server that ended breaks its connections; one that was stopped or hangs leaves them open, and a call of
the display's thread never comes back. So when work for the display takes long, a connection of its own asks
the server for nothing but the answer to its greeting. Frozen is not slow, as in the host's guest pulse: time
in which the server wanted a processor and got none is not counted, within a bound.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable

PATIENCE_S = 1.0
"""Work that takes no longer is not looked at: nearly all of it."""
SILENT_S = 2.0
STARVED_S = 20.0
_LOOK_S = 0.25
_GREETING = struct.pack("<BxHHHHxx", ord("l"), 11, 0, 0, 0)
"""Little endian, protocol 11.0, without authorisation; even a refusal is an answer."""


class DisplayPulse:
    """Asks the X server while there is work for it.

    Args:
        on_silent: called once when the server did not answer though it could have.
        name: of the display; only one of this machine, such as ``:0``, is asked.
    """

    def __init__(self, on_silent: Callable[[], None], name: str | None = None) -> None:
        name = os.environ.get("DISPLAY", "") if name is None else name
        number = name[1:].partition(".")[0]
        self._path = f"/tmp/.X11-unix/X{number}" if name[:1] == ":" and number.isdigit() else ""  # noqa: S108 - where X servers listen
        self._on_silent = on_silent
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Work for the display has begun."""
        if self._path and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._ask)

    def end(self) -> None:
        """None is left. Idempotent."""
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
        """Whether the server answers a greeting, or is gone, which its other connections tell."""
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
    """Connect to a server's abstract name, which nobody can take from it as they can its file.

    Raises:
        OSError: it has neither.
    """
    try:
        sock.connect(f"\0{path}")
    except ConnectionRefusedError:
        sock.connect(path)


async def _in_time(answer: asyncio.Future[bytes], pid: int) -> bool:
    """Whether an answer comes before the server was silent for too long."""
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
    """How long a process was ready to run and was not let; 0 when nobody knows."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:  # noqa: PTH123 (no pathlib on this way)
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
