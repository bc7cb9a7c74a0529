"""The body of a chunked answer, cut out of the bytes of a connection.

h11 reads heads; bodies of megabytes a second it copies three times over, which is a tenth of what a step
costs the client. What a chunk may be is as strict here as there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import h11

MAX_LINE_BYTES = 4096
"""Length of a chunk's head with its extensions, and of a trailer."""
MAX_TRAILERS = 64
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")


class ChunkReader:
    """Give it what arrives; it gives the body's bytes until ``done``. After an error it is unusable."""

    __slots__ = ("_end_of_data", "_left", "_line", "_trailers", "done", "rest")

    def __init__(self) -> None:
        self._line = b""
        """The beginning of a line whose end has not come."""
        self._left = 0
        """Bytes of the chunk that are still to come."""
        self._end_of_data = False
        """The next line is the empty one that follows a chunk."""
        self._trailers = -1
        """Lines read after the last chunk; -1: it has not come."""
        self.done = False
        self.rest = b""
        """What came after the end."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the parts of the body that are in these bytes, none of them empty. Exhaust it.

        Raises:
            h11.RemoteProtocolError: this is no chunked body.
        """
        if self.done:
            self.rest += data
            return
        at, length = 0, len(data)
        while at < length:
            if self._left:
                part = data[at : at + self._left]
                at += len(part)
                self._left -= len(part)
                yield part
                continue
            end = data.find(b"\n", at)
            self._line += data[at:] if end < 0 else data[at : end + 1]
            if len(self._line) > MAX_LINE_BYTES:
                raise h11.RemoteProtocolError("the head of a chunk is too long")
            if end < 0:
                return
            at = end + 1
            line, self._line = self._line, b""
            self._take(line)
            if self.done:
                self.rest = data[at:]
                return

    def _take(self, line: bytes) -> None:
        if not line.endswith(b"\r\n"):
            raise h11.RemoteProtocolError("a line of a chunked body ends without CR")
        if self._end_of_data:
            if line != b"\r\n":
                raise h11.RemoteProtocolError("a chunk is longer than announced")
            self._end_of_data = False
        elif self._trailers >= 0:
            self._trailers += 1
            self.done = line == b"\r\n"
            if self._trailers > MAX_TRAILERS:
                raise h11.RemoteProtocolError("too many trailers")
        else:
            size = _SIZE.fullmatch(line[:-2])
            if size is None:
                raise h11.RemoteProtocolError(f"not the head of a chunk: {line[:40]!r}")
            self._left = int(size[1], 16)
            self._end_of_data = self._left > 0
            if not self._left:
                self._trailers = 0
