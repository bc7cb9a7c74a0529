"""The talk with a process of the host agent's own: each request gets its answer, and nothing is left open."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from osgym_host.runtimes import packets
from osgym_host.runtimes.own_process import Channel, ChannelClosed


@pytest.fixture
def theirs_and_ours() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends, neither of which blocks; ours has room for a few packets only."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield theirs, ours


def nothing(message: dict[str, Any]) -> None:
    """No event is awaited."""
    raise AssertionError(message)


async def test_many_at_once_get_each_its_own_answer(
    theirs_and_ours: tuple[socket.socket, socket.socket],
) -> None:
    """Also when there was no room for most of them, and the answers come in another order."""
    theirs, ours = theirs_and_ours
    channel = Channel(ours, nothing)
    work = [
        asyncio.create_task(channel.request({"op": str(n), "more": "x" * 1000}, timeout_s=10))
        for n in range(50)
    ]
    asked: list[dict[str, Any]] = []
    async with asyncio.timeout(10):
        while len(asked) < 50:
            await asyncio.sleep(0)
            asked += [message for message, _ in packets.receive_all(theirs)[0]]
        for message in reversed(asked):
            packets.send(theirs, {"id": message["id"], "said": message["op"]})
        answers = await asyncio.gather(*work)
    assert [answer["said"] for answer, _ in answers] == [str(n) for n in range(50)]
    channel.close()


async def test_the_descriptors_of_a_late_answer_are_closed(
    theirs_and_ours: tuple[socket.socket, socket.socket],
) -> None:
    """Nobody else would; an event after it is heard."""
    theirs, ours = theirs_and_ours
    heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    channel = Channel(ours, heard.put_nowait)
    with pytest.raises(TimeoutError):
        await channel.request({"op": "slow"}, timeout_s=0.01)
    [(message, _)], _ = packets.receive_all(theirs)
    read_end, write_end = os.pipe()
    packets.send(theirs, {"id": message["id"]}, [read_end])
    os.close(read_end)
    packets.send(theirs, {"event": "after"})
    async with asyncio.timeout(5):
        assert await heard.get() == {"event": "after"}
    with pytest.raises(BrokenPipeError):
        os.write(write_end, b"x")
    os.close(write_end)
    channel.close()


async def test_whoever_waits_hears_that_the_process_is_gone(
    theirs_and_ours: tuple[socket.socket, socket.socket],
) -> None:
    """For an answer or for room, whichever side closed; and so does whoever asks later."""
    theirs, ours = theirs_and_ours
    channel = Channel(ours, nothing)
    work = [asyncio.create_task(channel.request({"more": "x" * 1000}, timeout_s=10)) for _ in range(20)]
    await asyncio.sleep(0.01)
    theirs.close()
    async with asyncio.timeout(5):
        await channel.lost
        found = await asyncio.gather(*work, return_exceptions=True)
    assert [type(error) for error in found] == [ChannelClosed] * 20
    with pytest.raises(ChannelClosed):
        await channel.request({"op": "late"}, timeout_s=1)
    channel.close()
    assert ours.fileno() == -1
