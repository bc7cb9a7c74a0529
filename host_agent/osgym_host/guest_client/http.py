"""Lean HTTP/1.1 client for hostile servers over a unix socket or TCP.

A guest can send anything. Head, headers, body and chunks are bounded in size and number, and lengths are
parsed strictly. Every call has a deadline, and reading yields to other tasks, so that the deadline fires
even if a guest sends without a pause. There are no redirects, cookies, proxies or compression.

The client is our own because of its cost: a call over a kept unix socket takes 116 µs of CPU for an answer
of 1 KB and 216 µs for one of 500 KB; through h11, with as much around it, 259 µs and 642 µs (medians of 7
rounds in one run). Through `httpx` a frame costs 1 ms and is bounded less.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from osgym_host.addresses import EnclosedAddress, GuestAddress, UnixAddress, short_unix_path
from osgym_host.guest_client.body import Body, BodyBuffer
from osgym_host.guest_client.errors import (
    GuestAnswerTooLarge,
    GuestProtocolError,
    GuestTimeout,
    GuestUnreachable,
    unreachable,
)
from osgym_host.guest_client.wake_lock import WakeLock
from osgym_protocol.http_heads import MalformedHead, parse_length, split_head

MAX_HEAD_BYTES = 32 * 1024
MAX_HEADERS = 64
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
"""Bytes kept of the body of an error answer; a longer one is cut and its connection closed."""
MAX_CONNECTIONS = 16
MAX_CHUNKS = 1024
MIN_CHUNK_BYTES = 1024
"""Mean size that chunks beyond `MAX_CHUNKS` must have, since each costs some 3 µs whatever its size."""
RECV_BYTES = 64 * 1024
_MOST = 10**15
_TURN_BYTES = 256 * 1024
"""Bytes read by a connection before other tasks run; a read counts as at least `_READ_BYTES`."""
_READ_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One answer, read completely. Header names are in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body = b""


class _Connection:
    """One keep-alive connection; used by one call at a time."""

    __slots__ = ("_buffer", "_loop", "_turn", "reusable", "sent_all", "sock")

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.sock = sock
        self.sent_all = False
        self.reusable = False
        self._loop = loop
        self._buffer = bytearray()
        self._turn = 0

    def close(self) -> None:
        self.reusable = False
        self.sock.close()

    def is_stale(self) -> bool:
        """Return whether the peer closed the connection or sent unexpected bytes while it was idle."""
        try:
            self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    async def exchange(self, request: bytes, body: bytes, max_body: int) -> HttpResponse:
        self.sent_all, self.reusable, self._turn = False, False, 0
        if body and len(body) > RECV_BYTES:
            await self._loop.sock_sendall(self.sock, request)
            await self._loop.sock_sendall(self.sock, body)
        else:
            await self._loop.sock_sendall(self.sock, request + body)
        self.sent_all = True
        version, status, headers = parse_head(
            await self._read_until(b"\r\n\r\n", MAX_HEAD_BYTES, "the head of the answer")
        )
        if status >= 300:
            content, whole = await self._read_error(headers, min(max_body, MAX_ERROR_BYTES))
        else:
            content, whole = await self._read_body(status, headers, max_body)
        keep = version == "1.1" and headers.get("connection", "").lower() != "close"
        self.reusable = keep and whole and not self._buffer
        return HttpResponse(status, headers, content)

    async def _read_body(self, status: int, headers: Mapping[str, str], max_body: int) -> tuple[Body, bool]:
        """Return the body, and whether its length was announced, so that the connection can be reused."""
        if status in (204, 304):
            return b"", True
        length = 0
        if "content-length" in headers and "transfer-encoding" not in headers:
            length = content_length(headers["content-length"], max_body)
            if not length:
                return b"", True
        body = BodyBuffer(length or max_body, length)
        try:
            if length:
                await self._read_exactly(body, length)
            elif "transfer-encoding" in headers:
                await self._read_chunked(headers, body, max_body)
            else:
                await self._read_to_end(body, max_body)
        except BaseException:
            body.drop()
            raise
        return body.taken(), bool(length) or "transfer-encoding" in headers

    async def _read_error(self, headers: Mapping[str, str], most: int) -> tuple[Body, bool]:
        """Return the beginning of an error's body, and whether it is complete."""
        if "transfer-encoding" not in headers and "content-length" in headers:
            length = content_length(headers["content-length"], _MOST)
            body = BodyBuffer(most)
            await self._read_exactly(body, min(length, most))
            return body.taken(), length <= most
        body = BodyBuffer(most)
        try:
            if "transfer-encoding" in headers:
                await self._read_chunked(headers, body, most)
            else:
                await self._read_to_end(body, most)
        except GuestAnswerTooLarge:
            return body.taken(), False
        return body.taken(), "transfer-encoding" in headers

    async def _let_others_run(self, count: int) -> None:
        self._turn += max(count, _READ_BYTES)
        if self._turn >= _TURN_BYTES:
            self._turn = 0
            await asyncio.sleep(0)

    async def _read_more(self) -> bool:
        """Read more; return False at the end of the stream."""
        data = await self._loop.sock_recv(self.sock, RECV_BYTES)
        self._buffer += data
        await self._let_others_run(len(data))
        return bool(data)

    async def _read_until(self, mark: bytes, limit: int, what: str) -> bytes:
        searched = 0
        while (end := self._buffer.find(mark, searched)) < 0:
            searched = max(0, len(self._buffer) - len(mark) + 1)
            if len(self._buffer) > limit:
                raise GuestProtocolError(f"{what} is larger than {limit} bytes")
            if not await self._read_more():
                raise ConnectionResetError("the guest closed the connection")
        if end > limit:
            raise GuestProtocolError(f"{what} is larger than {limit} bytes")
        data = bytes(self._buffer[:end])
        del self._buffer[: end + len(mark)]
        return data

    async def _read_exactly(self, body: BodyBuffer, length: int) -> None:
        """Append `length` bytes, which must fit."""
        have = min(len(self._buffer), length)
        body.add(self._buffer[:have])
        del self._buffer[:have]
        while have < length:
            with body.room(length - have) as place:
                count = await self._loop.sock_recv_into(self.sock, place)
            if not count:
                raise ConnectionResetError("the guest closed the connection inside a body")
            body.filled(count)
            have += count
            await self._let_others_run(count)

    async def _read_to_end(self, body: BodyBuffer, max_body: int) -> None:
        more = True
        while more:
            room = max_body - body.length
            body.add(self._buffer[:room])
            if len(self._buffer) > room:
                raise GuestAnswerTooLarge(f"the body is larger than {max_body} bytes")
            self._buffer.clear()
            more = await self._read_more()

    async def _read_chunked(self, headers: Mapping[str, str], body: BodyBuffer, max_body: int) -> None:
        if headers["transfer-encoding"].lower() != "chunked" or "content-length" in headers:
            raise GuestProtocolError("unsupported transfer encoding")
        chunks = 0
        while True:
            size = chunk_size(await self._read_until(b"\r\n", 1024, "a chunk header"))
            if size == 0:
                # Trailers are not accepted; the last chunk is followed by one empty line.
                if await self._read_until(b"\r\n", 1024, "a trailer"):
                    raise GuestProtocolError("unexpected trailers")
                return
            chunks += 1
            if chunks > MAX_CHUNKS + body.length // MIN_CHUNK_BYTES:
                raise GuestProtocolError(f"the body of {body.length} bytes has too many chunks ({chunks})")
            if body.length + size > max_body:
                raise GuestAnswerTooLarge(f"the body is larger than {max_body} bytes")
            await self._read_exactly(body, size)
            while len(self._buffer) < 2 and await self._read_more():
                pass
            if self._buffer[:2] != b"\r\n":
                raise GuestProtocolError("a chunk does not end at its announced length")
            del self._buffer[:2]


