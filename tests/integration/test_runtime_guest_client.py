"""The guest's client against real servers on real sockets, most of them lying."""

# ruff: noqa: ASYNC240 -- the only task of a test blocks nobody

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.waiting import stays

from osgym_host.addresses import TcpAddress, UnixAddress
from osgym_host.guest_client import (
    GuestClient,
    GuestError,
    GuestProtocolError,
    GuestRefused,
    GuestTimeout,
    GuestUnreachable,
)
from osgym_host.guest_client.answers import CommandResult
from osgym_host.guest_client.client import MAX_JSON_BYTES
from osgym_host.guest_client.errors import GuestAnswerTooLarge
from osgym_host.guest_client.http import MAX_CONNECTIONS
from osgym_protocol.limits import MAX_GUEST_META_BYTES
from osgym_protocol.options import ObserveOptions
from osgym_protocol.records import encode_record

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x02\x00\x00\x00\x01"
"""How an image of 2x1 begins: nobody decodes it here."""

Handler = Callable[[bytes, bytes, asyncio.StreamWriter], Awaitable[bool]]

META = {
    "seq": 1,
    "replayed": False,
    "results": [{"ok": True, "op": "click"}],
    "failed_index": None,
    "settle": {"policy": "exact", "reason": "quiet", "wait_ms": 3.5, "last_change_ms": None},
    "frame": {"hash": "h", "format": "png", "width": 2, "height": 1, "screen": [2, 1], "unchanged": False},
    "previous": None,
    "timing_ms": {"total": 8.0},
}


