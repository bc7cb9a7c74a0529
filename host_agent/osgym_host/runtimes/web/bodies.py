"""Bodies of requests, of exactly the length that the head announces."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

from osgym_host.runtimes.web.dial import IDLE_S, PIECE_BYTES
from osgym_host.runtimes.web.heads import MAX_HEAD_BYTES, Head, Refused

HEAD_S = 10.0
"""Deadline from the first wait for a request to the end of its head."""
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,12})(?:[ \t]*;[\t\x20-\x7e]*)?\r\n\Z")
_MAX_TRAILERS = 64


async def read_head(reader: asyncio.StreamReader, *, wait_s: float = HEAD_S) -> bytes:
    """Return the bytes of a head with its empty line; empty when the client has closed.

    Args:
        wait_s: Time until its last byte.

    Raises:
        Refused: The head is too large or too slow.
    """
    try:
        async with asyncio.timeout(wait_s):
            raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    except asyncio.LimitOverrunError:
        raw = b" " * (MAX_HEAD_BYTES + 1)
    except TimeoutError:
        raise Refused(
            408, "bad_request", f"the head of a request did not arrive within {wait_s:g} s"
        ) from None
    if len(raw) > MAX_HEAD_BYTES:
        raise Refused(431, "bad_request", f"a head larger than {MAX_HEAD_BYTES} bytes")
    return raw


async def body_of(head: Head, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the body in pieces, without the marks of chunks.

    Raises:
        Refused: Its chunks are malformed.
        EOFError, TimeoutError: The client closed before its end, or sent nothing for too long.
    """
    if head.length is not None:
        async for piece in _exactly(reader, head.length):
            yield piece
        return
    while size := await _chunk_size(reader):
        async for piece in _exactly(reader, size):
            yield piece
        if await reader.readexactly(2) != b"\r\n":
            raise Refused(400, "bad_request", "a chunk is malformed")
    for _ in range(_MAX_TRAILERS):  # they are dropped
        if await _line(reader) == b"\r\n":
            return
    raise Refused(400, "bad_request", "too many trailers")


async def _exactly(reader: asyncio.StreamReader, count: int) -> AsyncIterator[bytes]:
    while count:
        async with asyncio.timeout(IDLE_S):
            piece = await reader.read(min(count, PIECE_BYTES))
        if not piece:
            raise EOFError
        count -= len(piece)
        yield piece


async def _chunk_size(reader: asyncio.StreamReader) -> int:
    found = _SIZE.match(await _line(reader))
    if found is None:
        raise Refused(400, "bad_request", "a chunk is malformed")
    return int(found[1], 16)


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(IDLE_S):
            return await reader.readuntil(b"\r\n")
    except asyncio.LimitOverrunError:
        raise Refused(400, "bad_request", "a line of a chunk is too long") from None
