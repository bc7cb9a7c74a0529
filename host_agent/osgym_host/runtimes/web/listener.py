"""Listener of a replica: a socket on the replica's own loopback interface that leads to the proxy.

The socket was made in the replica's network and given to us, so whoever connects to it is that replica, and
nothing of ours runs inside. It opens nothing else: there is no link, no route and no name server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from dataclasses import dataclass
from typing import Protocol

from osgym_host.runtimes.web import dial
from osgym_host.runtimes.web.heads import Refused
from osgym_host.runtimes.web.pages import page

MAX_CONNECTIONS = 128
"""Largest number of connections of one replica; a browser opens at most 32 to a proxy by default."""
MAX_LOOKUPS = 4
MAX_CONNECTING = 16
"""Largest numbers of name look-ups and of connection attempts to sites of one replica; others wait."""
TOTAL_S = 6 * 3600.0
"""Longest duration of a connection."""

_log = logging.getLogger(__name__)


class ReplicaLimits:
    """Semaphores for the look-ups and connection attempts of one replica."""

    def __init__(self) -> None:
        self.lookups = asyncio.Semaphore(MAX_LOOKUPS)
        self.connecting = asyncio.Semaphore(MAX_CONNECTING)


class Handler(Protocol):
    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: ReplicaLimits
    ) -> None:
        """Serve a connection to its end.

        Raises:
            Refused: Nothing was answered yet, and this is the answer.
            OSError, EOFError, TimeoutError: The connection broke.
        """
        ...


@dataclass
class ConnectionBudget:
    """Number of connections that all listeners of this process may still accept."""

    free: int


class ProxyListener:
    def __init__(self, handler: Handler, budget: ConnectionBudget) -> None:
        self._handler = handler
        self._budget = budget
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._limits = ReplicaLimits()

    @property
    def connections(self) -> int:
        return len(self._tasks)

    async def open(self, listener: socket.socket) -> None:
        """Accept connections from now on; the socket belongs to the listener.

        Raises:
            OSError: The socket does not listen.
        """
        self._server = await asyncio.start_server(self._accepted, sock=listener, limit=dial.PIECE_BYTES)
        if self._closed:  # meanwhile
            self._server.close()

    async def close(self) -> None:
        """Accept no more and end every connection at both ends. Idempotent."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._closed:  # it was accepted just before
            writer.transport.abort()
            return
        if len(self._tasks) >= MAX_CONNECTIONS or self._budget.free <= 0:
            most = f"this desktop has more than {MAX_CONNECTIONS} connections, or the host's proxy is full"
            refused = Refused(503, "too_many_connections", most)
            writer.write(page(refused))
            writer.close()
            return
        self._tasks.add(task)
        self._budget.free -= 1
        try:
            with contextlib.suppress(asyncio.CancelledError):  # the listener closes: this is the task's end
                await self._serve(reader, writer)
        finally:
            writer.transport.abort()
            self._budget.free += 1
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(TOTAL_S):
                await self._answer(reader, writer)
        except (OSError, EOFError, TimeoutError):
            return
        except Exception:  # noqa: BLE001 - the top of the task
            _log.exception("a connection failed")

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._handler.serve(reader, writer, self._limits)
        except Refused as exc:
            _log.info("refused: %s", exc)
            writer.write(page(exc))
            if writer.can_write_eof():  # TLS cannot
                writer.write_eof()
            await _let_read(reader)
        await dial.close(writer)


async def _let_read(reader: asyncio.StreamReader) -> None:
    """Discard what still comes, for a moment: a reset would destroy the answer before it is read."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            while await reader.read(dial.PIECE_BYTES):
                pass
