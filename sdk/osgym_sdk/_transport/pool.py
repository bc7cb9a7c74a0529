"""Connections to one host, one call on each at a time, handed out in constant time.

A pool of httpx looks at all its connections for every call, which is quadratic when hundreds of long
steps run side by side. Here each is a transport of its own; the one used last is used next,
so that few stay open, and those idle for long are closed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx

from osgym_sdk._transport.http1 import Http1Connection


class ConnectionPool:
    """At most ``limit`` calls at a time; further ones wait their turn."""

    def __init__(
        self,
        make: Callable[[], httpx.AsyncBaseTransport],
        limit: int,
        keepalive_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._make = make
        self._slots = asyncio.Semaphore(limit)
        self._keepalive_s = keepalive_s
        self._clock = clock
        self._idle: deque[tuple[float, httpx.AsyncBaseTransport]] = deque()
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def idle(self) -> int:
        """Connections that wait for a call."""
        return len(self._idle)

    @asynccontextmanager
    async def send(self, request: httpx.Request) -> AsyncIterator[httpx.Response]:
        """Send a request; the connection is busy until the block ends, which should read the whole answer.

        Raises:
            httpx.HTTPError: the connection cannot be made, or breaks.
        """
        async with self._slots:
            connection = self._idle.pop()[1] if self._idle else self._make()
            clean = False
            try:
                response = await connection.handle_async_request(request)
                response.request = request
                try:
                    yield response
                finally:
                    await response.aclose()
                clean = True
            finally:
                # After an error or a cancellation in its middle a connection is not to be trusted.
                if clean and not self._closed:
                    self._idle.append((self._clock(), connection))
                    self.close_stale()
                else:
                    self._close(connection)

    async def aclose(self) -> None:
        """Close the idle connections now and busy ones when their calls end. Idempotent."""
        self._closed = True
        while self._idle:
            self._close(self._idle.pop()[1])
        await asyncio.gather(*self._closing, return_exceptions=True)

    def close_stale(self) -> None:
        """Close connections that nobody has used for long."""
        since = self._clock() - self._keepalive_s
        while self._idle and self._idle[0][0] < since:
            self._close(self._idle.popleft()[1])

    def _close(self, connection: httpx.AsyncBaseTransport) -> None:
        if isinstance(connection, Http1Connection):
            connection.abort()  # a loop that ends does not begin the task below
        task = asyncio.ensure_future(connection.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
