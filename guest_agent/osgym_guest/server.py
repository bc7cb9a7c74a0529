"""HTTP/1.1 server on asyncio with the functions that the guest agent needs, and bounds everywhere.

Every replica pays for this process, so there is no framework. Headers, bodies, the number of connections and
the time of each request have limits. Large bodies reach the handler as a read-only memory map of an unlinked
temporary file, so an upload does not grow the process.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from _operator import _compare_digest  # hmac's, without the megabyte of OpenSSL behind it
from collections.abc import Mapping

from osgym_guest.connection import Connection
from osgym_guest.http import HttpError, Route, Router
from osgym_protocol.codes import GuestErrorCode

MAX_CONNECTIONS = 64
IDENTITY_PATH = "/v1/identity"
BACKLOG = 128
_PAUSE_S = 1.0
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Server:
    """Serves a router on listening sockets until it is closed.

    Args:
        router: Endpoints.
        token: Bearer token that each request must carry; empty for none.
        max_connections: Number of connections; further ones are answered with 503 and closed.
    """

    def __init__(self, router: Router, *, token: str = "", max_connections: int = MAX_CONNECTIONS):
        self._router = router
        self._max_connections = max_connections
        self._connections: set[Connection] = set()
        self._listeners: list[socket.socket] = []
        self.set_token(token)

    def set_token(self, token: str) -> None:
        """Demand this token from now on, of open connections too."""
        self._unclaimed = False
        self._authorization = b"Bearer " + token.encode() if token else b""

    def await_claim(self) -> None:
        """Refuse everything but the next identity from now on, and accept that without a token."""
        self._unclaimed = True

    def listen(self, listener: socket.socket) -> None:
        """Serve a bound socket, whose ownership passes to the server, in the running event loop."""
        listener.setblocking(False)
        if listener.family != socket.AF_UNIX:  # what is accepted inherits it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Whoever connects says something: connection and request are one wakeup, not two.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
        listener.listen(BACKLOG)
        self._listeners.append(listener)
        self._accept_on(listener)

    async def close(self) -> None:
        """Stop listening, close all connections and cancel all running handlers."""
        loop = asyncio.get_running_loop()
        while self._listeners:
            listener = self._listeners.pop()
            loop.remove_reader(listener)
            listener.close()
        tasks = [task for connection in list(self._connections) if (task := connection.abort()) is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _find_route(self, method: str, path: str, headers: Mapping[str, str]) -> Route:
        """Return the endpoint of a request, if its sender may use it.

        Raises:
            HttpError: 401 without the token, or while there is none; 404 and 405 as `Router.find` documents.
        """
        if self._unclaimed:
            if method != "POST" or path != IDENTITY_PATH:
                raise HttpError(401, GuestErrorCode.UNAUTHORIZED, "this virtual machine has no identity yet")
        elif self._authorization:
            given = headers.get("authorization", "").encode()
            if not _compare_digest(given, self._authorization):
                raise HttpError(401, GuestErrorCode.UNAUTHORIZED, "a bearer token is required")
        return self._router.find(method, path)

    def _accept_on(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            # `accept` without the socket object around it.
            fd, _ = listener._accept()  # type: ignore[attr-defined]  # the stub has no _accept
        except OSError as exc:
            if exc.errno in _NO_ROOM:  # it stays readable
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                loop.call_later(_PAUSE_S, self._accept_on, listener)
            return
        if len(self._connections) >= 2 * self._max_connections:  # even to tell them so takes room
            os.close(fd)
            return
        os.set_blocking(fd, False)
        connection = Connection(fd, self._find_route, self._connections.discard)
        self._connections.add(connection)
        if len(self._connections) > self._max_connections:
            connection.refuse(
                HttpError(503, GuestErrorCode.TOO_MANY_CONNECTIONS, "too many open connections")
            )
        else:
            connection.on_readable()