_STILL = frozenset({"/v1/health", "/v1/observe", "/v1/reach/windows", "/screenshot"})
"""Calls that need no time to pass in the desktop, since nothing in their work waits by a clock."""


class HttpClient:
    """Keep-alive connections to one address, at most `MAX_CONNECTIONS` at once."""

    def __init__(
        self,
        address: GuestAddress,
        *,
        token: str | None = None,
        max_connections: int = MAX_CONNECTIONS,
        wake_lock: WakeLock | None = None,
    ) -> None:
        """Args:
        wake_lock: Keeps the replica awake during each request; None: it never sleeps.
        """
        self.wake_lock = wake_lock
        self._address = address
        self._slots = asyncio.Semaphore(max_connections)
        self._idle: list[_Connection] = []
        self._closed = False
        self._began_s: dict[object, float] = {}
        auth = f"Authorization: Bearer {_header_safe(token)}\r\n" if token else ""
        self._common = f"Host: guest\r\n{auth}"

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        content_type: str = "application/json",
        timeout_s: float,
        max_body: int = MAX_BODY_BYTES,
    ) -> HttpResponse:
        """Send one request and read the whole answer, whatever its status.

        A connection that turns out to be closed before anything was sent is replaced silently.
        After a failure or a cancellation the connection is closed and the client usable.

        Raises:
            GuestUnreachable: No connection, or it broke.
            HostSocketError: No connection, since this host lacks a resource for it.
            GuestTimeout: `timeout_s` passed.
            GuestProtocolError: The answer is malformed or too large.
        """
        if self._closed:
            raise GuestUnreachable("the client is closed", delivered=False)
        request = self.head(method, path, body, content_type)
        if self.wake_lock is None:
            return await self._exchange(request, body, f"{method} {path}", timeout_s, max_body)
        still = path in _STILL
        await self.wake_lock.acquire(still=still)
        try:
            return await self._exchange(request, body, f"{method} {path}", timeout_s, max_body)
        finally:
            self.wake_lock.release(still=still)

    async def _exchange(
        self, request: bytes, body: bytes, what: str, timeout_s: float, max_body: int
    ) -> HttpResponse:
        connection: _Connection | None = None
        call = object()
        self._began_s[call] = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s), self._slots:
                connection = self._take_idle()
                if connection is None:
                    connection = _Connection(await self.connect(), asyncio.get_running_loop())
                return await connection.exchange(request, body, max_body)
        except TimeoutError as exc:
            delivered = connection is not None and connection.sent_all
            raise GuestTimeout(
                f"{what}: no answer within {timeout_s:g} s", delivered=delivered, timeout_s=timeout_s
            ) from exc
        except OSError as exc:
            delivered = connection is not None and connection.sent_all
            raise unreachable(what, exc, delivered=delivered) from exc
        finally:
            del self._began_s[call]
            if connection is not None:
                self._give_back(connection)

    def waiting_s(self) -> float:
        """Return the waiting time of the oldest call in flight; 0 without one."""
        oldest = next(iter(self._began_s.values()), None)
        return 0.0 if oldest is None else time.monotonic() - oldest

    def close(self) -> None:
        """Close all idle connections; running calls fail when they end. Idempotent."""
        self._closed = True
        self.drop_idle()

    def drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def socket_inodes(self) -> list[int]:
        return [os.fstat(connection.sock.fileno()).st_ino for connection in self._idle]

    def _take_idle(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_stale():
                connection.sent_all = False
                return connection
            connection.close()
        return None

    def _give_back(self, connection: _Connection) -> None:
        if connection.reusable and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()

    def head(self, method: str, path: str, body: bytes, content_type: str = "application/json") -> bytes:
        head = f"{method} {_header_safe(path)} HTTP/1.1\r\n{self._common}"
        if body or method != "GET":
            head += f"Content-Type: {_header_safe(content_type)}\r\nContent-Length: {len(body)}\r\n"
        return (head + "\r\n").encode("latin-1")

    async def connect(self) -> socket.socket:
        """Open a connection of the caller's own, apart from those for requests.

        Raises:
            OSError: It cannot be made.
        """
        loop = asyncio.get_running_loop()
        if isinstance(self._address, EnclosedAddress):
            sock = self._address.namespace.make_socket()
        else:
            family = socket.AF_UNIX if isinstance(self._address, UnixAddress) else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            if isinstance(self._address, UnixAddress):
                with short_unix_path(os.fspath(self._address.path)) as path:
                    await loop.sock_connect(sock, path)
            else:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await loop.sock_connect(sock, (self._address.host, self._address.port))
        except BaseException:
            sock.close()
            raise
        return sock


def parse_head(head: bytes) -> tuple[str, int, dict[str, str]]:
    """Parse status line and headers of an answer.

    Returns:
        HTTP version (`1.0` or `1.1`), status, headers with names in lower case.

    Raises:
        GuestProtocolError: Anything that is not plainly well-formed.
    """
    try:
        line, headers = split_head(head, MAX_HEADERS)
    except MalformedHead as exc:
        raise GuestProtocolError(str(exc)) from None
    parts = line.split(" ", 2)
    if len(parts) < 2 or parts[0] not in ("HTTP/1.0", "HTTP/1.1"):
        raise GuestProtocolError(f"not an HTTP answer: {line[:80]!r}")
    if not (len(parts[1]) == 3 and parts[1].isascii() and parts[1].isdigit() and "200" <= parts[1] <= "599"):
        raise GuestProtocolError(f"unexpected status: {parts[1][:20]!r}")
    return parts[0][5:], int(parts[1]), headers


def content_length(text: str, max_body: int) -> int:
    """Parse a length.

    Raises:
        GuestProtocolError: Not plain decimal digits, or more than `max_body`.
    """
    try:
        length = parse_length(text)
    except MalformedHead as exc:
        raise GuestProtocolError(str(exc)) from None
    if length > max_body:
        raise GuestAnswerTooLarge(f"the body is larger than {max_body} bytes ({text})")
    return length


def chunk_size(line: bytes) -> int:
    """Parse the size of a chunk; extensions are ignored.

    Raises:
        GuestProtocolError: Not plain hexadecimal digits.
    """
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > 12 or digits.strip(b"0123456789abcdefABCDEF"):
        raise GuestProtocolError(f"malformed chunk size: {line[:40]!r}")
    return int(digits, 16)


def _header_safe(text: str) -> str:
    if not text.isprintable() or not text.isascii():
        raise ValueError("control or non-ASCII character in a header")
    return text
