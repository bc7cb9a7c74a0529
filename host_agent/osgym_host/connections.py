"""Connections of clients, with bounds on their number, their idle time and the size of request heads.

uvicorn parses HTTP and bounds none of that: a connection that never finishes its first line stays open, and
once the descriptors are used up, no client is served and every failed accept is logged. Here a waiting
connection is closed for a new one, the connections of the same address first.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.server import ServerState

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as HttpProtocol
except ImportError:  # httptools is installed for CPython only
    from uvicorn.protocols.http.h11_impl import H11Protocol as HttpProtocol  # type: ignore[assignment]  # of the same form

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 16 * 1024
"""Size of a request's line and headers; parsing as much takes 4 ms when it is all headers."""
BODY_PIECE_BYTES = 64 * 1024
"""Size of a body's part that is parsed in one go; further requests may follow it."""
HEAD_S = 10.0
"""Time from the first byte of a request, or the connection, to the end of its head."""
HANDSHAKE_S = 5.0
WRITE_STALL_S = 60.0
"""Time for which a client may leave an answer unread."""
LINGER_S = 2.0
LINGER_BYTES = 32 * 1024 * 1024
"""Time and size for which the rest of an unwanted body is read and dropped, so that its sender reads the
answer.
"""
MAX_PIPELINED = 16
MOST_CONNECTIONS = 16384
ACCEPT_PAUSE_S = 0.1
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def _answer(status: str, code: str, message: str) -> bytes:
    body = f'{{"code":"{code}","message":"{message}","details":{{}}}}'.encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"connection: close\r\n\r\n" + body


