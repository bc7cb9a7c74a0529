"""HTTP/1.1 on the wire: heads of requests, bodies, heads of answers. Every length is bounded."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from osgym_guest.http import Body, HttpError, Response
from osgym_protocol.codes import GuestErrorCode
from osgym_protocol.http_heads import MalformedHead, parse_length, split_head

MAX_HEADER_BYTES = 16 * 1024
MAX_HEADERS = 128
SPOOL_BYTES = 1 << 20
END_OF_HEAD = b"\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_REASONS = {
    101: "Switching Protocols",
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


def parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Return the method in upper case, the target, and the headers with names in lower case.

    Args:
        head: Head without the empty line at its end.

    Raises:
        HttpError: 400 ``bad_request``.
    """
    try:
        line, headers = split_head(head, MAX_HEADERS)
    except MalformedHead as exc:
        raise HttpError(400, GuestErrorCode.BAD_REQUEST, str(exc)) from None
    words = line.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise HttpError(400, GuestErrorCode.BAD_REQUEST, "the request line is not HTTP/1.1")
    if words[2] == "HTTP/1.0":
        headers["connection"] = "close"
    return words[0].upper(), words[1], headers


def may_have_body(headers: Mapping[str, str]) -> bool:
    """Return whether bytes that belong to the request may follow its head."""
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def body_length(headers: Mapping[str, str], limit: int) -> int:
    """Return the number of bytes that follow the head.

    Raises:
        HttpError: 411 or 400 when the length is unknown, 413 when it exceeds `limit`.
    """
    if headers.get("transfer-encoding", "identity").lower() != "identity":
        raise HttpError(
            411, GuestErrorCode.LENGTH_REQUIRED, "chunked bodies are not supported; send a Content-Length"
        )
    try:
        length = parse_length(headers.get("content-length", "0"))
    except MalformedHead as exc:
        raise HttpError(400, GuestErrorCode.BAD_REQUEST, str(exc)) from None
    if length > limit:
        message = f"the body must have at most {limit} bytes"
        raise HttpError(413, GuestErrorCode.BODY_TOO_LARGE, message, {"max_bytes": limit})
    return length


def answer_head(response: Response, length: int, keep_alive: bool) -> bytes:
    """Return status line and headers of an answer with a body of `length` bytes."""
    lines = [f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Status')}"]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    if response.take_over is not None:
        lines += ["Connection: Upgrade\r\n\r\n"]
        return "\r\n".join(lines).encode("latin-1", "replace")
    lines += [f"Content-Length: {length}", f"Connection: {'keep-alive' if keep_alive else 'close'}\r\n\r\n"]
    return "\r\n".join(lines).encode("latin-1", "replace")


class RequestBody:
    """Body of a request while it arrives. Above `SPOOL_BYTES` it goes to an unlinked temporary file.

    Attributes:
        left: Number of bytes still to come.
        spooled: The body goes to a file.
    """

    def __init__(self, length: int) -> None:
        self.left = length
        self.spooled = length > SPOOL_BYTES
        self._length = length
        self._parts: list[bytes] = []
        self._spool: IO[bytes] | None = None

    def take(self, data: bytes) -> bytes:
        """Append received bytes, and return those that belong to the next request."""
        mine, rest = data[: self.left], data[self.left :]
        self.left -= len(mine)
        if not self.spooled:
            self._parts.append(mine)
            return rest
        if self._spool is None:
            import tempfile

            self._spool = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `close`
        self._spool.write(mine)
        return rest

    def body(self) -> Body:
        """Return the whole body: bytes, or a read-only memory map."""
        if self._spool is None:
            return b"".join(self._parts)
        self._spool.flush()
        mapped = mmap.mmap(self._spool.fileno(), self._length, access=mmap.ACCESS_READ)
        self.close()
        return mapped

    def close(self) -> None:
        if self._spool is not None:
            self._spool.close()


class FileBody:
    """File that is sent as a body, read chunk by chunk.

    Attributes:
        left: Number of bytes still to be read.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.left = os.fstat(self._fd).st_size

    def next_chunk(self, most: int) -> list[bytes | memoryview]:
        """Return the next chunk; an empty list at the end, when the file is closed.

        Raises:
            OSError: The file cannot be read, or became shorter.
        """
        if self.left == 0:
            self.close()
            return []
        chunk = os.read(self._fd, min(self.left, most))
        if not chunk:
            raise ConnectionAbortedError("the file became shorter while it was sent")
        self.left -= len(chunk)
        return [chunk]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def unsent(parts: list[bytes | memoryview], sent: int) -> list[bytes | memoryview]:
    """Return what is left of some buffers after their first `sent` bytes."""
    for number, part in enumerate(parts):
        if sent < len(part):
            return [memoryview(part)[sent:], *parts[number + 1 :]]
        sent -= len(part)
    return []
