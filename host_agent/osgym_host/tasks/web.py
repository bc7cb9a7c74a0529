"""HTTP GET from a server that is not trusted: undecoded bytes, a bounded head, and turns for other tasks.

An HTTP library reads what has come in one go, so a server that sends thousands of small things (headers,
interim answers, chunks of one byte) would keep the event loop from everybody else. So little is read at a
time until the head of an answer is there, in all no more than a head has, and pieces are handed on in turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpcore

HEAD_READ_BYTES = 4096
MAX_HEAD_BYTES = 64 * 1024
IO_TIMEOUT_S = 30.0
PIECES_AT_ONCE = 32
FREE_PIECES, MIN_PIECE_BYTES = 4096, 64
"""An answer of more pieces than that must have so many bytes in each, in the mean."""
_TIMEOUTS = dict.fromkeys(("connect", "read", "write", "pool"), IO_TIMEOUT_S)
_REDIRECTS = (301, 302, 303, 307, 308)


class WebError(Exception):
    """The server cannot be reached, or its answer is no valid HTTP; the message says which."""


@dataclass(frozen=True, slots=True)
class WebRequest:
    """Address to connect to, and the request.

    Attributes:
        address: In numbers; names are resolved and judged before.
        target: Path and query, quoted.
        host: For the `Host` header.
        tls_name: Whom the certificate must name; None without TLS.
    """

    address: str
    port: int
    target: str
    host: str
    tls_name: str | None


@dataclass(slots=True)
class _Head:
    """Bytes that were read of an answer whose head is not complete."""

    awaited: bool = True
    read_bytes: int = 0


class WebAnswer:
    """An answer's status and headers, and its body as it comes."""

    def __init__(self, response: httpcore.Response) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers
        }

    @property
    def redirects(self) -> bool:
        return self.status in _REDIRECTS

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it is sent, without decoding; other tasks of the loop get turns.

        Raises:
            WebError: It breaks off, or comes in so many and so small pieces that it is an attack.
        """
        number = size = 0
        with _errors():
            async for piece in self._response.aiter_stream():
                number, size = number + 1, size + len(piece)
                if number > FREE_PIECES and size < number * MIN_PIECE_BYTES:
                    raise WebError("the answer is sent in pieces of a few bytes")
                if number % PIECES_AT_ONCE == 0:
                    await asyncio.sleep(0)
                yield piece


class WebClient:
    """HTTP client for one file and its redirects, an async context manager."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._head = _Head()
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls, network_backend=_Backend(self._head), max_connections=1
        )

    async def __aenter__(self) -> WebClient:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._pool.aclose()

    @contextlib.asynccontextmanager
    async def get(self, request: WebRequest) -> AsyncIterator[WebAnswer]:
        """Request a file; its answer is open as long as the context.

        Raises:
            WebError: The server cannot be reached, or its head makes no sense.
        """
        self._head.awaited, self._head.read_bytes = True, 0
        asked = httpcore.Request(
            "GET",
            httpcore.URL(
                scheme=b"http" if request.tls_name is None else b"https",
                host=request.address.encode("ascii"),
                port=request.port,
                target=request.target.encode("ascii"),
            ),
            headers=[
                ("Host", request.host),
                ("Accept", "*/*"),
                ("Accept-Encoding", "identity"),
                ("Connection", "close"),
                ("User-Agent", "osgym"),
            ],
            extensions={"timeout": _TIMEOUTS}
            | ({} if request.tls_name is None else {"sni_hostname": request.tls_name}),
        )
        with _errors():
            response = await self._pool.handle_async_request(asked)
        self._head.awaited = False
        try:
            yield WebAnswer(response)
        finally:
            await response.aclose()


@contextlib.contextmanager
def _errors() -> Any:
    try:
        yield
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
        raise WebError(f"{type(error).__name__}: {error}") from error


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self, head: _Head) -> None:
        self._inner = httpcore.AnyIOBackend()
        self._head = head

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        stream = await self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        return _Stream(stream, self._head)


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, inner: httpcore.AsyncNetworkStream, head: _Head) -> None:
        self._inner = inner
        self._head = head

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if not self._head.awaited:
            return await self._inner.read(max_bytes, timeout)
        data = await self._inner.read(min(max_bytes, HEAD_READ_BYTES), timeout)
        self._head.read_bytes += len(data)
        if self._head.read_bytes > MAX_HEAD_BYTES:
            raise httpcore.RemoteProtocolError(f"more than {MAX_HEAD_BYTES} bytes before the answer")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout), self._head)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
