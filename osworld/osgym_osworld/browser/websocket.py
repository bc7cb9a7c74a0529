"""A WebSocket over a tunnel into a replica, by the protocol classes of `websockets`, which do no I/O."""

from __future__ import annotations

from collections import deque

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from osgym_host.tasks.getter_plugin import GuestTunnel
from osgym_osworld.browser.errors import BrowserProblem

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
MAX_SESSION_BYTES = 32 * 1024 * 1024
"""Largest number of bytes that one connection may receive."""
MAX_MESSAGES = 20_000
MAX_FRAGMENTS = 20_000
_CONTENT = frozenset({Opcode.TEXT, Opcode.CONT})


class WebSocket:
    """One connection. Deadlines are the caller's."""

    def __init__(self, tunnel: GuestTunnel, protocol: ClientProtocol) -> None:
        """Use `connect`."""
        self._tunnel = tunnel
        self._protocol = protocol
        self._parts: list[bytes] = []
        self._whole: deque[bytes] = deque()
        self._bytes_left = MAX_SESSION_BYTES
        self._messages_left = MAX_MESSAGES

    @classmethod
    async def connect(cls, tunnel: GuestTunnel, url: str) -> WebSocket:
        """Open the connection.

        Raises:
            BrowserProblem: The other side speaks no WebSocket, or hangs up.
        """
        protocol = ClientProtocol(parse_uri(url), max_size=MAX_MESSAGE_BYTES)
        socket = cls(tunnel, protocol)
        protocol.send_request(protocol.connect())
        await socket._flush()
        while protocol.state is State.CONNECTING:
            await socket._take()
        return socket

    async def send(self, message: bytes) -> None:
        """Send a text message.

        Raises:
            BrowserProblem: The connection broke.
        """
        if self._protocol.state is not State.OPEN:
            raise BrowserProblem("the browser closed the connection")
        self._protocol.send_text(message)
        await self._flush()

    async def receive(self) -> bytes:
        """Return the next message, at most `MAX_MESSAGE_BYTES`.

        Raises:
            BrowserProblem: The connection broke, or the other side says too much.
        """
        while not self._whole:
            await self._take()
        self._messages_left -= 1
        if self._messages_left < 0:
            raise BrowserProblem("the browser sends too many messages")
        return self._whole.popleft()

    async def _take(self) -> None:
        """Store received bytes; keep the complete messages."""
        try:
            data = await self._tunnel.receive()
        except OSError as error:
            raise BrowserProblem(f"the connection to the browser broke: {error}") from error
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise BrowserProblem(f"the browser sends more than {MAX_SESSION_BYTES} bytes")
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode in _CONTENT:
                self._parts.append(bytes(event.data))
                if event.fin:
                    self._whole.append(b"".join(self._parts))
                    self._parts = []
        if len(self._parts) > MAX_FRAGMENTS:
            raise BrowserProblem("the browser sends its answer in too many pieces")
        broken = self._protocol.handshake_exc or self._protocol.parser_exc
        if broken is not None and not self._whole:
            raise BrowserProblem(f"the browser does not speak WebSocket: {broken}") from broken
        if self._protocol.state is not State.OPEN and self._protocol.state is not State.CONNECTING:
            if not self._whole:
                raise BrowserProblem("the browser closed the connection")
            return
        await self._flush()

    async def _flush(self) -> None:
        """Send all pending data, answers to pings included."""
        try:
            for data in self._protocol.data_to_send():
                if data:
                    await self._tunnel.send(data)
        except OSError as error:
            raise BrowserProblem(f"the connection to the browser broke: {error}") from error
