"""A replica's listener for the proxy: nothing passes it once it is closed."""

from __future__ import annotations

import asyncio
import socket

import pytest

from osgym_host.runtimes.web import listener as listener_module
from osgym_host.runtimes.web.listener import ConnectionBudget, ProxyListener, ReplicaLimits


class Waiting:
    """Serves for ever."""

    def __init__(self) -> None:
        self.serving = 0

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: ReplicaLimits
    ) -> None:
        """Wait."""
        self.serving += 1
        await asyncio.Event().wait()


async def test_a_closed_listener_serves_nobody() -> None:
    """Neither who was served nor who was accepted just before; both are counted as free again."""
    budget, handler = ConnectionBudget(10), Waiting()
    listener = ProxyListener(handler, budget)
    sock = socket.create_server(("127.0.0.1", 0))
    sock.setblocking(False)
    address = sock.getsockname()
    await listener.open(sock)
    reader, writer = await asyncio.open_connection(*address)
    async with asyncio.timeout(5):
        while listener.connections == 0:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
    assert budget.free == 9
    await listener.close()
    async with asyncio.timeout(5):
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            writer.transport.abort()
    writer.close()
    ours, theirs = socket.socketpair()
    with theirs:
        late = await asyncio.open_connection(sock=ours)
        await listener._accepted(*late)
        assert late[1].is_closing()
    assert (handler.serving, listener.connections, budget.free) == (1, 0, 10)


async def test_a_listener_that_was_closed_while_it_opened_stays_closed() -> None:
    """Nobody is accepted, and the replica's socket is let go."""
    listener = ProxyListener(Waiting(), ConnectionBudget(10))
    sock = socket.create_server(("127.0.0.1", 0))
    sock.setblocking(False)
    await listener.close()
    await listener.open(sock)
    assert sock.fileno() == -1


async def test_every_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its handler does with it."""
    monkeypatch.setattr(listener_module, "TOTAL_S", 0.05)
    listener = ProxyListener(Waiting(), ConnectionBudget(10))
    sock = socket.create_server(("127.0.0.1", 0))
    sock.setblocking(False)
    await listener.open(sock)
    try:
        reader, writer = await asyncio.open_connection(*sock.getsockname())
        async with asyncio.timeout(5):
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                writer.transport.abort()
        writer.close()
    finally:
        await listener.close()
