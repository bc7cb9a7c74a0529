"""Connections are handed out one call at a time, and closed when nobody needs them."""

from __future__ import annotations

import asyncio

import httpx

from osgym_sdk._transport.pool import ConnectionPool


class Counting(httpx.AsyncBaseTransport):
    """Counts how many there are, and answers when told to."""

    def __init__(self) -> None:
        self.closed = False
        self.busy = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.busy += 1
        assert self.busy == 1
        await asyncio.sleep(0.01)
        self.busy -= 1
        return httpx.Response(200)

    async def aclose(self) -> None:
        self.closed = True


class Rig:
    """A pool with a clock that stands still."""

    def __init__(self, limit: int) -> None:
        self.made: list[Counting] = []
        self.now_s = 0.0
        self.pool = ConnectionPool(self._make, limit, 60.0, lambda: self.now_s)

    def _make(self) -> Counting:
        self.made.append(Counting())
        return self.made[-1]

    async def call(self) -> None:
        async with self.pool.send(httpx.Request("GET", "http://h/")) as response:
            assert response.status_code == 200


async def test_calls_one_after_the_other_share_a_connection() -> None:
    """No new connection is made while one is idle."""
    rig = Rig(5)
    for _ in range(4):
        await rig.call()
    assert (len(rig.made), rig.pool.idle) == (1, 1)


async def test_calls_at_the_same_time_have_their_own_up_to_the_limit() -> None:
    """Never two calls on one connection, never more connections than allowed, nobody is turned away."""
    rig = Rig(3)
    await asyncio.gather(*(rig.call() for _ in range(10)))
    assert (len(rig.made), rig.pool.idle) == (3, 3)


async def test_the_connection_of_a_cancelled_call_is_thrown_away() -> None:
    """What was cut in its middle is not used again, and its place is free at once."""
    rig = Rig(1)
    task = asyncio.create_task(rig.call())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.wait_for(rig.call(), 1)
    assert [transport.closed for transport in rig.made] == [True, False]


async def test_idle_connections_are_closed() -> None:
    """Those unused for long when there is traffic, and all of them at the end."""
    rig = Rig(3)
    await asyncio.gather(*(rig.call() for _ in range(3)))
    rig.now_s = 61.0
    await rig.call()
    await asyncio.sleep(0)
    assert [transport.closed for transport in rig.made].count(True) == 2
    await rig.pool.aclose()
    assert all(transport.closed for transport in rig.made)
