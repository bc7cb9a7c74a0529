"""Targets that read HTTP from a socket: the host's reader of guests, the SDK's, both guests' servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import httpx

from osgym_guest.http import Request, Response, Router
from osgym_guest.server import Server
from osgym_host.addresses import UnixAddress
from osgym_host.guest_client import GuestClient, GuestError, GuestTimeout
from osgym_host.guest_client.http import HttpClient
from osgym_qemu.agentless.serve import HttpRequest, ServedResponse, UnixServer
from osgym_sdk._transport.http1 import Http1Connection
from tests.fuzz.engine import Run, Target
from tests.fuzz.mutation import after, mutate, mutate_record

PATIENCE_S = 30.0
MAX_BODY = 1 << 20
REFUSALS = {400, 401, 404, 405, 408, 409, 411, 413, 415, 422, 429, 431, 501, 503}
OK_HEAD = "HTTP/1.1 {} OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"

Feed = Callable[[bytes], Awaitable[None]]


@contextlib.contextmanager
def _looped(make: Callable[[Path], contextlib.AbstractAsyncContextManager[Feed]]) -> Iterator[Run]:
    """Run an asynchronous target on a loop of its own, one input after the other."""
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory(prefix="osgym-fuzz-") as folder:
        made = make(Path(folder))
        feed = loop.run_until_complete(made.__aenter__())
        try:
            yield lambda data: loop.run_until_complete(feed(data))
        finally:
            loop.run_until_complete(made.__aexit__(None, None, None))
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()


@contextlib.asynccontextmanager
async def _says(path: Path) -> AsyncIterator[Callable[[bytes, int], None]]:
    """A server that answers whatever it is asked with given bytes in pieces, and hangs up."""
    answer, piece = b"", 65536

    def tell(data: bytes, size: int) -> None:
        nonlocal answer, piece
        answer, piece = data, size

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read(65536)
            for at in range(0, len(answer), piece):
                writer.write(answer[at : at + piece])
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async with await asyncio.start_unix_server(serve, path):
        yield tell


def _pieces(data: bytes) -> int:
    """In what pieces an input comes: its first byte, so that few inputs are cut byte by byte."""
    return (1, 7, 100, 65536)[data[0] % 4] if data and len(data) < 2000 else 65536


@contextlib.asynccontextmanager
async def _host_reader(folder: Path) -> AsyncIterator[Feed]:
    async with _says(folder / "s") as tell:

        async def feed(data: bytes) -> None:
            tell(data[1:], _pieces(data))
            client = HttpClient(UnixAddress(folder / "s"))
            try:
                answer = await client.request("GET", "/", timeout_s=PATIENCE_S, max_body=MAX_BODY)
                assert len(answer.body) <= MAX_BODY
                assert 200 <= answer.status <= 599
            except GuestTimeout:
                raise
            except GuestError:
                pass
            finally:
                client.close()

        yield feed


_ASKED: list[Callable[[GuestClient], Awaitable[object]]] = [
    lambda guest: guest.health(timeout_s=PATIENCE_S),
    lambda guest: guest.ready(timeout_s=PATIENCE_S),
    lambda guest: guest.step(1, [{"op": "screenshot"}], timeout_s=PATIENCE_S),
    lambda guest: guest.observe(timeout_s=PATIENCE_S),
    lambda guest: guest.final(1, wait_s=1, timeout_s=PATIENCE_S),
    lambda guest: guest.release(timeout_s=PATIENCE_S),
    lambda guest: guest.execute(["true"], timeout_s=PATIENCE_S),
]


@contextlib.asynccontextmanager
async def _guest_answers(folder: Path) -> AsyncIterator[Feed]:
    """The body of an answer that is plain HTTP: typed, or the guest's fault; what is typed can be sent on."""
    async with _says(folder / "s") as tell:

        async def feed(data: bytes) -> None:
            which, body = data[0] if data else 0, data[1:]
            status = 200 if which < 200 else 400 + which % 100
            tell(OK_HEAD.format(status, len(body)).encode() + body, 65536)
            guest = GuestClient(UnixAddress(folder / "s"))
            try:
                answer = await _ASKED[which % len(_ASKED)](guest)
            except GuestTimeout:
                raise
            except GuestError as error:
                str(error).encode()
                json.dumps(getattr(error, "details", {}), allow_nan=False, ensure_ascii=False).encode()
                return
            finally:
                guest.close()
            str(answer).encode()
            observation = getattr(answer, "observation", None)
            if observation is not None:
                json.dumps(observation.to_dict(), allow_nan=False, ensure_ascii=False).encode()

        yield feed


