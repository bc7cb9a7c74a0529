"""The door of a replica to the proxy: nothing passes it once it is closed."""

from __future__ import annotations

import asyncio
import socket

import pytest

from osgym_host.runtimes.web import door as door_module
from osgym_host.runtimes.web.door import Door, Places, Turns


class Waiting:
    """Serves for ever."""

    def __init__(self) -> None:
        self.serving = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, turns: Turns) -> None:
        """Wait."""
        self.serving += 1
        await asyncio.Event().wait()


async def test_a_closed_door_serves_nobody() -> None:
    """Neither who was served nor who was accepted just before; both places are free again."""
    places, handler = Places(10), Waiting()
    door = Door(handler, places)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    address = listener.getsockname()
    await door.open(listener)
    reader, writer = await asyncio.open_connection(*address)
    async with asyncio.timeout(5):
        while door.connections == 0:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
    assert places.free == 9
    await door.close()
    async with asyncio.timeout(5):
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            writer.transport.abort()
    writer.close()
    ours, theirs = socket.socketpair()
    with theirs:
        late = await asyncio.open_connection(sock=ours)
        await door._accepted(*late)
        assert late[1].is_closing()
    assert (handler.serving, door.connections, places.free) == (1, 0, 10)


async def test_a_door_that_was_closed_while_it_opened_stays_closed() -> None:
    """Nobody is accepted, and the replica's socket is let go."""
    door = Door(Waiting(), Places(10))
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    await door.close()
    await door.open(listener)
    assert listener.fileno() == -1


async def test_every_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its handler does with it."""
    monkeypatch.setattr(door_module, "TOTAL_S", 0.05)
    door = Door(Waiting(), Places(10))
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    await door.open(listener)
    try:
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        async with asyncio.timeout(5):
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                writer.transport.abort()
        writer.close()
    finally:
        await door.close()
