"""`/ui`: the dashboard, a page that asks the API what everybody may ask who has the token."""

from __future__ import annotations

import hashlib
import re
from importlib import resources

from fastapi import APIRouter, Response
from starlette.requests import Request

from osgym_host.errors import ServiceError
from osgym_protocol.codes import ErrorCode

PATH = "/ui"
_PART = re.compile(r"(/hosts/[^/]+)?/ui(/[^/]*)?")
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def is_part(path: str) -> bool:
    """Whether a path is of the page or a part of it, which is no secret: what it shows is asked for apart."""
    return _PART.fullmatch(path) is not None


def make_router(prefix: str = "", index: str = "index.html") -> APIRouter:
    """Return the routes: the page and its parts, which say nothing of a host.

    Args:
        prefix: where the page and the API are that it asks, for who serves the pages of several hosts.
    """
    router = APIRouter(include_in_schema=False, prefix=prefix)
    parts = _parts()

    @router.get(PATH)
    @router.get(PATH + "/{name}")
    async def part(request: Request, name: str = index) -> Response:
        found = parts.get(name)
        if found is None:
            raise ServiceError(ErrorCode.NOT_FOUND, "The dashboard has no such part.")
        data, etag = found
        headers = {**_HEADERS, "ETag": etag}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(data, headers=headers, media_type=_TYPES[name.rpartition(".")[2]])

    return router


def _parts() -> dict[str, tuple[bytes, str]]:
    """Return the bytes and the `ETag` of each part by its name."""
    folder = resources.files(__name__).joinpath("page")
    found = {
        item.name: item.read_bytes() for item in folder.iterdir() if item.name.rpartition(".")[2] in _TYPES
    }
    return {name: (data, f'"{hashlib.sha256(data).hexdigest()[:16]}"') for name, data in found.items()}