def http(body: bytes, status: str = "200 OK", extra: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body


@asynccontextmanager
async def server(path: Path, handle: Handler) -> AsyncIterator[UnixAddress]:
    """Serve each request with `handle(head, body, writer)`; it returns whether to keep the connection."""

    connections: set[asyncio.Task[None]] = set()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            keep = True
            while keep:
                head = await reader.readuntil(b"\r\n\r\n")
                length = 0
                for line in head.split(b"\r\n"):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                keep = await handle(head, await reader.readexactly(length), writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    listener = await asyncio.start_unix_server(connection, path)
    try:
        yield UnixAddress(path)
    finally:
        listener.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


def fixed(answer: bytes, keep: bool = True) -> Handler:
    async def handle(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(answer)
        return keep

    return handle


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.sock"


async def test_a_step_is_sent_and_read(path: Path) -> None:
    """Request body, token and parsed record, with an image larger than a read."""
    seen: list[tuple[bytes, dict[str, object]]] = []
    image = PNG[:16] + bytes((0, 0, 3, 0, 0, 0, 2, 0)) + os.urandom(700_000)
    meta = {**META, "frame": {**META["frame"], "width": 768, "height": 512}}

    async def handle(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        seen.append((head, json.loads(body)))
        writer.write(http(encode_record(meta, image)))
        return True

    async with server(path, handle) as address, GuestClient(address, token="t0k") as guest:
        frame = await guest.step(
            1,
            [{"op": "click"}],
            observe=ObserveOptions(size=(768, 512)),
            settle={"policy": "fast"},
            timeout_s=5,
        )
    assert frame.image == image
    assert frame.observation.seq == 1
    assert frame.observation.frame.screen == (2, 1)
    head, body = seen[0]
    assert head.startswith(b"POST /v1/step HTTP/1.1\r\n")
    assert b"Authorization: Bearer t0k\r\n" in head
    assert body == {
        "seq": 1,
        "actions": [{"op": "click"}],
        "observe": {"format": "png", "size": [768, 512]},
        "settle": {"policy": "fast"},
    }


async def test_a_connection_is_kept_and_replaced_when_it_went_stale(path: Path) -> None:
    """Calls in a row share a connection; one that the guest closed meanwhile costs no error."""
    connections: set[int] = set()
    health = json.dumps(
        {"status": "ok", "version": "1", "generation": 1, "uptime_s": 1, "desktop_ready": True, "last_seq": 0}
    ).encode()

    async def handle(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        connections.add(id(writer))
        kept.append(writer)
        writer.write(http(health))
        return len(kept) < 3

    kept: list[asyncio.StreamWriter] = []
    async with server(path, handle) as address, GuestClient(address) as guest:
        for _call in range(3):
            assert (await guest.health(timeout_s=5)).desktop_ready
        assert len(connections) == 1
        await kept[0].wait_closed()
        assert (await guest.health(timeout_s=5)).last_seq == 0
    assert len(connections) == 2


async def test_many_calls_at_once_are_bounded(path: Path) -> None:
    """More calls than connections wait for one, and all are answered."""
    live = most = 0

    async def handle(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        nonlocal live, most
        live += 1
        most = max(most, live)
        await asyncio.sleep(0.01)
        live -= 1
        writer.write(http(b'{"width": 3, "height": 4}'))
        return True

    async with server(path, handle) as address, GuestClient(address) as guest:
        sizes = await asyncio.gather(*(guest.screen_size(timeout_s=10) for _ in range(60)))
    assert set(sizes) == {(3, 4)}
    assert 1 < most <= MAX_CONNECTIONS


async def test_bodies_of_other_servers_are_understood(path: Path) -> None:
    """Chunked and close-delimited bodies, as OSWorld's own server may send them."""
    chunked = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n"
    )
    async with server(path, fixed(chunked)) as address, GuestClient(address) as guest:
        assert await guest.file("/x", timeout_s=5) == b"hello world"
        assert await guest.file("/x", timeout_s=5) == b"hello world"
    path.unlink(missing_ok=True)
    async with (
        server(path, fixed(b"HTTP/1.0 200 OK\r\n\r\nuntil the end", keep=False)) as address,
        GuestClient(address) as guest,
    ):
        assert await guest.file("/x", timeout_s=5) == b"until the end"


@pytest.mark.parametrize(
    "answer",
    [
        b"not http at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: " + b"x" * 100_000,
        http(b"[]"),
        http(b"[" * 100_000),
        http(b'{"seq": NaN}'),
        http(b"\xff\xfe"),
        http(b"\0\0\0\x05\0\0\0\0abc"),
        http(b"\xff\xff\xff\xff\xff\xff\xff\xff"),
        http(encode_record({"frame": {}})),
        http(encode_record({**META, "frame": {**META["frame"], "screen": "big"}})),
        http(encode_record({**META, "seq": 2}, PNG)),
        http(encode_record(META, b"")),
        http(encode_record(META, b"\xff\xd8\xff")),
        http(encode_record({**META, "pad": "x" * MAX_GUEST_META_BYTES}, PNG)),
        http(b"", "200 OK", "A: b\r\n" * 65),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 2000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 100,
    ],
)
async def test_an_answer_that_makes_no_sense_is_a_protocol_error(path: Path, answer: bytes) -> None:
    """Every malformed answer to a step has the same type, and the client stays usable."""
    answers = [answer, http(encode_record(META, PNG))]

    async def handle(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(answers.pop(0))
        return True

    async with server(path, handle) as address, GuestClient(address) as guest:
        with pytest.raises(GuestProtocolError):
            await guest.step(1, [], timeout_s=5)
        assert (await guest.step(1, [], timeout_s=5)).image == PNG


async def test_a_lie_about_the_length_costs_nothing(path: Path) -> None:
    """A huge length within the bound reserves no real memory while nothing comes; beyond it, an error."""
    big = b"HTTP/1.1 200 OK\r\nContent-Length: 60000000\r\n\r\nx"
    async with server(path, fixed(big)) as address, GuestClient(address) as guest:
        before = _resident_mib()
        calls = [asyncio.create_task(guest.file("/x", timeout_s=0.5)) for _ in range(8)]
        await stays(lambda: _resident_mib() - before < 40, 0.2)
        for call in calls:
            with pytest.raises(GuestTimeout):
                await call
        with pytest.raises(GuestAnswerTooLarge):
            await guest.file("/x", max_bytes=1000, timeout_s=5)


def _resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


async def test_a_guest_that_trickles_or_hangs_meets_the_deadline(path: Path) -> None:
    """One byte at a time does not extend a deadline; the request counts as delivered."""

    async def handle(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        for byte in http(b"x" * 1000):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)
        return True

    async with server(path, handle) as address, GuestClient(address) as guest:
        began = time.monotonic()
        with pytest.raises(GuestTimeout) as timeout:
            await guest.step(1, [], timeout_s=0.3)
        assert time.monotonic() - began < 2
        assert timeout.value.delivered


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"Transfer-Encoding: chunked\r\n", b"400\r\n" + b"x" * 1024 + b"\r\n"),
        (b"Content-Length: 60000000\r\n", b"x"),
        (b"Connection: close\r\n", b"x"),
    ],
    ids=["small chunks", "a length", "to the end"],
)
async def test_a_guest_that_sends_without_a_pause_starves_nobody(
    path: Path, head: bytes, piece: bytes
) -> None:
    """However fast bytes come, the deadline fires and other tasks go on."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def flood() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
            for _ in range(1000):
                connection.sendall(piece * (65536 // len(piece)))

    gaps: list[float] = []

    async def tick() -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.001)
            gaps.append(time.monotonic() - last)
            last = time.monotonic()

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    ticking = asyncio.create_task(tick())
    began = time.monotonic()
    with contextlib.suppress(GuestError):
        async with GuestClient(UnixAddress(path)) as guest:
            await guest.file("/x", max_bytes=60_000_000, timeout_s=1)
    assert time.monotonic() - began < 10
    assert len(gaps) > 5
    assert max(gaps) < 2
    ticking.cancel()
    listener.close()
    await asyncio.to_thread(thread.join, 20)


async def test_nobody_there_is_not_delivered(path: Path) -> None:
    """Without a listener, and behind a queue that nobody serves, nothing was delivered."""
    async with GuestClient(UnixAddress(path)) as guest:
        with pytest.raises(GuestUnreachable) as unreachable:
            await guest.health(timeout_s=1)
        assert not unreachable.value.delivered
    async with GuestClient(TcpAddress("127.0.0.1", 1)) as guest:
        with pytest.raises(GuestUnreachable) as unreachable:
            await guest.health(timeout_s=1)
        assert not unreachable.value.delivered


async def test_a_guest_that_dies_in_the_middle_may_have_acted(path: Path) -> None:
    """The connection ends after the request was read: delivered, and not tried again."""
    requests = 0

    async def handle(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        nonlocal requests
        requests += 1
        return False

    async with server(path, handle) as address, GuestClient(address) as guest:
        with pytest.raises(GuestUnreachable) as unreachable:
            await guest.step(1, [], timeout_s=5)
    assert unreachable.value.delivered
    assert requests == 1


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (
            http(b'{"code":"bad_sequence","message":"no","details":{"last":3}}', "409 Conflict"),
            "bad_sequence",
            "no",
        ),
        (http(b'{"status":"error","message":"File not found"}', "404 Not Found"), "error", "File not found"),
        (http(b"<h1>Oops</h1>", "500 Oops"), "error", "<h1>Oops</h1>"),
        (http(b'{"code": 5, "message": ["x"], "details": 1}', "500 Oops"), "error", None),
    ],
)
async def test_a_refusal_is_typed(path: Path, answer: bytes, code: str, message: str | None) -> None:
    """Our errors, OSWorld's and plain text become one type; fields of the wrong kind are dropped."""
    async with server(path, fixed(answer)) as address, GuestClient(address) as guest:
        with pytest.raises(GuestRefused) as refused:
            await guest.step(1, [], timeout_s=5)
    assert refused.value.code == code
    assert message is None or refused.value.message == message
    assert isinstance(refused.value.details, dict)


async def test_an_upload_survives_any_content(path: Path) -> None:
    """Path and bytes travel in a form that the guest's own parser takes apart again."""
    from osgym_guest.urlencoded import parse_multipart

    data = bytes(range(256)) * 1000 + b"\r\n--boundary--\r\n"
    received = []

    async def handle(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        kind = next(line for line in head.decode().split("\r\n") if line.startswith("Content-Type"))
        received.append(parse_multipart(body, kind.split(": ", 1)[1]))
        writer.write(http(b"File Uploaded Successfully"))
        return True

    async with server(path, handle) as address, GuestClient(address) as guest:
        await guest.upload("/home/user/ä b.txt", data, timeout_s=5)
    form = received[0]
    assert form.fields["file_path"] == "/home/user/ä b.txt"
    assert bytes(next(iter(form.files.values())).content) == data


async def test_a_command_is_a_result_whatever_it_returned(path: Path) -> None:
    """Return codes are not errors; a missing one is."""
    ok = http(b'{"status":"success","output":"a","error":"b","returncode":7}')
    async with server(path, fixed(ok)) as address, GuestClient(address) as guest:
        assert await guest.execute(["false"], timeout_s=5) == CommandResult("a", "b", 7)
    path.unlink(missing_ok=True)
    async with server(path, fixed(http(b"{}"))) as address, GuestClient(address) as guest:
        with pytest.raises(GuestProtocolError):
            await guest.execute("false", timeout_s=5)


async def test_a_command_that_prints_without_end_does_not_lose_the_replica(path: Path) -> None:
    """Whoever prints more than the host takes is refused by name; the next call goes through."""
    answers = [b'{"output": "%s"}' % (b"x" * MAX_JSON_BYTES), b'{"returncode": 0}']

    async def handle(_head: bytes, _body: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(http(answers.pop(0)))
        return True

    async with server(path, handle) as address, GuestClient(address) as guest:
        with pytest.raises(GuestRefused) as caught:
            await guest.execute("yes")
        assert caught.value.code == "answer_too_large"
        assert (await guest.execute("true")).returncode == 0


async def test_a_cancelled_call_leaves_a_usable_client(path: Path) -> None:
    """The connection of a cancelled call is closed, never reused for the next answer."""
    gate = asyncio.Event()

    async def handle(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        if not gate.is_set():
            gate.set()
            await asyncio.sleep(0.1)
            writer.write(http(b'{"AT": "late"}'))
        else:
            writer.write(http(b'{"AT": "right"}'))
        return True

    async with server(path, handle) as address, GuestClient(address) as guest:
        task = asyncio.create_task(guest.accessibility(timeout_s=5))
        await gate.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await guest.accessibility(timeout_s=5) == "right"


async def test_a_closed_client_refuses(path: Path) -> None:
    """After close, calls fail with the usual type."""
    guest = GuestClient(UnixAddress(path))
    guest.close()
    guest.close()
    with pytest.raises(GuestError):
        await guest.health(timeout_s=1)
