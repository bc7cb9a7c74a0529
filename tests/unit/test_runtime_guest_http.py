"""Parsing what a hostile guest sends: strict, bounded, and never another error than its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.guest_client.errors import GuestAnswerTooLarge, GuestProtocolError
from osgym_host.guest_client.http import MAX_HEADERS, chunk_size, content_length, parse_head


def test_a_plain_head_is_parsed() -> None:
    """Version, status and headers with names in lower case come back."""
    head = b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\nX-A:  b c "
    assert parse_head(head) == ("1.1", 404, {"content-length": "3", "x-a": "b c"})
    assert parse_head(b"HTTP/1.0 200") == ("1.0", 200, {})


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"HTTP/2 200 OK",
        b"HTTP/1.1 100 Continue",
        b"HTTP/1.1 999 X",
        b"HTTP/1.1 2x0 X",
        b"HTTP/1.1  200",
        "HTTP/1.1 ²00 OK".encode("latin-1"),
        b"HTTP/1.1 200 OK\r\nno colon",
        b"HTTP/1.1 200 OK\r\n: empty",
        b"HTTP/1.1 200 OK\r\n folded: x",
        b"HTTP/1.1 200 OK\r\nname : x",
        b"HTTP/1.1 200 OK\r\na: b\nc: d",
        b"HTTP/1.1 200 OK\r\na: b\0",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\ncontent-length: 2",
        b"HTTP/1.1 200 OK" + b"\r\na: b" * (MAX_HEADERS + 1),
    ],
)
def test_a_malformed_head_is_refused(head: bytes) -> None:
    """Whatever is not plainly well-formed is a protocol error."""
    with pytest.raises(GuestProtocolError):
        parse_head(head)


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", " 1", "1 ", "0x10", "१", "1" * 16, "1_0"])
def test_a_malformed_length_is_refused(text: str) -> None:
    """Only plain digits are a length."""
    with pytest.raises(GuestProtocolError):
        content_length(text, 100)


def test_a_length_over_the_bound_is_refused_by_name() -> None:
    """Too large is told from malformed."""
    assert content_length("100", 100) == 100
    with pytest.raises(GuestAnswerTooLarge):
        content_length("101", 100)


@pytest.mark.parametrize("line", [b"", b"-1", b"0x1", b"g", b" ", b"1" * 13, b";x"])
def test_a_malformed_chunk_size_is_refused(line: bytes) -> None:
    """Only hexadecimal digits are a chunk size."""
    with pytest.raises(GuestProtocolError):
        chunk_size(line)


def test_a_chunk_size_may_have_an_extension() -> None:
    """What follows a semicolon is ignored."""
    assert chunk_size(b"1F;name=value") == 31


@given(st.binary(max_size=300))
def test_no_head_raises_anything_else(data: bytes) -> None:
    """Arbitrary bytes are parsed or refused."""
    for head in (data, b"HTTP/1.1 200 OK\r\n" + data):
        try:
            _version, status, _headers = parse_head(head)
        except GuestProtocolError:
            continue
        assert 200 <= status <= 599
