"""``/v1/reach/tunnel``: turns the connection into one to a port of this desktop, byte for byte.

Port 5000 is OSWorld's server, as in its own images. This agent serves its endpoints to the holder of the
tunnel only; in the desktop nothing listens at that port.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

from osgym_guest.connection import Connection
from osgym_guest.http import HttpError, Request, Response, Router, bad
from osgym_guest.osworld import add_endpoints
from osgym_guest.osworld.context import OsworldContext
from osgym_guest.reach.context import ReachContext
from osgym_protocol.codec import WireFormatError, known_fields
from osgym_protocol.codes import GuestErrorCode
from osgym_protocol.guest_api import DEFAULT_PORT
from osgym_protocol.limits import MAX_TUNNELS

CONNECT_S = 5.0
PIECE_BYTES = 64 * 1024
LOOPBACK = ("127.0.0.1", "::1")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def tunnel(context: ReachContext, request: Request) -> Response:
    """Connect to the port. All bytes after the answer belong to it."""
    try:
        body = known_fields(request.json_object(), ("port",), request.path)
    except WireFormatError as exc:
        raise bad(str(exc)) from exc
    port = body.get("port")
    if type(port) is not int or not 1 <= port <= 65535:
        raise bad("port must be a number from 1 to 65535")
    tunnels = context.kept(Tunnels, Tunnels)
    if tunnels.count >= 2 * MAX_TUNNELS:
        raise HttpError(503, GuestErrorCode.BUSY, "too many tunnels")
    headers = {"Upgrade": "osgym-tunnel"}
    if port == DEFAULT_PORT:  # also where a program of the desktop listens, which could answer in its place
        return Response(101, headers, take_over=lambda fd, ahead: tunnels.serve(fd, ahead, context.desktop))
    inner = await _connect(port)
    return Response(101, headers, take_over=lambda fd, ahead: tunnels.begin(fd, ahead, inner))


async def _connect(port: int) -> Streams:
    failure: Exception | None = None
    for host in LOOPBACK:
        try:
            opened = asyncio.open_connection(host, port, limit=PIECE_BYTES)
            return await asyncio.wait_for(opened, CONNECT_S)
        except (OSError, asyncio.TimeoutError) as exc:
            failure = failure or exc
    text = f"no program answers at port {port}: {failure or 'no answer'}"
    raise HttpError(409, GuestErrorCode.PORT_CLOSED, text)


class Tunnels:
    """Open tunnels."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._served: set[Connection] = set()
        self._osworld: Router | None = None

    @property
    def count(self) -> int:
        return len(self._running) + len(self._served)

    def serve(self, fd: int, ahead: bytes, desktop: OsworldContext) -> None:
        """Serve OSWorld's endpoints only, over a connection whose socket passes to this object."""
        if self._osworld is None:
            self._osworld = Router()
            add_endpoints(self._osworld, desktop)
        router = self._osworld
        connection = Connection(fd, lambda method, path, _: router.find(method, path), self._served.discard)
        self._served.add(connection)
        connection.begin(ahead)

    def begin(self, fd: int, ahead: bytes, inner: Streams) -> None:
        """Forward between a connection, whose socket passes to this object, and a port.

        Args:
            ahead: Bytes that were received already.
        """
        task = asyncio.ensure_future(_pass_on(fd, ahead, inner))
        self._running.add(task)
        task.add_done_callback(self._running.discard)


async def _pass_on(fd: int, ahead: bytes, inner: Streams) -> None:
    sock = socket.socket(fileno=fd)
    inner_reader, inner_writer = inner
    outer_writer: asyncio.StreamWriter | None = None
    try:
        is_unix = sock.family == socket.AF_UNIX
        opened = asyncio.open_unix_connection if is_unix else asyncio.open_connection
        outer_reader, outer_writer = await opened(sock=sock, limit=PIECE_BYTES)
        if ahead:
            inner_writer.write(ahead)
        both = [_pump(outer_reader, inner_writer), _pump(inner_reader, outer_writer)]
        with contextlib.suppress(OSError):  # one side broke: so does the other
            await asyncio.gather(*both)
    finally:
        inner_writer.close()
        if outer_writer is None:
            sock.close()
        else:
            outer_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward until the end of one direction, as fast as the receiver accepts it."""
    while data := await reader.read(PIECE_BYTES):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
