"""Answers of the proxy itself: short pages with a status, a stable code and a remedy. Pure."""

from __future__ import annotations

import html
from http import HTTPStatus

from osgym_host.runtimes.web.heads import Refused

CONNECTED = b"HTTP/1.1 200 Connected\r\n\r\n"
"""Answer to CONNECT."""
CODE_HEADER = "osgym-code"
_MAX_SHOWN = 512

_REMEDIES = {
    "egress_refused": "The host's settings `egress` and `egress_allow` say what replicas may reach.",
    "unreachable": "The destination did not answer the host's proxy.",
    "web_not_recorded": "Run the host with `web: record` and open the page once, then replay the archive.",
    "web_not_recordable": "Only answers to GET and HEAD that fit into an archive are recorded.",
    "too_many_connections": "Close some connections of this desktop.",
    "bad_request": "This is an HTTP proxy for the programs of this desktop.",
}


def page(refused: Refused, url: str = "", *, closes: bool = True, body: bool = True) -> bytes:
    """Return the whole answer for a refusal.

    Args:
        url: Requested URL, which the page shows, bounded and escaped.
        closes: True if the connection ends after the answer.
        body: False for HEAD.
    """
    reason = HTTPStatus(refused.status).phrase
    shown = html.escape(url[:_MAX_SHOWN])
    text = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{refused.code}</title>"
        f"<h1>{refused.status} {reason}</h1><p><code>{refused.code}</code>: {html.escape(refused.message)}"
        f"<p>{shown}<p>{_REMEDIES.get(refused.code, '')}</html>\n"
    ).encode()
    closing = "connection: close\r\n" if closes else ""
    head = (
        f"HTTP/1.1 {refused.status} {reason}\r\ncontent-type: text/html; charset=utf-8\r\n"
        f"content-length: {len(text)}\r\ncache-control: no-store\r\n{CODE_HEADER}: {refused.code}\r\n"
        f"{closing}\r\n"
    ).encode()
    return head + (text if body else b"")
