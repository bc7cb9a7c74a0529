"""A small HTTP/1.1 server on asyncio: just what the guest agent needs, bounded everywhere.

Every replica pays for this process, so there is no framework. Headers, bodies, the number of
connections and the time of each request have limits. Bodies above `SPOOL_BYTES` go to an unlinked
temporary file and reach the handler as a read-only memory map, so an upload does not grow the process.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import sys
import traceback
from _operator import _compare_digest  # hmac's, without the megabyte of OpenSSL behind it
from collections.abc import Mapping, Sequence

from osgym_guest.forms import split_query
from osgym_guest.http import Body, HttpError, Request, Response, Route, Router

MAX_HEADER_BYTES = 16 * 1024
MAX_CONNECTIONS = 64
SPOOL_BYTES = 1 << 20
IDLE_TIMEOUT_S = 600.0
READ_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 60.0
CHUNK_BYTES = 256 * 1024
DRAIN_CHUNKS, DRAIN_TIMEOUT_S = 64, 0.5

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    411: "Length Required",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class Server:
    """Serves a router on listening sockets until it is closed.

    Args:
        router: the endpoints.
        token: when not empty, each request must carry it as a bearer token.
        max_connections: connections beyond are answered with 503 and closed.
    """

    def __init__(self, router: Router, *, token: str = "", max_connections: int = MAX_CONNECTIONS):
        self._router = router
        self._token = token.encode()
        self._max_connections = max_connections
        self._connections: set[asyncio.Task[None]] = set()

    def set_token(self, token: str) -> None:
        """Demand this token from now on, of open connections too."""
        self._token = token.encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection (the callback of `asyncio.start_server`)."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("serve runs in a task")
        self._connections.add(task)
        try:
            if len(self._connections) > self._max_connections:
                error = HttpError(503, "too_many_connections", "too many open connections")
                await self._write(writer, error.response(), keep_alive=False)
                return
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError, asyncio.TimeoutError):
            pass  # the peer is gone, or too slow: nobody is left to tell
        finally:
            self._connections.discard(task)
            writer.close()

    async def close(self) -> None:
        """Cancel what is still being served."""
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; whether the connection stays open."""
        try:
            first = await asyncio.wait_for(reader.read(1), IDLE_TIMEOUT_S)
            if not first:
                return False
            head = first + await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), READ_TIMEOUT_S)
        except asyncio.LimitOverrunError:
            error = HttpError(431, "headers_too_large", f"headers end within {MAX_HEADER_BYTES} bytes")
            await self._write(writer, error.response(), keep_alive=False)
            return False
        keep_alive, unread = True, True
        try:
            method, target, headers = _parse_head(head)
            keep_alive = headers.get("connection", "").lower() != "close"
            self._authorize(headers)
            path, query = split_query(target)
            route = self._router.find(method, path)
            body = await _read_body(reader, writer, headers, route.max_body)
            unread = False
            request = Request(method, path, query, headers, body)
            response = await _run(route, request)
        except HttpError as exc:
            keep_alive = keep_alive and not (unread and _has_body(head))
            response = exc.response()
        await self._write(writer, response, keep_alive=keep_alive)
        if unread and not keep_alive:
            await _drain(reader)
        return keep_alive

    def _authorize(self, headers: Mapping[str, str]) -> None:
        if not self._token:
            return
        given = headers.get("authorization", "").encode()
        if not _compare_digest(given, b"Bearer " + self._token):
            raise HttpError(401, "unauthorized", "a bearer token is required")

    async def _write(self, writer: asyncio.StreamWriter, response: Response, *, keep_alive: bool) -> None:
        parts: Sequence[bytes | memoryview]
        parts = [response.body] if isinstance(response.body, bytes) else response.body
        if response.file is not None:
            try:
                descriptor = os.open(response.file, os.O_RDONLY | os.O_NONBLOCK)
            except OSError as exc:
                error = HttpError(404, "no_such_file", f"{response.file}: {exc.strerror}")
                await self._write(writer, error.response(), keep_alive=keep_alive)
                return
            length = os.fstat(descriptor).st_size
        else:
            descriptor = -1
            length = sum(len(part) for part in parts)
        lines = [f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in response.headers.items()]
        lines += [f"Content-Length: {length}", f"Connection: {'keep-alive' if keep_alive else 'close'}"]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace"))
        if descriptor >= 0:
            await _stream(writer, descriptor, length)
            return
        for part in parts:
            writer.write(part)
        await asyncio.wait_for(writer.drain(), WRITE_TIMEOUT_S)


