"""Entries of HAR 1.2, the archive format of browsers and other tools. Pure.

Archives may come from anybody: every field is checked, and nothing in them is a path, a length or code.
Cookies and credentials are neither written nor read.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from osgym_host.runtimes.web import heads
from osgym_host.runtimes.web.heads import HOP_BY_HOP, Headers, Refused, Target

MAX_BODY_BYTES = 64 << 20
_MAX_TEXT_BYTES = 8 << 20
"""Largest body kept as text; others are base64, as one character of JSON can take six bytes."""
MAX_HEADERS = 256
_PORTS = {"http": 80, "https": 443}
_DROPPED = HOP_BY_HOP | {
    b"alt-svc",  # leads around the proxy
    b"clear-site-data",
    b"content-encoding",  # bodies are kept decoded
    b"content-length",
    b"nel",
    b"public-key-pins",
    b"report-to",
    b"reporting-endpoints",
    b"set-cookie",
    b"set-cookie2",
}
_CHARSETS = frozenset(
    ("us-ascii", "iso-8859-1", "iso-8859-15", "windows-1252", "windows-1251", "gbk", "shift_jis")
)
_NOT_PLAIN = frozenset((b"cookie", b"authorization", b"proxy-authorization"))


class ArchiveError(ValueError):
    """Error for an archive that cannot be replayed; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a site to GET.

    Attributes:
        headers: Names in lower case, without those of the connection, of cookies and of the body's form.
        body: Decoded.
    """

    status: int
    headers: Headers
    body: bytes


def url_of(scheme: str, target: Target, path: str) -> str:
    """Return the URL that is the key of an answer: without fragment and usual port."""
    port = "" if target.port == _PORTS[scheme] else f":{target.port}"
    return f"{scheme}://{target.host}{port}{path}"


def kept_headers(headers: Headers) -> Headers:
    return tuple((name.lower(), value) for name, value in headers if name.lower() not in _DROPPED)


def write_entry(url: str, asked: Headers, answer: Answer, started: str, took_ms: float) -> str:
    """Return an entry as one line of JSON.

    Args:
        started: Time of the request, in ISO 8601.
    """
    mime = dict(answer.headers).get(b"content-type", b"").decode("latin-1")
    content: dict[str, Any] = {"size": len(answer.body), "mimeType": mime or "x-unknown"}
    text = _as_text(mime, answer.body)
    content |= {"text": base64.b64encode(answer.body).decode(), "encoding": "base64"}
    if text is not None:
        content["text"] = text
        del content["encoding"]
    nothing: dict[str, Any] = {"httpVersion": "HTTP/1.1", "cookies": [], "headersSize": -1}
    entry = {
        "startedDateTime": started,
        "time": took_ms,
        "request": {
            "method": "GET",
            "url": url,
            **nothing,
            "headers": _pairs(tuple(pair for pair in asked if pair[0] not in _NOT_PLAIN)),
            "queryString": [],
            "bodySize": 0,
        },
        "response": {
            "status": answer.status,
            "statusText": "",
            **nothing,
            "headers": _pairs(answer.headers),
            "content": content,
            "redirectURL": dict(answer.headers).get(b"location", b"").decode("latin-1"),
            "bodySize": len(answer.body),
        },
        "cache": {},
        "timings": {"send": 0, "wait": took_ms, "receive": 0},
    }
    return json.dumps(entry)


def read_entry(entry: object) -> tuple[str, Answer] | None:
    """Read one entry; None for an answer that cannot be replayed: another method, failed, no body.

    Raises:
        ArchiveError: A field is malformed.
    """
    request, response = _object(entry, "request"), _object(entry, "response")
    url, status = request.get("url"), response.get("status")
    if not isinstance(url, str) or not isinstance(status, int):
        raise ArchiveError("an entry without URL or status")
    key = read_url(url)
    content = response.get("content") or {}
    if not isinstance(content, dict):
        raise ArchiveError("an entry's content is malformed")
    text, size = content.get("text"), content.get("size")
    unkept = text is None and isinstance(size, int) and size > 0
    if request.get("method") != "GET" or key is None or not 200 <= status <= 599 or status == 304 or unkept:
        return None
    headers = _headers(response.get("headers"))
    body = _body(text, content.get("encoding"), dict(headers).get(b"content-type", b""))
    if len(body) > MAX_BODY_BYTES:
        raise ArchiveError(f"a body larger than {MAX_BODY_BYTES >> 20} MiB")
    return key, Answer(status, kept_headers(headers), body)


def read_url(url: str) -> str | None:
    """Return the key of a URL; None for one that no request to the proxy can have."""
    try:
        parts = urlsplit(url)
        scheme, port = parts.scheme, parts.port
        if scheme not in _PORTS or parts.username is not None:
            return None
        target = Target(heads.parse_host(parts.hostname or ""), port or _PORTS[scheme])
    except (ValueError, Refused):
        return None
    path = (parts.path or "/") + (
        f"?{parts.query}" if parts.query or url.partition("#")[0].endswith("?") else ""
    )
    if not path.startswith("/") or not path.isascii() or not heads.TARGET.match(path.encode()):
        return None
    return url_of(scheme, target, path)


def _object(value: object, name: str) -> dict[str, Any]:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, dict):
        raise ArchiveError(f"an entry without {name}")
    return found


def _headers(found: object) -> Headers:
    if not isinstance(found, list) or len(found) > 2 * MAX_HEADERS:
        raise ArchiveError("an entry's headers are malformed")
    headers: list[tuple[bytes, bytes]] = []
    for pair in found:
        name, value = (pair.get("name"), pair.get("value")) if isinstance(pair, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(value, str):
            raise ArchiveError("an entry's headers are malformed")
        try:
            raw = name.lower().encode("ascii"), value.strip(" \t").encode("latin-1")
        except UnicodeEncodeError:
            continue  # no server sends it, so no client misses it
        if heads.TOKEN.match(raw[0]) and heads.VALUE.match(raw[1]):  # `:status` of HTTP/2, odd ones
            headers.append(raw)
    return tuple(headers)


def _body(text: object, encoding: object, mime: bytes) -> bytes:
    if text is None:
        return b""
    if not isinstance(text, str):
        raise ArchiveError("an entry's text is malformed")
    if encoding == "base64":
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise ArchiveError("an entry's text is not base64") from None
    for charset in _charsets(mime.decode("latin-1")):
        try:
            return text.encode(charset)
        except UnicodeEncodeError:
            continue
    return text.encode("utf-8", "replace")


def _charsets(mime: str) -> tuple[str, ...]:
    """Return candidates for the charset by which a body was decoded, bytes one by one included, as by
    mitmproxy.
    """
    return (_charset(mime), "utf-8") if _is_text(mime) else ("iso-8859-1", "utf-8")


def _is_text(mime: str) -> bool:
    kind = mime.lower().partition(";")[0].strip()
    return not kind or kind.startswith("text/") or kind.endswith(("json", "xml", "javascript"))


def _charset(mime: str) -> str:
    found = mime.lower().partition("charset=")[2].partition(";")[0].strip(" \"'")
    return found if found in _CHARSETS else "utf-8"


def _as_text(mime: str, body: bytes) -> str | None:
    """Return a body as text if it is text and encodes to the same bytes."""
    if len(body) > _MAX_TEXT_BYTES or not mime or not _is_text(mime) or _charset(mime) != "utf-8":
        return None
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _pairs(headers: Headers) -> list[dict[str, str]]:
    return [{"name": name.decode("latin-1"), "value": value.decode("latin-1")} for name, value in headers]
