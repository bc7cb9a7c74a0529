"""What the page asks of one host goes through us, with the host's token: which calls those may be."""

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
"""Of a call to use a desktop: steps of a person. Whole files are not passed on."""


def may_pass(method: str, path: str, *, read_only: bool) -> bool:
    """Whether a call may go to a host; `path` is what follows `/v1/`.

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
    """Return the path of a host's API, with its query, both as they travel."""
    return f"/v1/{quote(path, safe='/')}" + (f"?{query}" if query else "")


def asked(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that a host gets of those that the page sent; never its token for us."""
    return {name: headers[name] for name in _ASKED if name in headers}


def answered(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that the page gets of those that a host sent."""
    return {name: headers[name] for name in _ANSWERED if name in headers}