async def _drain(reader: asyncio.StreamReader) -> None:
    """Read on for a moment: closing with unread bytes would take the answer from the peer."""
    try:
        for _ in range(DRAIN_CHUNKS):
            if not await asyncio.wait_for(reader.read(CHUNK_BYTES), DRAIN_TIMEOUT_S):
                return
    except asyncio.TimeoutError:
        return


async def _stream(writer: asyncio.StreamWriter, descriptor: int, length: int) -> None:
    """Write exactly `length` bytes of an open file; a file that shrank ends the connection."""
    try:
        left = length
        while left > 0:
            chunk = os.read(descriptor, min(left, CHUNK_BYTES))
            if not chunk:
                raise ConnectionAbortedError("the file became shorter while it was sent")
            left -= len(chunk)
            writer.write(chunk)
            await asyncio.wait_for(writer.drain(), WRITE_TIMEOUT_S)
    finally:
        os.close(descriptor)


async def _run(route: Route, request: Request) -> Response:
    """Run a handler within its deadline; what it did not foresee is logged and answered with 500."""
    try:
        return await asyncio.wait_for(route.handler(request), route.deadline_s)
    except HttpError:
        raise
    except asyncio.TimeoutError as exc:
        raise HttpError(504, "deadline", f"no answer within {route.deadline_s:g} s") from exc
    except Exception as exc:  # top of a request: logged, and the agent serves on
        traceback.print_exc(file=sys.stderr)
        raise HttpError(500, "internal", f"{type(exc).__name__}: {exc}") from exc


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise HttpError(400, "bad_request", "the request line is not HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        if not line:
            continue
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise HttpError(400, "bad_request", "a header line is malformed")
        headers[name.lower()] = value.strip()
    if words[2] == "HTTP/1.0":
        headers["connection"] = "close"
    return words[0].upper(), words[1], headers


def _has_body(head: bytes) -> bool:
    lowered = head.lower()
    return b"\r\ntransfer-encoding:" in lowered or (
        b"\r\ncontent-length:" in lowered and b"\r\ncontent-length: 0\r\n" not in lowered
    )


async def _read_body(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: Mapping[str, str], limit: int
) -> Body:
    if headers.get("transfer-encoding", "identity").lower() != "identity":
        raise HttpError(411, "length_required", "send a Content-Length; chunked bodies are not taken")
    text = headers.get("content-length", "0")
    if not text.isascii() or not text.isdigit():
        raise HttpError(400, "bad_request", "Content-Length is not a number")
    length = int(text)
    if length > limit:
        message = f"the body may have up to {limit} bytes"
        raise HttpError(413, "body_too_large", message, {"max_bytes": limit})
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if length <= SPOOL_BYTES:
        return await asyncio.wait_for(reader.readexactly(length), READ_TIMEOUT_S)
    import tempfile

    with tempfile.TemporaryFile() as spool:
        left = length
        while left > 0:
            chunk = await asyncio.wait_for(reader.read(min(left, CHUNK_BYTES)), READ_TIMEOUT_S)
            if not chunk:
                raise ConnectionResetError("the peer closed in the middle of the body")
            spool.write(chunk)
            left -= len(chunk)
        spool.flush()
        return mmap.mmap(spool.fileno(), length, access=mmap.ACCESS_READ)
