"""Strict reading of HTTP/1.1 heads, shared by the guest agent's server and the host's client of guests.

A head that two readers could understand differently is refused. Regular expressions are avoided, since each
cloned machine would run their compilation.
"""

from __future__ import annotations

MAX_LENGTH_DIGITS = 15
"""Number of digits of a body's length."""


class MalformedHead(ValueError):
    """A head is not plainly well-formed HTTP/1.1; the message has the reason."""


def split_head(head: bytes, most: int) -> tuple[str, dict[str, str]]:
    """Split a head into its first line and its headers, whose names are in lower case.

    Args:
        head: Head without the empty line at its end.
        most: Number of headers.

    Raises:
        MalformedHead: There are more headers, one is malformed, or one that frames the body is repeated.
    """
    first, *lines = head.decode("latin-1").split("\r\n")
    if len(lines) > most:
        raise MalformedHead(f"more than {most} headers")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or "\n" in line or "\r" in line or "\0" in line:
            raise MalformedHead(f"malformed header: {line[:80]!r}")
        name = name.lower()
        if name in headers and name in ("content-length", "transfer-encoding"):
            raise MalformedHead(f"repeated header: {name}")
        headers[name] = value.strip()
    return first, headers


def parse_length(text: str) -> int:
    """Parse the value of Content-Length.

    Raises:
        MalformedHead: It is not plain decimal digits, or too many of them.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_LENGTH_DIGITS):
        raise MalformedHead(f"malformed content length: {text[:40]!r}")
    return int(text)
