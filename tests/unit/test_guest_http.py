"""The guest agent's HTTP server, on real sockets, with good and bad clients."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.waiting import until

from osgym_guest import connection
from osgym_guest.http import HttpError, Request, Response, Router
from osgym_guest.http1 import MAX_HEADER_BYTES, SPOOL_BYTES
from osgym_guest.server import Server
from osgym_guest.urlencoded import parse_multipart, parse_urlencoded, split_query
from osgym_protocol.records import Record, decode_record, encode_record

THEN: list[str] = []
"""What handlers note."""

Exchange = Callable[[bytes], Awaitable[bytes]]


async def _echo(request: Request) -> Response:
    return Response.json({"query": dict(request.query), "length": len(request.body)})


async def _form(request: Request) -> Response:
    form = request.form()
    files = {name: [file.filename, len(file.content)] for name, file in form.files.items()}
    return Response.json({"fields": dict(form.fields), "files": files})


async def _json(request: Request) -> Response:
    return Response.json(request.json_object())


async def _broken(request: Request) -> Response:
    raise RuntimeError("a fault")


async def _slow(request: Request) -> Response:
    await asyncio.sleep(30)
    return Response()


def _at_once(request: Request) -> Response:
    return Response(body=request.method.encode(), then=lambda: THEN.append(request.path))


async def _patient(request: Request) -> Response:
    await asyncio.sleep(0.2)
    THEN.append("waited")
    return Response(body=b"x" * 3_000_000)


async def _refuse(request: Request) -> Response:
    raise HttpError(409, "no", "not now", {"why": 1})


@asynccontextmanager
async def serving(tmp_path: Path, token: str = "", max_connections: int = 4) -> AsyncIterator[Exchange]:
    """A server; yields a function that sends bytes on a new connection and reads what comes until the end."""
    file = tmp_path / "file.bin"
    file.write_bytes(b"x" * 700_000)

    async def send_file(request: Request) -> Response:
        return Response.stream(file if "gone" not in request.query else tmp_path / "none")

    router = Router()
    router.add("GET", "/echo", _echo)
    router.add("POST", "/echo", _echo, max_body=4 << 20)
    router.add("POST", "/small", _echo, max_body=10)
    router.add("POST", "/form", _form, max_body=8 << 20)
    router.add("POST", "/json", _json)
    router.add("GET", "/broken", _broken)
    router.add("GET", "/slow", _slow, deadline_s=0.05)
    router.add("GET", "/refuse", _refuse)
    router.add("GET", "/file", send_file)
    router.add("GET", "/once", _at_once)
    router.add("GET", "/patient", _patient)
    server = Server(router, token=token, max_connections=max_connections)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    server.listen(listener)

    async def exchange(data: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s", limit=1 << 24)
        writer.write(data)
        writer.write_eof()
        try:
            return await asyncio.wait_for(reader.read(), 5)
        finally:
            writer.close()

    try:
        yield exchange
    finally:
        await server.close()


def request(method: str, target: str, body: bytes = b"", *headers: str) -> bytes:
    """The bytes of a request."""
    lines = [f"{method} {target} HTTP/1.1", "Host: x", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def answer(data: bytes) -> tuple[int, dict[str, object]]:
    """Status and JSON of the first answer."""
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return int(head.split(b" ")[1]), json.loads(body[:length])


async def test_keep_alive_serves_several_requests(tmp_path: Path) -> None:
    """One connection, pipelined requests, answers in order."""
    async with serving(tmp_path) as exchange:
        data = await exchange(request("GET", "/echo?a=%20b&c=d+e") + request("POST", "/echo", b"12345"))
    assert data.count(b"HTTP/1.1 200 OK") == 2
    assert answer(data) == (200, {"query": {"a": " b", "c": "d e"}, "length": 0})
    assert b'"length":5' in data


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (request("GET", "/none"), 404, "not_found"),
        (request("DELETE", "/echo"), 405, "method_not_allowed"),
        (request("POST", "/small", b"x" * 11), 413, "body_too_large"),
        (request("POST", "/json", b"{"), 400, "bad_json"),
        (request("POST", "/json", b"[1]"), 400, "bad_json"),
        (request("POST", "/form", b"x=1"), 400, "bad_form"),
        (request("GET", "/broken"), 500, "internal"),
        (request("GET", "/slow"), 504, "deadline"),
        (request("GET", "/refuse"), 409, "no"),
        (request("GET", "/file?gone=1"), 404, "no_such_file"),
        (b"nonsense\r\n\r\n", 400, "bad_request"),
        (request("GET", "/echo", b"", "no colon here"), 400, "bad_request"),
        (request("POST", "/echo", b"", "Content-Length: -5"), 400, "bad_request"),
        (request("POST", "/echo", b"", "Transfer-Encoding: chunked"), 411, "length_required"),
        (request("GET", "/echo", b"", "X: " + "y" * MAX_HEADER_BYTES), 431, "headers_too_large"),
    ],
)
async def test_errors_have_one_shape(
    tmp_path: Path, data: bytes, status: int, code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A fault is a status and {"code", "message", "details"}."""
    async with serving(tmp_path) as exchange:
        got, body = answer(await exchange(data))
    assert (got, body["code"]) == (status, code)
    assert set(body) == {"code", "message", "details"}


