"""Connection to a message bus that keeps many calls in flight."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from osgym_guest.osworld.a11y import wire
from osgym_guest.urlencoded import unquote

CONNECT_TIMEOUT_S = 3.0
_BUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")


class BusError(Exception):
    """Error answer of the bus, or of the peer behind it.

    Attributes:
        name: D-Bus name of the error.
    """

    def __init__(self, name: str, message: str):
        super().__init__(f"{name}: {message}")
        self.name = name


class BusClosed(ConnectionError):
    """The connection to the bus is lost."""


class Bus(asyncio.Protocol):
    """One authenticated connection, made by `connect`."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._serial = 0
        self._waiting: dict[int, asyncio.Future[tuple[Any, ...]]] = {}
        self._lines: asyncio.Queue[bytes] | None = asyncio.Queue()
        self.closed = False

    # asyncio.Protocol
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a stream transport is needed")
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Split received bytes into lines (while authenticating) or messages."""
        self._buffer += data
        if self._lines is not None:
            while b"\r\n" in self._buffer:
                line, _, rest = bytes(self._buffer).partition(b"\r\n")
                self._buffer = bytearray(rest)
                self._lines.put_nowait(line)
            return
        at = 0
        try:
            with memoryview(self._buffer) as view:
                while size := wire.message_size(view[at:]):
                    if at + size > len(view):
                        break
                    self._dispatch(wire.decode(bytes(view[at : at + size])))
                    at += size
        except wire.WireError:
            self.close()
            return
        if at:
            del self._buffer[:at]

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all pending calls."""
        self.closed = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(BusClosed("the connection to the bus was lost"))
        self._waiting.clear()
        if self._lines is not None:
            self._lines.put_nowait(b"")

    def _dispatch(self, message: wire.BusMessage) -> None:
        future = self._waiting.pop(message.reply_serial, None) if message.reply_serial else None
        if future is None or future.done():
            return
        if message.kind == wire.METHOD_RETURN:
            future.set_result(message.body)
        else:
            text = message.body[0] if message.body and isinstance(message.body[0], str) else ""
            future.set_exception(BusError(message.error_name, text))

    def call(
        self, destination: str, path: str, interface: str, member: str, signature: str = "", *args: Any
    ) -> asyncio.Future[tuple[Any, ...]]:
        """Send a call and return the future of the reply's arguments.

        The caller awaits the future with a deadline of its own; the answer to a cancelled one is dropped.

        Raises (from the future):
            BusError: The reply is an error.
            BusClosed: The connection is lost.
        """
        future: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()
        if self.closed or self._transport is None:
            future.set_exception(BusClosed("the connection to the bus is closed"))
            return future
        self._serial += 1
        self._waiting[self._serial] = future
        self._transport.write(
            wire.encode_call(self._serial, destination, path, interface, member, signature, args)
        )
        return future

    async def process_id(self, bus_name: str) -> int | None:
        """Return the process behind a name on this bus; None when it is gone or unknown."""
        call = self.call(*_BUS, "GetConnectionUnixProcessID", "s", bus_name)
        try:
            (pid,) = await asyncio.wait_for(call, CONNECT_TIMEOUT_S)
        except (BusError, asyncio.TimeoutError, ValueError):
            return None
        return int(pid)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._transport is not None:
            self._transport.close()

    async def authenticate(self) -> None:
        """Log in as the current user and take a name on the bus. The caller bounds the time."""
        lines = self._lines
        if self._transport is None or lines is None:
            raise BusClosed("not connected")
        uid = str(os.getuid()).encode().hex()
        self._transport.write(f"\0AUTH EXTERNAL {uid}\r\n".encode())
        answer = await lines.get()
        if not answer.startswith(b"OK "):
            raise BusClosed(f"the bus refused us: {answer.decode('ascii', 'replace')!r}")
        self._lines = None
        self._transport.write(b"BEGIN\r\n")
        await self.call(*_BUS, "Hello")


async def connect(address: str) -> Bus:
    """Connect to the first usable unix socket of a D-Bus address.

    Raises:
        BusClosed: None of them can be reached within `CONNECT_TIMEOUT_S`.
    """
    failure = "no unix socket in it"
    for part in address.split(";"):
        path = socket_path(part)
        if path is None:
            continue
        try:
            bus = await asyncio.wait_for(_open(path), CONNECT_TIMEOUT_S)
        except (OSError, asyncio.TimeoutError, BusError) as exc:
            failure = str(exc) or type(exc).__name__
            continue
        return bus
    raise BusClosed(f"cannot connect to {address!r}: {failure}")


async def _open(path: str) -> Bus:
    _, bus = await asyncio.get_running_loop().create_unix_connection(Bus, path)
    try:
        await bus.authenticate()
    except BaseException:
        bus.close()
        raise
    return bus


def socket_path(address: str) -> str | None:
    """Return the socket of one D-Bus address, with a leading NUL if it is abstract; None if it has none."""
    transport, _, rest = address.partition(":")
    if transport != "unix":
        return None
    for pair in rest.split(","):
        key, _, value = pair.partition("=")
        if key == "path":
            return unquote(value)
        if key == "abstract":
            return "\0" + unquote(value)
    return None


async def accessibility_bus() -> Bus:
    """Connect to the accessibility bus, which the session bus names (and starts).

    Raises:
        BusClosed: There is no session bus, or no accessibility bus behind it.
    """
    address = os.environ.get("DBUS_SESSION_BUS_ADDRESS", "")
    if not address:
        raise BusClosed("DBUS_SESSION_BUS_ADDRESS is not set")
    session = await connect(address)
    try:
        call = session.call("org.a11y.Bus", "/org/a11y/bus", "org.a11y.Bus", "GetAddress")
        (found,) = await asyncio.wait_for(call, CONNECT_TIMEOUT_S)
    except (BusError, asyncio.TimeoutError, ValueError) as exc:
        raise BusClosed(f"the session has no accessibility bus: {exc}") from exc
    finally:
        session.close()
    return await connect(str(found))