@contextlib.asynccontextmanager
async def _sdk_reader(folder: Path) -> AsyncIterator[Feed]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read(65536)
            for at in range(0, len(said[0]), said[1]):
                writer.write(said[0][at : at + said[1]])
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    said: tuple[bytes, int] = (b"", 1)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"

    async def feed(data: bytes) -> None:
        nonlocal said
        said = (data[1:], _pieces(data))
        connection = Http1Connection()
        try:
            async with asyncio.timeout(PATIENCE_S):
                response = await connection.handle_async_request(httpx.Request("GET", url, content=b""))
                async for _ in response.aiter_raw():  # as the SDK reads: nothing is unpacked
                    pass
                await response.aclose()
        except httpx.TransportError:
            pass
        finally:
            await connection.aclose()

    async with server:
        yield feed


async def _said_back(path: Path, data: bytes, piece: int) -> bytes:
    """All that a server answers to some bytes and their end."""
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 24)
    try:
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                for at in range(0, len(data), piece):
                    writer.write(data[at : at + piece])
                    await writer.drain()
                writer.write_eof()
            with contextlib.suppress(ConnectionError):
                return await reader.read()
            return b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _check_answers(said: bytes, *, codes: bool) -> None:
    """Whole answers, each a success or a refusal that has a code."""
    while said:
        head, found, rest = said.partition(b"\r\n\r\n")
        assert found and head.startswith(b"HTTP/1.1 "), f"not an answer: {said[:200]!r}"
        status = int(head[9:12])
        if status == 100:
            said = rest
            continue
        fields = {n.lower(): v for n, _, v in (x.partition(b": ") for x in head.split(b"\r\n")[1:])}
        length = int(fields[b"content-length"])
        body, said = rest[:length], rest[length:]
        assert status == 200 or status in REFUSALS, f"{status} {body[:300]!r}"
        assert len(body) == length, "an answer was cut"
        if codes and status != 200:
            assert json.loads(body)["code"]


@contextlib.asynccontextmanager
async def _agent_server(folder: Path) -> AsyncIterator[Feed]:
    def echo(request: Request) -> Response:
        return Response.json({"fields": request.json_object(), "query": dict(request.query)})

    def form(request: Request) -> Response:
        found = request.form()
        return Response.json({"fields": dict(found.fields), "files": len(found.files)})

    async def later(request: Request) -> Response:
        await asyncio.sleep(0)
        return echo(request)

    router = Router()
    router.add("POST", "/v1/step", later)
    router.add("GET", "/v1/health", echo)
    router.add("POST", "/setup/upload", form, max_body=4096)
    server = Server(router)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "s"))
    server.listen(listener)

    async def feed(data: bytes) -> None:
        _check_answers(await _said_back(folder / "s", data[1:], _pieces(data)), codes=True)

    try:
        yield feed
    finally:
        await server.close()


@contextlib.asynccontextmanager
async def _agentless_server(folder: Path) -> AsyncIterator[Feed]:
    async def echo(request: HttpRequest) -> ServedResponse:
        return ServedResponse.json({"path": request.path, "fields": request.fields()})

    server = UnixServer(echo)
    await server.listen(folder / "s")

    async def feed(data: bytes) -> None:
        _check_answers(await _said_back(folder / "s", data[1:], _pieces(data)), codes=True)

    try:
        yield feed
    finally:
        await server.close()


_READER, _AGENTLESS = "osgym_host/guest_client/", "agentless/serve"
CONNECTIONS = [
    Target("host_reader", lambda: _looped(_host_reader), (_READER,), after(1, mutate)),
    Target(
        "guest_answers",
        lambda: _looped(_guest_answers),
        (_READER, "osgym_protocol/"),
        after(1, mutate_record),
    ),
    Target("sdk_reader", lambda: _looped(_sdk_reader), ("osgym_sdk/_http1", "h11/"), after(1, mutate)),
    Target("agent_server", lambda: _looped(_agent_server), ("osgym_guest/",), after(1, mutate)),
    Target("agentless_server", lambda: _looped(_agentless_server), (_AGENTLESS, "h11/"), after(1, mutate)),
]
