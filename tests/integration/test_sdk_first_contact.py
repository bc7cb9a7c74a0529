"""The first call to hosts: wrong ports, other services, hosts that boot, many at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_runtime import Served
from tests.support.fake_v1_host import FakeV1Host, serving

from osgym_sdk import AsyncClient, AuthError, Client, HostState, HostUnreachable, Progress, Timeout, Timeouts

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def unused_port() -> int:
    """A port where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextlib.asynccontextmanager
async def answering(handle: Handler) -> AsyncIterator[str]:
    """A server that answers as it likes; its URL."""

    async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await handle(reader, writer)
        writer.close()

    server = await asyncio.start_server(quietly, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


async def test_nothing_listens_is_said_at_once_with_the_remedy(unused_port: int) -> None:
    """Not after ten seconds of retries, and not as an errno; also in a batch, which repeats nothing."""
    began = time.monotonic()
    async with AsyncClient(f"http://127.0.0.1:{unused_port}") as client:
        with pytest.raises(HostUnreachable, match=r"nothing listens at .*osgym host serve.*--port") as caught:
            await client.episode().start()
        assert caught.value.host == f"http://127.0.0.1:{unused_port}"
        [result] = [r async for r in client.run([None], lambda obs, task, step: None)]
        assert result.failure is not None and "nothing listens" in result.failure.message
        assert result.attempts == 1
    assert time.monotonic() - began < 3


async def _web_page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 30\r\n\r\n<html>\n<h1>nobody is here</h1>\n")
    await writer.drain()


async def _other_api(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"status":"up"}')
    await writer.drain()


async def _ssh(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
    await writer.drain()
    await reader.read(1000)


@pytest.mark.parametrize(
    ("handle", "said"),
    [
        (_web_page, r"is not an OSGym host agent \(it answered: HTTP 404: <html>\)"),
        (_other_api, r"is not an OSGym host agent \(it answered: HostState"),
        (_ssh, "does not speak HTTP"),
    ],
)
async def test_something_else_that_answers_is_said_at_once(handle: Handler, said: str) -> None:
    """A web server, another API, no HTTP at all: each by what it is, with how a host agent is started."""
    began = time.monotonic()
    async with answering(handle) as url, AsyncClient(url) as client:
        with pytest.raises(HostUnreachable, match=said) as caught:
            await client.episode().start()
        assert "osgym host serve" in caught.value.message and "\n" not in caught.value.message
        [state] = (await client.host_states()).values()
        assert isinstance(state, HostUnreachable) and state.message == caught.value.message
    assert time.monotonic() - began < 3


async def test_what_accepts_and_says_nothing_has_a_bound(tmp_path: Path) -> None:
    """That of the control calls, not that of a create, which may take minutes."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with answering(silent) as url, AsyncClient(url, timeouts=Timeouts(control_s=0.5)) as client:
        began = time.monotonic()
        with pytest.raises(HostUnreachable, match="no answer within"):
            await client.episode().start()
        assert time.monotonic() - began < 3


async def test_a_host_agent_that_refuses_speaks_for_itself(tmp_path: Path) -> None:
    """A missing token is no wrong port."""
    with Served(tmp_path, token="secret") as served:
        async with AsyncClient(served.urls[0]) as client:
            with pytest.raises(AuthError, match="token"):
                await client.episode().start()
        async with AsyncClient(served.urls[0], token="secret") as client, client.episode() as episode:
            assert (await episode.step("wait()")).step == 1


@pytest.fixture
def silent_ports() -> Iterator[list[int]]:
    """Ports of hosts that boot: connections are accepted, nothing is answered."""
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(60)]
        yield [sock.getsockname()[1] for sock in made]


async def test_all_hosts_are_asked_at_once(silent_ports: list[int], unused_port: int) -> None:
    """Sixty that do not answer cost as long as one; those that do are among the answers."""
    with serving(FakeV1Host()) as running:
        hosts = [*(f"http://127.0.0.1:{port}" for port in (*silent_ports, unused_port)), running.url]
        async with AsyncClient(hosts) as client:
            began = time.monotonic()
            states = await client.host_states()
            took_s = time.monotonic() - began
    assert list(states) == hosts
    assert took_s < 6
    assert isinstance(states[running.url], HostState)
    assert isinstance(states[f"http://127.0.0.1:{unused_port}"], HostUnreachable)
    assert all(isinstance(states[host], Timeout) for host in hosts[: len(silent_ports)])


async def test_the_states_of_all_hosts_have_one_deadline(silent_ports: list[int]) -> None:
    """Whatever the hosts do, and for the client without asyncio too."""
    hosts = [f"http://127.0.0.1:{port}" for port in silent_ports]
    began = time.monotonic()
    with Client(hosts) as client:
        states = client.host_states(timeout_s=0.5)
    assert time.monotonic() - began < 2.5
    assert all(isinstance(state, Timeout) and "60 hosts" in state.message for state in states.values())


async def test_progress_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A line at the start and one at the end, also where the number of tasks is not known."""
    told: list[Progress] = []
    with serving(FakeV1Host()) as running:
        async with AsyncClient(running.url) as client:
            tasks: Any = ({"id": str(n)} for n in range(3))
            async for _ in client.run(tasks, lambda obs, task, step: None, concurrency=2, progress=True):
                pass
            async for _ in client.run([None] * 9, lambda o, t, s: None, on_progress=told.append):
                break
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("0 done, ") and lines[-1].startswith("3 done, 0 running")
    assert len(lines) == 2
    assert [progress.done for progress in told[-2:]] == [False, True]