_BUSY = _answer(
    "503 Service Unavailable",
    "no_capacity",
    "The host has too many connections; close some, or try again later.",
)
_TOO_SLOW = _answer("408 Request Timeout", "bad_request", f"The request's head took more than {HEAD_S:g} s.")
_TOO_LARGE = _answer(
    "431 Request Header Fields Too Large",
    "bad_request",
    f"The request's line and headers are larger than {MAX_HEAD_BYTES} bytes.",
)


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """Largest numbers of connections, in all and from one address."""

    total: int
    per_address: int

    @classmethod
    def of(cls, total: int, per_address: int) -> ConnectionBounds:
        """Replace zeros by defaults: half of the descriptors that this process may open, and 3/4 of the
        total.
        """
        if not total:
            total = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, MOST_CONNECTIONS)
        return cls(total, per_address or max(1, total * 3 // 4))


class ConnectionTable:
    """Open connections. Waiting ones are in the order in which they began to wait."""

    def __init__(self, bounds: ConnectionBounds) -> None:
        self._bounds = bounds
        self._by_address: Counter[str] = Counter()
        self._half_open: dict[Connection, None] = {}
        self._idle: dict[Connection, None] = {}
        self.count = 0

    def admit(self, address: str) -> bool:
        """Count a new connection if there is room for it, or a waiting one can be closed for it."""
        if self._by_address[address] >= self._bounds.per_address and not self._make_way(address):
            return False
        if self.count >= self._bounds.total and not self._make_way(None):
            return False
        self._by_address[address] += 1
        self.count += 1
        return True

    def gone(self, address: str) -> None:
        self.count -= 1
        self._by_address[address] -= 1
        if self._by_address[address] <= 0:
            del self._by_address[address]

    def half_open(self, connection: Connection) -> None:
        """Mark a connection that has not yet sent a whole head."""
        self._idle.pop(connection, None)
        self._half_open.setdefault(connection)

    def idle(self, connection: Connection) -> None:
        """Mark a connection that has had its answer and waits."""
        self._half_open.pop(connection, None)
        self._idle.setdefault(connection)

    def busy(self, connection: Connection) -> None:
        """Mark a connection that has a request, or is gone."""
        self._half_open.pop(connection, None)
        self._idle.pop(connection, None)

    def _make_way(self, address: str | None) -> bool:
        """Close the connection that has waited longest (from that address); return whether there was one."""
        for waiting in (self._half_open, self._idle):
            found = next((c for c in waiting if address is None or c.address == address), None)
            if found is not None:
                found.abort()
                return True
        return False


class Connection(HttpProtocol):
    """One connection, with deadlines and bounds where uvicorn waits without end."""

    def __init__(self, table: ConnectionTable, address: str, **uvicorns: Any) -> None:
        """Wait for `connection_made`; the connection is counted already."""
        super().__init__(**uvicorns)
        self.address = address
        self._table = table
        self._counted = True
        self._is_busy = False
        self._discards = False
        self._discarded_bytes = 0
        self._head_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # asyncio's base has any transport
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._timer)
        self._stop(self._stall)
        self._table.busy(self)
        self.count_out()
        super().connection_lost(exc)

    def count_out(self) -> None:
        """Count the connection as closed, once: it is gone, or was never made."""
        if self._counted:
            self._counted = False
            self._table.gone(self.address)

    def abort(self) -> None:
        """Drop the connection in favour of a new one; it counts as closed at once."""
        self._table.busy(self)
        self.count_out()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, a bounded piece at a time."""
        if self._discards:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > LINGER_BYTES:
                self.transport.abort()
            return
        view = memoryview(data)
        while len(view) and not self._discards and not self.transport.is_closing():
            in_head = self.cycle is None or not self.cycle.more_body
            if in_head and not self._is_busy and self._timer is None:
                self._wait_for_head()
            before = self.cycle
            piece = view[: MAX_HEAD_BYTES - self._head_bytes if in_head else BODY_PIECE_BYTES]
            view = view[len(piece) :]
            super().data_received(bytes(piece))
            if self.cycle is not before:
                self._head_came()
            elif in_head:
                self._head_bytes += len(piece)
                if self._head_bytes >= MAX_HEAD_BYTES:
                    self._refuse(_TOO_LARGE)

    def _wait_for_head(self) -> None:
        self._table.half_open(self)
        self._timer = self.loop.call_later(HEAD_S, self._refuse, _TOO_SLOW)

    def _head_came(self) -> None:
        self._stop(self._timer)
        self._timer, self._head_bytes, self._is_busy = None, 0, True
        self._table.busy(self)
        if len(getattr(self, "pipeline", ())) > MAX_PIPELINED:
            self.transport.abort()

    def on_response_complete(self) -> None:
        """Wait for another request, or for the end of a body that no handler read, to drop it."""
        super().on_response_complete()
        if self.transport.is_closing() or not self.cycle.response_complete:
            return  # or there is another one in the pipeline
        self._is_busy = False
        if self.cycle.more_body:
            self._discards = True
            self._unset_keepalive_if_required()
            self._timer = self.loop.call_later(LINGER_S, self.transport.close)
        elif self._head_bytes:
            self._unset_keepalive_if_required()
            self._wait_for_head()
        else:
            self._table.idle(self)

    def pause_writing(self) -> None:
        """Start the deadline of a client that does not read."""
        super().pause_writing()
        self._stall = self.loop.call_later(WRITE_STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the deadline of a client that reads again."""
        self._stop(self._stall)
        super().resume_writing()

    def _refuse(self, answer: bytes) -> None:
        self._discards = True
        if self._is_busy:
            self.transport.abort()  # an answer to the request before is on its way
        elif not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


class Listener:
    """Accepts the connections of one listening socket, within the bounds of a table.

    It replaces an `asyncio.Server`, which accepts thousands in one go, has no bound, and logs every failed
    attempt when descriptors run out.
    """

    def __init__(
        self,
        sock: socket.socket,
        table: ConnectionTable,
        make: Callable[[str], Connection],
        tls: ssl.SSLContext | None,
    ) -> None:
        """Start to accept. `make` returns the protocol of a connection from an address."""
        self._sock = sock
        self._table = table
        self._make = make
        self._tls = tls
        self._openings: set[asyncio.Task[None]] = set()
        self._task = asyncio.get_running_loop().create_task(self._accept(), name="connections:accept")

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._sock.fileno())
        self._task.cancel()
        for opening in self._openings:
            opening.cancel()

    async def wait_closed(self) -> None:
        """Wait until all of its connections are closed."""
        await asyncio.gather(self._task, *self._openings, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            # A connection that waits already is accepted without waiting. Others run in between, and those
            # accepted before get so far that they can be closed.
            await asyncio.sleep(0)
            try:
                sock, peer = await loop.sock_accept(self._sock)
            except OSError as error:
                if error.errno in _SCARCE:
                    log.error("connections cannot be accepted: %s", error)  # no traceback
                    await asyncio.sleep(ACCEPT_PAUSE_S)
                    continue
                if error.errno in (errno.EBADF, errno.EINVAL):
                    raise
                continue  # the client gave up before
            address = _network_of(peer)
            if not self._table.admit(address):
                log.warning("a connection from %s was refused, since %d are open", address, self._table.count)
                _turn_away(sock, tell=self._tls is None)
                continue
            opening = loop.create_task(self._open(sock, self._make(address)))
            self._openings.add(opening)
            opening.add_done_callback(self._openings.discard)

    async def _open(self, sock: socket.socket, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        timeout_s = None if self._tls is None else HANDSHAKE_S
        try:
            await loop.connect_accepted_socket(
                lambda: connection, sock, ssl=self._tls, ssl_handshake_timeout=timeout_s
            )
        except BaseException as error:
            connection.count_out()
            sock.close()
            if not isinstance(error, OSError):
                raise


def _network_of(peer: Any) -> str:
    """Return the key under which a connection is counted: an address, for IPv6 the network of a site's host
    (/64).
    """
    text = str(peer[0]).split("%")[0]
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(text)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
            return str(ipaddress.ip_network((address, 64), strict=False))
    return text


def _turn_away(sock: socket.socket, *, tell: bool) -> None:
    with sock, contextlib.suppress(OSError):
        if tell:
            sock.setblocking(False)
            sock.send(_BUSY)
            sock.shutdown(socket.SHUT_WR)


def listen(
    sockets: list[socket.socket],
    table: ConnectionTable,
    config: uvicorn.Config,
    state: ServerState,
    app_state: dict[str, Any],
) -> list[Listener]:
    """Serve uvicorn's application on sockets, within the bounds of a table."""

    def make(address: str) -> Connection:
        return Connection(table, address, config=config, server_state=state, app_state=app_state)

    return [Listener(sock, table, make, config.ssl) for sock in sockets]
