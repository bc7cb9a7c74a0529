"""A connection to the debugging protocol of a browser in a replica, by way of the guest agent's tunnel.

Every answer is the replica's: as
long as it is allowed to be, parsed a little at a time, and never run.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import h11

from osgym_host.tasks.getter_plugin import (
    GuestClient,
    GuestError,
    GuestRefused,
    GuestTunnel,
    HttpResponse,
    large_json_object,
)
from osgym_osworld.browser.errors import BrowserClosed, BrowserProblem
from osgym_protocol.codes import GuestErrorCode

if TYPE_CHECKING:
    from osgym_osworld.browser.websocket import WebSocket

CONNECT_S = 20.0
MAX_LIST_BYTES = 256 * 1024
_SOCKET_PATH = re.compile(r"ws://[^/\s]+(/devtools/browser/[A-Za-z0-9-]{1,64})")


@contextlib.asynccontextmanager
async def tunnel(guest: GuestClient, port: int) -> AsyncIterator[GuestTunnel]:
    """Yield a connection to a port of the replica.

    Raises:
        BrowserClosed: Nobody listens.
        GuestError: The guest agent offers no tunnels, or does not answer.
    """
    try:
        opened = await guest.reach.tunnel(port)
    except GuestRefused as error:
        if error.code == GuestErrorCode.PORT_CLOSED:
            raise BrowserClosed(f"no browser listens at port {port} for debugging") from error
        raise
    try:
        yield opened
    finally:
        opened.close()


async def ask(guest: GuestClient, port: int, path: str) -> bytes:
    """GET a path of the browser's own HTTP server.

    Raises:
        BrowserProblem: No server listens there, or its answer is malformed.
        GuestError: The guest agent does not answer.
    """
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=16 * 1024)
    head = h11.Request(method="GET", target=path, headers=[("Host", f"localhost:{port}")])
    body = b""
    async with tunnel(guest, port) as opened:
        try:
            await opened.send(http.send(head) + http.send(h11.EndOfMessage()))
            while True:
                event = http.next_event()
                if event is h11.NEED_DATA:
                    http.receive_data(await opened.receive())
                elif isinstance(event, h11.Response) and event.status_code != 200:
                    raise BrowserProblem(f"the browser answers {path} with status {event.status_code}")
                elif isinstance(event, h11.Data):
                    body += event.data
                    if len(body) > MAX_LIST_BYTES:
                        raise BrowserProblem(f"the answer to {path} is larger than {MAX_LIST_BYTES} bytes")
                elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                    return body
        except (OSError, h11.ProtocolError) as error:
            raise BrowserProblem(f"the browser did not answer {path}: {error}") from error


class Devtools:
    """One connection to a browser. One call at a time."""

    def __init__(self, socket: WebSocket) -> None:
        """Use `connect`."""
        self._socket = socket
        self._ids = itertools.count(1)

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(cls, guest: GuestClient, port: int) -> AsyncIterator[Devtools]:
        """Connect to the browser at a debugging port, within `CONNECT_S`.

        Raises:
            BrowserProblem: As `ask`, or it takes longer than `CONNECT_S`.
            GuestError: The guest agent does not answer.
        """
        from osgym_osworld.browser.websocket import WebSocket  # for tasks with a browser only

        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(CONNECT_S):
                    version = await read_json(await ask(guest, port, "/json/version"))
                    found = _SOCKET_PATH.fullmatch(str(version.get("webSocketDebuggerUrl")))
                    if found is None:
                        raise BrowserProblem("the program at the debugging port is not a browser")
                    opened = await stack.enter_async_context(tunnel(guest, port))
                    socket = await WebSocket.connect(opened, f"ws://localhost:{port}{found[1]}")
            except TimeoutError as error:
                raise BrowserProblem(
                    f"the browser did not accept a connection within {CONNECT_S:g} s"
                ) from error
            yield cls(socket)

    async def call(
        self, method: str, params: Mapping[str, Any] | None = None, *, session: str | None = None
    ) -> dict[str, Any]:
        """Call a method; return its result. The caller sets the deadline.

        Args:
            session: Of a page that was attached to.

        Raises:
            BrowserProblem: It is refused, or the connection breaks.
        """
        number = next(self._ids)
        order: dict[str, Any] = {"id": number, "method": method, "params": dict(params or {})}
        if session is not None:
            order["sessionId"] = session
        await self._socket.send(json.dumps(order).encode())
        while True:
            said = await read_json(await self._socket.receive())
            if said.get("id") != number:
                continue
            result, error = said.get("result"), said.get("error")
            if isinstance(result, dict):
                return result
            why = error.get("message") if isinstance(error, dict) else None
            raise BrowserProblem(f"the browser refuses {method}: {str(why)[:200]}")

    async def event(self, method: str, session: str) -> dict[str, Any]:
        """Wait for an event of a page; return what it says. The caller sets the deadline.

        Raises:
            BrowserProblem: The connection breaks.
        """
        while True:
            said = await read_json(await self._socket.receive())
            if said.get("method") == method and said.get("sessionId") == session:
                params = said.get("params")
                return params if isinstance(params, dict) else {}


async def read_json(data: bytes) -> dict[str, Any]:
    """Parse a JSON object of the browser.

    Raises:
        BrowserProblem: It is none, or large by other things than a few long texts.
    """
    try:
        return await large_json_object(HttpResponse(200, {}, data))
    except GuestError as error:
        raise BrowserProblem(f"the browser's answer is malformed: {error}") from error