async def test_a_token_is_required_when_one_is_set(tmp_path: Path) -> None:
    """Without it, or with another, nothing is served."""
    async with serving(tmp_path, token="secret") as exchange:
        assert answer(await exchange(request("GET", "/echo")))[0] == 401
        assert answer(await exchange(request("GET", "/echo", b"", "Authorization: Bearer secre")))[0] == 401
        assert answer(await exchange(request("GET", "/echo", b"", "Authorization: Bearer secret")))[0] == 200


async def test_connections_are_bounded(tmp_path: Path) -> None:
    """Beyond the bound a connection is told so and closed; those within it live on."""
    async with serving(tmp_path, max_connections=2) as exchange:
        held = [await asyncio.open_unix_connection(tmp_path / "s") for _ in range(2)]
        assert answer(await exchange(request("GET", "/echo")))[1]["code"] == "too_many_connections"
        held[0][1].write(request("GET", "/echo"))
        assert (await held[0][0].readline()).startswith(b"HTTP/1.1 200")
        for _, writer in held:
            writer.close()


async def test_large_bodies_and_files_pass(tmp_path: Path) -> None:
    """A body beyond the spool size, and a streamed file."""
    body = b"z" * (SPOOL_BYTES + 5)
    async with serving(tmp_path) as exchange:
        assert answer(await exchange(request("POST", "/echo", body)))[1]["length"] == len(body)
        data = await exchange(request("GET", "/file"))
    assert data.endswith(b"x" * 700_000) and b"Content-Length: 700000" in data


async def test_a_body_may_come_in_pieces(tmp_path: Path) -> None:
    """Head and body byte by byte, after a wait for the server's word."""
    async with serving(tmp_path):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        head = request("POST", "/echo", b"", "Content-Length: 9", "Expect: 100-continue")
        for at in range(len(head)):
            writer.write(head[at : at + 1])
            await writer.drain()
            await asyncio.sleep(0)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        for piece in (b"123", b"456", b"789" + request("GET", "/once")):
            writer.write(piece)
            await asyncio.sleep(0.01)
        assert (await reader.readuntil(b"9}")).endswith(b'"length":9}')
        assert (await reader.readuntil(b"GET")).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_who_sends_ahead_is_answered_in_order(tmp_path: Path) -> None:
    """While a handler works and its answer is taken slowly; more than fits into the server's buffers."""
    ahead = request("GET", "/once?" + "q" * 1000)
    async with serving(tmp_path):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s", limit=1 << 12)
        writer.write(request("GET", "/patient") + ahead * 1000)
        await asyncio.sleep(0.5)
        assert b"Content-Length: 3000000" in await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(3_000_000) == b"x" * 3_000_000
        for _ in range(1000):
            await reader.readuntil(b"\r\n\r\nGET")
        writer.close()


