"""The connection under each step: one write per request, used again, and typed when it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
from tests.support.waiting import stays

from osgym_sdk._transport.http1 import Http1Connection

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@asynccontextmanager
async def server(*answers: bytes, close: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that reads a request and writes the next answer; ``close``: hangs up after each."""
    left = list(answers)
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(b"")  # a connection
        while left and (data := await reader.read(65536)):
            seen.append(data)
            writer.write(left.pop(0))
            await writer.drain()
            if close:
                break
        writer.close()

    made = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with made:
        yield f"http://127.0.0.1:{made.sockets[0].getsockname()[1]}/x", seen


async def call(connection: Http1Connection, url: str, content: bytes = b"") -> httpx.Response:
    """One call, read to its end."""
    response = await connection.handle_async_request(httpx.Request("POST", url, content=content))
    response.request = httpx.Request("POST", url)
    await response.aread()
    await response.aclose()
    return response


async def test_a_connection_is_used_again_and_a_request_is_one_write() -> None:
    """Head and body arrive together; the second call opens nothing."""
    connection = Http1Connection()
    async with server(OK, OK) as (url, seen):
        for _ in range(2):
            assert (await call(connection, url, b"body")).content == b"ok"
        assert [bool(data) for data in seen] == [False, True, True]
        assert all(data.endswith(b"\r\n\r\nbody") for data in seen[1:])
        await connection.aclose()


async def test_a_connection_that_the_host_closed_is_made_anew() -> None:
    """A host may close what is idle; the next call does not fail for it."""
    connection = Http1Connection()
    async with server(OK, OK, close=True) as (url, seen):
        assert (await call(connection, url)).status_code == 200
        await asyncio.sleep(0.05)
        assert (await call(connection, url)).status_code == 200
        assert seen.count(b"") == 2
        await connection.aclose()


async def test_answers_in_chunks_and_interim_answers() -> None:
    """What proxies make of an answer is read as well."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    connection = Http1Connection()
    async with server(interim + chunked) as (url, _):
        assert (await call(connection, url)).content == b"ok"
        await connection.aclose()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "the host closed the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", "received 2 bytes, expected 9"),
        (b"\xff" * 64, "peer unexpectedly closed connection"),
    ],
)
async def test_broken_answers_are_transport_errors(answer: bytes, said: str) -> None:
    """Cut short or no HTTP at all: the caller sees what httpx would say, in words of the wire."""
    connection = Http1Connection()
    async with server(answer, close=True) as (url, _):
        with pytest.raises(httpx.TransportError, match=said):
            await call(connection, url)
        await connection.aclose()


async def test_a_host_that_is_not_there_is_a_connect_error() -> None:
    """So it is known that nothing was sent."""
    async with server() as (url, _):
        pass
    with pytest.raises(httpx.ConnectError):
        await call(Http1Connection(), url)


async def test_an_answer_that_nobody_reads_holds_no_more_than_a_bound() -> None:
    """The other side is slowed down, and everything still arrives."""
    size = 16 * 1024 * 1024
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n".encode()
    connection = Http1Connection()
    async with server(head + bytes(size)) as (url, _):
        response = await connection.handle_async_request(httpx.Request("GET", url))
        response.request = httpx.Request("GET", url)
        wire = connection._wire
        assert wire is not None
        await stays(lambda: wire.buffered_bytes < 4 * 1024 * 1024, 0.2)
        assert sum([len(chunk) async for chunk in response.aiter_raw()]) == size
        await connection.aclose()
