"""Chunked bodies: the same as h11 makes of them, however they are cut, and refused where they are none."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_sdk._transport.chunks import MAX_LINE_BYTES, MAX_TRAILERS, ChunkReader


def read(data: bytes, cuts: list[int] | None = None) -> tuple[bytes, ChunkReader]:
    """Feed the bytes, cut into pieces of these lengths (again and again)."""
    reader, out, at, turn = ChunkReader(), b"", 0, 0
    while at < len(data):
        size = len(data) if not cuts else cuts[turn % len(cuts)]
        out += b"".join(reader.feed(data[at : at + size]))
        at, turn = at + size, turn + 1
    return out, reader


def chunked(*parts: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + end


@given(
    st.lists(st.binary(min_size=1, max_size=60), max_size=6),
    st.lists(st.integers(1, 40), min_size=1),
    st.binary(),
)
def test_however_it_is_cut(parts: list[bytes], cuts: list[int], after: bytes) -> None:
    out, reader = read(chunked(*parts) + after, cuts)
    assert (out, reader.done, reader.rest) == (b"".join(parts), True, after)


@given(st.binary(max_size=80), st.lists(st.integers(1, 9), min_size=1))
def test_what_it_takes_h11_takes(data: bytes, cuts: list[int]) -> None:
    try:
        out, reader = read(data, cuts)
    except h11.RemoteProtocolError:
        return
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    http.send(h11.EndOfMessage())
    http.receive_data(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + data)
    assert isinstance(http.next_event(), h11.Response)
    theirs = b""
    while isinstance(event := http.next_event(), h11.Data):
        theirs += event.data
    assert theirs == out
    assert isinstance(event, h11.EndOfMessage) == reader.done


def test_extensions_and_trailers() -> None:
    out, reader = read(b'3;name="x"\r\nabc\r\n0\r\nx-sum: 1\r\n\r\nnext')
    assert (out, reader.done, reader.rest) == (b"abc", True, b"next")


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n", b"-1\r\n", b"0x3\r\nabc\r\n", b"3 3\r\n", b"g\r\n", b"3\nabc\n", b"f" * 16 + b"\r\n",
        b"3\r\nabcd\r\n", b"3\r\nabc\n", b"3;\rx\r\n", b"1" * (MAX_LINE_BYTES + 1),
        b"0\r\n" + b"a: b\r\n" * (MAX_TRAILERS + 1),
    ],
)  # fmt: skip
def test_what_is_no_chunked_body(data: bytes) -> None:
    with pytest.raises(h11.RemoteProtocolError):
        read(data)


def test_the_end_is_missing() -> None:
    out, reader = read(b"5\r\nab")
    assert (out, reader.done) == (b"ab", False)
