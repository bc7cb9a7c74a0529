"""Head of a request to the proxy, parsed strictly. Pure.

Whatever two readers could take for different requests is refused, so that nothing that was judged as one
request is sent on as another.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from osgym_host.core.egress import is_host_name

MAX_HEAD_BYTES = 32 * 1024
"""Largest request line with headers; browsers send at most some 16 KiB, most of it cookies."""
MAX_HEADERS = 128
MAX_BODY_BYTES = 1 << 40

TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}\Z")
TARGET = re.compile(rb"[\x21-\x7e]+\Z")
VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*\Z")
_DIGITS = re.compile(rb"[0-9]{1,13}\Z")
HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"expect",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""Headers of one connection, not of the message (RFC 9110, section 7.6.1)."""

Headers = tuple[tuple[bytes, bytes], ...]


class Refused(Exception):
    """Refusal of the proxy; a page with `status` and the stable `code` says why."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Target:
    """Target of a request.

    Attributes:
        host: IPv4 address in dotted form, or lower-case name with a dot in it but none at its end.
    """

    host: str
    port: int

    @property
    def is_address(self) -> bool:
        return is_address(self.host)


@dataclass(frozen=True, slots=True)
class Head:
    """Head of one request.

    Attributes:
        target: Target of CONNECT or of an absolute URL; None for a request within a connection to a site.
        path: Path with query, as it was sent; `/` at least. Empty for CONNECT.
        headers: Names in lower case; none of this connection only, no `host`, no `content-length`.
        host: Value of the header Host; empty without one.
        length: Length of the body in bytes; None: it comes in chunks.
        keeps: True if the client may send another request.
    """

    method: str
    target: Target | None
    path: str
    headers: Headers
    host: bytes
    length: int | None
    keeps: bool


def parse(raw: bytes) -> Head:
    """Read a head, with the empty line at its end.

    Raises:
        Refused: The head is malformed or ambiguous, or names no target that can be judged.
    """
    lines = raw.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if len(lines) - 1 > MAX_HEADERS:
        raise Refused(431, "bad_request", f"more than {MAX_HEADERS} headers")
    parts = lines[0].split(b" ")
    if len(parts) != 3 or not TOKEN.match(parts[0]) or not TARGET.match(parts[1]):
        raise _bad("the request's line is malformed")
    if parts[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise Refused(505, "bad_request", "only HTTP/1.1 is spoken here")
    headers = [_header(line) for line in lines[1:]]
    method = parts[0].decode()
    target, path = _target(method, parts[1].decode())
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1:
        raise _bad("more than one header Host")
    new = parts[2] == b"HTTP/1.1"
    options = {
        option.strip().lower()
        for name, value in headers
        if name in (b"connection", b"proxy-connection")
        for option in value.split(b",")
    }
    dropped = HOP_BY_HOP | options | {b"host", b"content-length"}
    return Head(
        method,
        target,
        path,
        tuple((name, value) for name, value in headers if name not in dropped),
        hosts[0] if hosts else b"",
        _length(headers, new),
        b"close" not in options and (new or b"keep-alive" in options),
    )


def _bad(message: str) -> Refused:
    return Refused(400, "bad_request", message)


def _header(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon or not TOKEN.match(name) or not VALUE.match(value):
        raise _bad("a header is malformed")
    return name.lower(), value.strip(b" \t")


def _length(headers: list[tuple[bytes, bytes]], new: bool) -> int | None:
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if codings and lengths:
        raise _bad("a body with both a length and a transfer coding")
    if codings:
        if codings != [b"chunked"] or not new:
            raise _bad("the only transfer coding is chunked, once")
        return None
    if not lengths:
        return 0
    if len(lengths) > 1 or not _DIGITS.match(lengths[0]) or int(lengths[0]) > MAX_BODY_BYTES:
        raise _bad("the body's length is malformed")
    return int(lengths[0])


def _target(method: str, text: str) -> tuple[Target | None, str]:
    if method == "CONNECT":
        host, _, port = text.rpartition(":")
        return Target(parse_host(host), parse_port(port)), ""
    if text.startswith("/"):
        return None, text
    scheme, found, rest = text.partition("://")
    if not found or scheme.lower() != "http":
        raise _bad("neither CONNECT nor a URL of http://")
    end = next((at for at, char in enumerate(rest) if char in "/?#"), len(rest))
    authority, path = rest[:end], rest[end:].partition("#")[0]
    host, colon, port = authority.partition(":")
    target = Target(parse_host(host), parse_port(port) if colon else 80)
    return target, path if path.startswith("/") else f"/{path}"


def is_address(host: str) -> bool:
    """Return whether a host of `parse_host` is an address: the last part of a name begins with a letter."""
    return host.rpartition(".")[2].isdigit()


def parse_port(text: str) -> int:
    """Read a port.

    Raises:
        Refused: The text is no port.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535):
        raise _bad("the port is malformed")
    return int(text)


def parse_host(text: str) -> str:
    """Read a host: an IPv4 address in its usual form, or a name (`core.egress.is_host_name`).

    Raises:
        Refused: The text is no such host. IPv6 addresses are refused as well.
    """
    host = text.lower().removesuffix(".")
    if is_host_name(host):
        return host
    try:
        return str(ipaddress.IPv4Address(host))
    except ValueError:
        raise Refused(
            403, "egress_refused", "neither a full host name nor an IPv4 address in its usual form"
        ) from None
