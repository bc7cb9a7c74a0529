"""Bounds of the size and the transfer time of every request's body."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from osgym_host.http.errors import error_answer
from osgym_protocol.codes import ErrorCode
from osgym_protocol.limits import MAX_BODY_BYTES
from osgym_protocol.observation import ErrorInfo

STREAMED = frozenset(("/v1/checkpoints/import",))
"""Paths whose body is read and bounded in pieces."""
TUNNEL_SUFFIX = "/tunnel"
"""End of the path of a connection to a port, whose body has no end of its own and may be idle."""
IDLE_S = 20.0
"""Longest time without a byte of a body."""
BODY_S = 300.0
"""Longest time for a whole body that is not streamed."""


class BodyRefused(Exception):
    """The body is too large or too slow."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class BoundedBodies:
    """ASGI middleware that reads a request's body whole before the call is handled."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body and pass the call on, or answer 413 or 408."""
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        if scope["path"].startswith("/v1/episodes/") and scope["path"].endswith(TUNNEL_SUFFIX):
            await self._app(scope, receive, send)
            return
        if scope["path"] in STREAMED:
            await self._app(scope, _never_idle(receive), send)
            return
        try:
            body = await _whole(scope, receive)
        except BodyRefused as refused:
            info = ErrorInfo(ErrorCode.BAD_REQUEST, refused.message)
            await error_answer(scope["path"], info, refused.status)(scope, receive, send)
            return
        if body is not None:
            await self._app(scope, _replayed(body, receive), send)


def _has_body(scope: Scope) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])


async def _whole(scope: Scope, receive: Receive) -> bytes | None:
    """Return the body, or None after a disconnect.

    Raises:
        BodyRefused: The body is too large or too slow.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > MAX_BODY_BYTES:
            raise _too_large()
    parts: list[bytes] = []
    size = 0
    ends = asyncio.get_running_loop().time() + BODY_S
    while True:
        message = await _next(receive, ends)
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise _too_large()
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def _next(receive: Receive, ends: float) -> Message:
    try:
        async with asyncio.timeout(min(IDLE_S, ends - asyncio.get_running_loop().time())):
            return await receive()
    except TimeoutError:
        raise BodyRefused(
            408, f"No part of the body arrived for {IDLE_S:g} s, or it took too long."
        ) from None


def _too_large() -> BodyRefused:
    return BodyRefused(413, f"The body is larger than {MAX_BODY_BYTES} bytes.")


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a receiver that gives the body, and then the connection's messages."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


def _never_idle(receive: Receive) -> Receive:
    """Return a receiver that reports a disconnect once a client has sent nothing for `IDLE_S`."""
    more = True

    async def bounded() -> Message:
        nonlocal more
        if not more:
            return await receive()
        try:
            async with asyncio.timeout(IDLE_S):
                message = await receive()
        except TimeoutError:
            return {"type": "http.disconnect"}
        more = bool(message.get("more_body", False))
        return message

    return bounded
