"""Requests of the X protocol that setup steps need: reading properties, messages to the window manager.

The agent's capture and input have a native connection of their own, made for speed. This one serves the few
requests of an episode's setup steps, and costs nothing until then.

It is not python-xlib's (0.33): that one blocks, and the caller is the agent's event loop; its import alone
adds 1.7 MiB of memory and 25 ms of CPU to every agent that is asked for a window.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path
from typing import NamedTuple

SOCKET_DIR = "/tmp/.X11-unix"  # noqa: S108  (where every X server has its sockets)
CONNECT_TIMEOUT_S = 3.0
REPLY_TIMEOUT_S = 5.0
MAX_REPLY_BYTES = 4 * 1024 * 1024
MAX_PROPERTY_WORDS = 64 * 1024
SUBSTRUCTURE_MASK = 0x180000  # SubstructureNotify and SubstructureRedirect

_GET_ATTRIBUTES, _QUERY_TREE, _QUERY_EXTENSION = 3, 15, 98
_GET_GEOMETRY, _MAP_WINDOW, _CONFIGURE_WINDOW, _INTERN_ATOM = 14, 8, 12, 16
_GET_PROPERTY, _SEND_EVENT, _TRANSLATE_COORDINATES, _GET_INPUT_FOCUS = 20, 25, 40, 43
_CLIENT_MESSAGE = 33
_VIEWABLE, _INPUT_ONLY = 2, 2
_QUERY_CLIENT_IDS, _LOCAL_PID_MASK = 4, 2  # of the extension X-Resource
_COOKIE = b"MIT-MAGIC-COOKIE-1"


class XError(Exception):
    """The X server cannot be reached, or refused a request."""


class WindowAttributes(NamedTuple):
    """Attributes that the X server keeps of a window.

    Attributes:
        viewable: It and all its ancestors are mapped.
        override_redirect: The window manager leaves it alone, as it does menus.
        input_only: It has no pixels.
    """

    viewable: bool
    override_redirect: bool
    input_only: bool


class XConnection(asyncio.Protocol):
    """One connection to the X server, made by `connect`.

    Attributes:
        root: Root window.
        closed: The connection is lost.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._sequence = 0
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._setup: asyncio.Future[bytes] | None = asyncio.get_running_loop().create_future()
        self._atoms: dict[str, int] = {}
        self._resource_opcode: int | None = None
        self.root = 0
        self.closed = False

    # asyncio.Protocol
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a stream transport is needed")
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Split received bytes into the setup answer, replies, errors and events."""
        self._buffer += data
        while len(self._buffer) >= 32:
            if self._setup is not None:
                size = 8 + 4 * struct.unpack_from("<H", self._buffer, 6)[0]
            else:
                size = 32
                if self._buffer[0] == 1:
                    size += 4 * struct.unpack_from("<I", self._buffer, 4)[0]
            if size > MAX_REPLY_BYTES:
                self.close()
                return
            if len(self._buffer) < size:
                return
            packet = bytes(self._buffer[:size])
            del self._buffer[:size]
            self._dispatch(packet)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all pending requests."""
        self.closed = True
        for future in [*self._waiting.values(), *([self._setup] if self._setup else [])]:
            if not future.done():
                future.set_exception(XError("the connection to the X server was lost"))
        self._waiting.clear()

    def _dispatch(self, packet: bytes) -> None:
        if self._setup is not None:
            if not self._setup.done():
                self._setup.set_result(packet)
            self._setup = None
            return
        if packet[0] > 1:
            return  # an event
        future = self._waiting.pop(struct.unpack_from("<H", packet, 2)[0], None)
        if future is None or future.done():
            return
        if packet[0] == 1:
            future.set_result(packet)
        else:
            future.set_exception(XError(f"X error {packet[1]} of request {packet[10]}"))

    # requests
    def _send(self, opcode: int, detail: int, body: bytes) -> int:
        if self._transport is None or self.closed:
            raise XError("the connection to the X server is closed")
        body += b"\0" * (-len(body) % 4)
        self._transport.write(struct.pack("<BBH", opcode, detail, 1 + len(body) // 4) + body)
        self._sequence = (self._sequence + 1) & 0xFFFF
        return self._sequence

    async def _ask(self, opcode: int, detail: int, body: bytes) -> bytes:
        sequence = self._send(opcode, detail, body)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[sequence] = future
        try:
            return await asyncio.wait_for(future, REPLY_TIMEOUT_S)
        except asyncio.TimeoutError as exc:
            self.close()
            raise XError("the X server does not answer") from exc
        finally:
            self._waiting.pop(sequence, None)

    async def atom(self, name: str) -> int:
        known = self._atoms.get(name)
        if known is None:
            raw = name.encode("latin-1")
            reply = await self._ask(_INTERN_ATOM, 0, struct.pack("<HH", len(raw), 0) + raw)
            known = self._atoms[name] = struct.unpack_from("<I", reply, 8)[0]
        return known

    async def property(self, window: int, name: str) -> bytes:
        """Return the value of a window's property; empty when it has none.

        Raises:
            XError: There is no such window (any more).
        """
        return (await self._typed_property(window, name))[1]

    async def _typed_property(self, window: int, name: str) -> tuple[int, bytes]:
        body = struct.pack("<IIIII", window, await self.atom(name), 0, 0, MAX_PROPERTY_WORDS)
        reply = await self._ask(_GET_PROPERTY, 0, body)
        kind, _, length = struct.unpack_from("<III", reply, 8)
        return kind, reply[32 : 32 + length * (reply[1] // 8)]

    async def title(self, window: int) -> str:
        """Return the title of a window: the newer of its properties, else the old one in the encoding that it
        names.

        Raises:
            XError: There is no such window (any more).
        """
        title = await self.property(window, "_NET_WM_NAME")
        if title:
            return title.decode("utf-8", "replace")
        kind, old = await self._typed_property(window, "WM_NAME")
        if kind == await self.atom("COMPOUND_TEXT"):
            # the window manager has decoded it for its title bar
            shown = await self.property(window, "_NET_WM_VISIBLE_NAME")
            if shown:
                return shown.decode("utf-8", "replace")
        if kind == await self.atom("UTF8_STRING"):
            return old.decode("utf-8", "replace")
        return old.decode("latin-1")

    async def numbers(self, window: int, name: str) -> list[int]:
        """Return a property of 32-bit numbers."""
        value = await self.property(window, name)
        return list(struct.unpack(f"<{len(value) // 4}I", value[: len(value) // 4 * 4]))

    async def size(self, window: int) -> tuple[int, int]:
        """Return width and height of a window, without its frame."""
        reply = await self._ask(_GET_GEOMETRY, 0, struct.pack("<I", window))
        width, height = struct.unpack_from("<HH", reply, 16)
        return width, height

    async def place(self, window: int) -> tuple[int, int]:
        """Return the upper left corner of a window on the screen, without its frame."""
        reply = await self._ask(_TRANSLATE_COORDINATES, 0, struct.pack("<IIhh", window, self.root, 0, 0))
        left, top = struct.unpack_from("<hh", reply, 12)
        return left, top

    async def children(self, window: int) -> list[int]:
        """Return the windows directly inside a window, the lowest first."""
        reply = await self._ask(_QUERY_TREE, 0, struct.pack("<I", window))
        (count,) = struct.unpack_from("<H", reply, 16)
        return list(struct.unpack_from(f"<{count}I", reply, 32))

    async def attributes(self, window: int) -> WindowAttributes:
        """Return the attributes that the server keeps of a window."""
        reply = await self._ask(_GET_ATTRIBUTES, 0, struct.pack("<I", window))
        return WindowAttributes(reply[26] == _VIEWABLE, bool(reply[27]), reply[12] == _INPUT_ONLY)

    def _server_is_seen(self) -> bool:
        """Return whether the server is in a visible PID namespace; else its numbers are useless."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is None:
            return False
        return bool(struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])

    async def client_pid(self, window: int) -> int | None:
        """Return the process whose connection made a window, as the server saw it connect.

        None on a server without X-Resource 1.2, on one above our PID namespace, and for a connection that is
        not local.
        """
        if not self._server_is_seen():
            return None
        if self._resource_opcode is None:
            name = b"X-Resource"
            found = await self._ask(_QUERY_EXTENSION, 0, struct.pack("<HH", len(name), 0) + name)
            self._resource_opcode = found[9] if found[8] else 0
        if not self._resource_opcode:
            return None
        body = struct.pack("<III", 1, window, _LOCAL_PID_MASK)
        reply = await self._ask(self._resource_opcode, _QUERY_CLIENT_IDS, body)
        if struct.unpack_from("<I", reply, 8)[0] == 0 or len(reply) < 48:
            return None
        return int(struct.unpack_from("<I", reply, 44)[0])

    async def message(self, window: int, kind: str, *data: int) -> None:
        """Send a client message about `window` to the window manager."""
        words = (*data, 0, 0, 0, 0, 0)[:5]
        event = struct.pack("<BBHII5I", _CLIENT_MESSAGE, 32, 0, window, await self.atom(kind), *words)
        self._send(_SEND_EVENT, 0, struct.pack("<II", self.root, SUBSTRUCTURE_MASK) + event)

    async def tell_client(self, window: int, kind: str) -> None:
        """Send a client message without data to the program that made a window, past the window manager.

        Returns when the server has passed it on.
        """
        event = struct.pack("<BBHII20x", _CLIENT_MESSAGE, 8, 0, window, await self.atom(kind))
        self._send(_SEND_EVENT, 0, struct.pack("<II", window, 0) + event)
        await self._ask(_GET_INPUT_FOCUS, 0, b"")

    async def map_raised(self, window: int) -> None:
        """Show a window above the others."""
        self._send(_CONFIGURE_WINDOW, 0, struct.pack("<IHHI", window, 0x40, 0, 0))
        self._send(_MAP_WINDOW, 0, struct.pack("<I", window))
        await self._ask(_GET_INPUT_FOCUS, 0, b"")

    async def set_up(self, name: bytes, data: bytes) -> None:
        """Open the connection with an authorization. The caller bounds the time."""
        if self._transport is None or self._setup is None:
            raise XError("not connected")
        head = struct.pack("<BxHHHHxx", 0x6C, 11, 0, len(name), len(data))
        self._transport.write(head + name + b"\0" * (-len(name) % 4) + data + b"\0" * (-len(data) % 4))
        answer = await self._setup
        if answer[0] != 1:
            raise XError(f"the X server refused: {answer[8 : 8 + answer[1]].decode('latin-1')}")
        (vendor,) = struct.unpack_from("<H", answer, 24)
        (self.root,) = struct.unpack_from("<I", answer, 40 + vendor + (-vendor % 4) + 8 * answer[29])

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._transport is not None:
            self._transport.close()


async def connect(display: str, xauthority: Path) -> XConnection:
    """Connect to a local display such as ``:0``.

    Raises:
        XError: No X server listens, it refuses the connection, or it does not answer within
            `CONNECT_TIMEOUT_S`.
    """
    host, _, number = display.rpartition(":")
    number = number.partition(".")[0]
    if host not in ("", "unix") or not number.isdigit():
        raise XError(f"not a local display: {display!r}")
    cookie = _cookie(xauthority, number.encode())
    failure = ""
    for prefix in (
        "\0",
        "",
    ):  # a file can be replaced by another server's, the abstract name of one that runs cannot
        try:
            path = f"{prefix}{SOCKET_DIR}/X{number}"
            return await asyncio.wait_for(_open(path, cookie), CONNECT_TIMEOUT_S)
        except (OSError, asyncio.TimeoutError) as exc:
            failure = str(exc) or "it does not answer"
    raise XError(f"cannot reach display {display!r}: {failure}")


async def _open(path: str, cookie: bytes) -> XConnection:
    _, connection = await asyncio.get_running_loop().create_unix_connection(XConnection, path)
    try:
        await connection.set_up(_COOKIE if cookie else b"", cookie)
    except BaseException:
        connection.close()
        raise
    return connection


def _cookie(xauthority: Path, number: bytes) -> bytes:
    """Return the cookie for a display number in an Xauthority file; empty when there is none."""
    try:
        data = xauthority.read_bytes()
    except OSError:
        return b""
    at = 0
    while at + 2 < len(data):
        at += 2  # the address family: any will do for a local display
        fields: list[bytes] = []
        for _ in range(4):
            if at + 2 > len(data):
                return b""
            (length,) = struct.unpack_from(">H", data, at)
            fields.append(data[at + 2 : at + 2 + length])
            at += 2 + length
        if fields[2] == _COOKIE and fields[1] in (b"", number):
            return fields[3]
    return b""


def default_xauthority(home: Path, configured: str | None) -> Path:
    """Return the file of the session's cookies."""
    return Path(configured) if configured else home / ".Xauthority"
