"""One HTTP/1.1 connection as a transport of httpx, made for the step path.

httpx's own transport, which serves proxies and uploads, takes twice the CPU time for a call: it writes
head and body of a request apart, and keeps the books of a pool where there is one connection.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import h11
import httpx

from osgym_sdk._transport.chunks import ChunkReader

_READ_AHEAD_BYTES = 1024 * 1024
"""What may wait to be read before the other side is slowed down."""


class Http1Connection(httpx.AsyncBaseTransport):
    """One call at a time; bodies of requests are bytes. After an error it can only be closed.

    Args:
        context: for https.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self._wire: _Wire | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; the answer's body is read from the connection as it comes.

        Raises:
            httpx.TransportError: the connection cannot be made, or breaks.
        """
        if self._wire is None or self._wire.closed:
            self._wire = await self._connect(request)
        wire = self._wire
        with _httpx_errors(httpx.WriteError):
            wire.send(request)
        with _httpx_errors(httpx.ReadError):
            event = await wire.next_event()
            while isinstance(event, h11.InformationalResponse):
                event = await wire.next_event()
        assert isinstance(event, h11.Response)
        with _httpx_errors(httpx.ReadError):
            wire.begin_body(event)
        return httpx.Response(event.status_code, headers=event.headers.raw_items(), stream=_Body(wire))

    def abort(self) -> None:
        """Drop the connection now, also where nobody will wait for its end. Idempotent."""
        if self._wire is not None:
            self._wire.close()

    async def aclose(self) -> None:
        """Close the connection. Idempotent."""
        self.abort()
        if self._wire is not None:
            await self._wire.lost.wait()

    async def _connect(self, request: httpx.Request) -> _Wire:
        url, extensions = request.url, request.extensions
        tls = url.scheme == "https"
        loop = asyncio.get_running_loop()
        with _httpx_errors(httpx.ConnectError):
            try:
                async with asyncio.timeout(extensions.get("timeout", {}).get("connect")):
                    _, wire = await loop.create_connection(
                        _Wire,
                        url.raw_host.decode("ascii"),
                        url.port or (443 if tls else 80),
                        ssl=self._context if tls else None,
                        server_hostname=extensions.get("sni_hostname") if tls else None,
                        happy_eyeballs_delay=None if _is_address(url.host) else 0.25,
                    )
            except TimeoutError as exc:
                raise httpx.ConnectTimeout("the connection was not made in time") from exc
        return wire


def _is_address(host: str) -> bool:
    """Tell an address from a name: it has one place to connect to, so asyncio need not race.

    A race that is cancelled as it is won leaves the winner's socket open.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class _Wire(asyncio.Protocol):
    """Bytes of one connection, to and from h11."""

    def __init__(self) -> None:
        self._http = _fresh()
        self._chunks: ChunkReader | None = None
        """Reads the body in the place of h11, where it comes in chunks."""
        self._parts: list[bytes] = []
        self._keeps = True
        self._broken: h11.RemoteProtocolError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.buffered_bytes = 0
        self._error: Exception | None = None
        self.closed = False
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._chunks is None:
            self._http.receive_data(data)
        else:
            self._read_chunks(self._chunks, data)
        self.buffered_bytes += len(data)
        if self.buffered_bytes > _READ_AHEAD_BYTES:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self.closed = True
        if self._chunks is None:
            self._http.receive_data(b"")
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._error = exc
        self.lost.set()
        if not self.closed:
            self.eof_received()
        self._wake()

    def close(self) -> None:
        """Drop the connection; nothing that waits to be sent matters any more."""
        self.closed = True
        self._transport.abort()

    def send(self, request: httpx.Request) -> None:
        """Write a whole request at once."""
        http = self._http
        if self._chunks is not None:
            self._chunks = None
            http = self._http = _fresh()
        elif http.our_state is h11.DONE:
            http.start_next_cycle()
        assert isinstance(request.stream, httpx.ByteStream)
        line = h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
        data = h11.Data(data=b"".join(request.stream))
        self._transport.write(b"".join(http.send(event) or b"" for event in (line, data, h11.EndOfMessage())))

    async def next_event(self) -> h11.Event:
        """Return the next event of an answer. Raises h11.ProtocolError or OSError if the connection broke."""
        while (event := self._parsed()) is h11.NEED_DATA:
            await self._more()
        assert not isinstance(event, type)
        return event

    def begin_body(self, head: h11.Response) -> None:
        """Read what follows this head. Raises h11.RemoteProtocolError if it is broken from its beginning."""
        coded = [value for name, value in head.headers if name == b"transfer-encoding"]
        if coded != [b"chunked"] or head.http_version != b"1.1" or head.status_code in (204, 304):
            return
        self._chunks, self._parts = ChunkReader(), []
        self._keeps = not any(
            name == b"connection" and b"close" in value.lower() for name, value in head.headers
        )
        self._read_chunks(self._chunks, self._http.trailing_data[0])

    async def body(self) -> AsyncIterator[bytes]:
        """Yield what comes of the body of an answer.

        Raises:
            h11.ProtocolError, OSError: the connection broke.
        """
        if self._chunks is None:
            while isinstance(event := await self.next_event(), h11.Data):
                yield bytes(event.data)
            return
        while True:
            parts, self._parts = self._parts, []
            for part in parts:
                yield part
            if self._broken is not None:
                raise self._broken
            if self._chunks.done:
                return
            if not self._parts:
                if self.closed and self._error is None:
                    raise h11.RemoteProtocolError("the host closed the connection inside an answer")
                await self._more()

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error
        self.buffered_bytes = 0
        if not self.closed:
            self._transport.resume_reading()
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _read_chunks(self, chunks: ChunkReader, data: bytes) -> None:
        if self._broken is None:
            try:
                self._parts += chunks.feed(data)
            except h11.RemoteProtocolError as exc:
                self._broken = exc

    def _parsed(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as exc:
            if self._http.trailing_data[1] and "ConnectionClosed" in str(exc):  # h11 names its own states
                raise h11.RemoteProtocolError("the host closed the connection without an answer") from exc
            raise

    def finished(self) -> bool:
        """Return whether the answer was read to its end, so that the connection may be used again."""
        if self._chunks is not None:
            return self._keeps and self._chunks.done and not self._chunks.rest and not self._parts
        return self._http.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _fresh() -> h11.Connection:
    return h11.Connection(h11.CLIENT, max_incomplete_event_size=256 * 1024)


class _Body(httpx.AsyncByteStream):
    def __init__(self, wire: _Wire) -> None:
        self._wire = wire

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _httpx_errors(httpx.ReadError):
            async for part in self._wire.body():
                yield part

    async def aclose(self) -> None:
        if not self._wire.finished():
            self._wire.close()


@contextmanager
def _httpx_errors(broken: type[httpx.NetworkError]) -> Iterator[None]:
    """Raise what httpx says where sockets and h11 say it in their own words."""
    try:
        yield
    except h11.RemoteProtocolError as exc:
        raise httpx.RemoteProtocolError(str(exc)) from exc
    except h11.LocalProtocolError as exc:
        raise httpx.LocalProtocolError(str(exc)) from exc
    except OSError as exc:
        raise broken(str(exc) or type(exc).__name__) from exc