async def test_what_follows_an_answer_is_done_before_the_next_request(tmp_path: Path) -> None:
    """`then` is called once for each answer."""
    THEN.clear()
    async with serving(tmp_path) as exchange:
        await exchange(request("GET", "/once") * 3)
    assert THEN == ["/once"] * 3


async def test_a_handler_survives_its_client(tmp_path: Path) -> None:
    """A peer that goes away does not stop what it asked for, and nobody else notices."""
    THEN.clear()
    async with serving(tmp_path, max_connections=1) as exchange:
        _, writer = await asyncio.open_unix_connection(tmp_path / "s")
        writer.write(request("GET", "/patient"))
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.transport.abort()
        assert answer(await exchange(request("GET", "/echo")))[0] == 503  # it counts while it runs
        await until(lambda: THEN, 5)
        assert THEN == ["waited"]
        assert answer(await exchange(request("GET", "/echo")))[0] == 200


async def test_slow_peers_are_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is silent, one in the middle of a head or a body, one that does not take its answer."""
    for name in ("IDLE_TIMEOUT_S", "READ_TIMEOUT_S", "WRITE_TIMEOUT_S"):
        monkeypatch.setattr(connection, name, 0.1)
    half = request("POST", "/echo", b"", "Content-Length: 9") + b"123"
    async with serving(tmp_path):
        for said in (b"", b"GET", half):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
            writer.write(said)
            assert await asyncio.wait_for(reader.read(), 2) == b""
            writer.close()
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(str(tmp_path / "s"))
            deaf.send(request("GET", "/patient"))
            await asyncio.sleep(0.6)
            deaf.settimeout(2)
            got = 0
            while data := deaf.recv(1 << 16):
                got += len(data)
        assert got < 3_000_000


@pytest.mark.parametrize("size", [3, SPOOL_BYTES + 10])
async def test_multipart_uploads_arrive(tmp_path: Path, size: int) -> None:
    """Fields and files, small in memory and large on disk, with line ends and quotes in them."""
    content = (b"\r\n--B" + b"q" * size)[:size]
    body = (
        b'--BOUND\r\nContent-Disposition: form-data; name="file_path"\r\n\r\n/home/\xc3\xbc\r\n--BOUND\r\n'
        b'Content-Disposition: form-data; name="file_data"; filename="a\\";b.txt"\r\n'
        b"Content-Type: application/octet-stream\r\n\r\n" + content + b"\r\n--BOUND--\r\n"
    )
    kind = 'Content-Type: multipart/form-data; boundary="BOUND"'
    async with serving(tmp_path) as exchange:
        status, got = answer(await exchange(request("POST", "/form", body, kind)))
    assert (status, got["fields"]) == (200, {"file_path": "/home/ü"})
    assert got["files"] == {"file_data": ['a";b.txt', len(content)]}


@given(st.binary(max_size=200))
def test_garbage_is_no_form(body: bytes) -> None:
    """Whatever the body, it is a form or a ValueError."""
    for data in (body, b"--B\r\n" + body, b'--B\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + body):
        with suppress(ValueError):
            parse_multipart(data, "multipart/form-data; boundary=B")


def test_urls_are_decoded() -> None:
    """Percent escapes as UTF-8; what is no escape stays."""
    assert split_query("/a%20b?x=%C3%A4&y=100%&z") == ("/a b", {"x": "ä", "y": "100%", "z": ""})
    assert parse_urlencoded("a=1&a=2") == {"a": "2"}


def test_records_come_back_as_they_were() -> None:
    """Meta and blob survive; a cut record is refused."""
    data = encode_record({"a": "ü"}, b"png")
    assert decode_record(data) == Record({"a": "ü"}, b"png")
    with pytest.raises(ValueError, match="record of 21 bytes"):
        decode_record(data[:-1])
