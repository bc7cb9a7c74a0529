"""Calls of the page that the dashboard passes on to a host, with the host's token: which ones may pass."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

_LOOKING = re.compile(
    r"access|host|pool|replicas|replicas/[^/]+/screenshot|events|history|runs|runs/[^/]+"
    r"|episodes|episodes/[^/]+/lines|episodes/[^/]+/frames/[0-9]+|episodes/[^/]+/replay"
)
_USING = {
    "POST": re.compile(r"episodes|episodes/[^/]+/(step|observe)|replicas/[^/]+/(intervene|fork|checkpoint)"),
    "DELETE": re.compile(r"episodes/[^/]+"),
}
_ASKED = ("accept", "content-type", "if-none-match", "osgym-lease")
_ANSWERED = (
    "content-type", "content-disposition", "content-security-policy", "etag", "cache-control", "retry-after",
)  # fmt: skip

MAX_BODY_BYTES = 1 << 20
"""Upper bound of a call's body: a person's step fits, whole files are not passed on."""


def may_pass(method: str, path: str, *, read_only: bool) -> bool:
    """Return whether a call may go to a host; `path` is the part after `/v1/`.

    >>> may_pass("GET", "replicas/r1/screenshot", read_only=True)
    True
    >>> may_pass("POST", "drain", read_only=False)
    False
    """
    if ".." in path.split("/"):
        return False
    if method == "GET":
        return _LOOKING.fullmatch(path) is not None
    allowed = _USING.get(method)
    return not read_only and allowed is not None and allowed.fullmatch(path) is not None


def host_path(path: str, query: str) -> str:
    """Return the encoded path of a host's API with its query."""
    return f"/v1/{quote(path, safe='/')}" + (f"?{query}" if query else "")


def request_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the page's headers that are passed on to a host; never the token for the dashboard."""
    return {name: headers[name] for name in _ASKED if name in headers}


def response_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the host's headers that are passed on to the page."""
    return {name: headers[name] for name in _ANSWERED if name in headers}
