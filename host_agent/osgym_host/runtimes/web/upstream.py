"""Request to a site over a connection of its own, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import h11

from osgym_host.runtimes.web.dial import IDLE_S, PIECE_BYTES, drain
from osgym_host.runtimes.web.heads import Headers, Refused

_MAX_ANSWER_HEAD = 64 * 1024


class Upstream:
    """Connection to a site for one request. h11 makes all bytes anew; none are passed on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_ANSWER_HEAD)

    async def send(
        self,
        method: str,
        path: str,
        host: str,
        headers: Headers,
        length: int | None,
        body: AsyncIterator[bytes],
    ) -> None:
        """Send a request without waiting for its answer.

        Raises:
            Refused: The request is not valid HTTP, or the site closed.
        """
        framing = []
        if length is None:
            framing = [(b"transfer-encoding", b"chunked")]
        elif length or method in ("POST", "PUT", "PATCH"):
            framing = [(b"content-length", str(length).encode())]
        try:
            await self._put(
                h11.Request(
                    method=method,
                    target=path,
                    headers=[(b"host", host.encode()), *headers, *framing, (b"connection", b"close")],
                )
            )
            async for piece in body:
                await self._put(h11.Data(data=piece))
            await self._put(h11.EndOfMessage())
        except h11.LocalProtocolError as exc:
            raise Refused(400, "bad_request", str(exc)) from None

    async def _put(self, event: h11.Event) -> None:
        data = self._state.send(event)
        if data:
            try:
                self._writer.write(data)
                await drain(self._writer)
            except (OSError, TimeoutError) as exc:
                raise Refused(502, "unreachable", f"the site did not accept the request: {exc}") from None

    async def answer(self) -> h11.Response:
        """Return the head of the answer.

        Raises:
            Refused: It did not come, or is malformed.
        """
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise Refused(502, "unreachable", "the site closed the connection without an answer")

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the answer's body in pieces.

        Raises:
            Refused: The body is incomplete.
        """
        while True:
            event = await self._next()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            else:
                raise Refused(502, "unreachable", "the site closed the connection inside its answer")

    async def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            while True:
                event = self._state.next_event()
                if event is not h11.NEED_DATA:
                    return event
                async with asyncio.timeout(IDLE_S):
                    self._state.receive_data(await self._reader.read(PIECE_BYTES))
        except (h11.RemoteProtocolError, OSError, TimeoutError) as exc:
            raise Refused(502, "unreachable", f"the site's answer broke off: {exc}") from None
