"""Lean route for the hot path, and record answers that pass image bytes through without copies.

`RawRoute` is documented by FastAPI like any other (path, body, answers), but dispatches by itself: path
parameters, one message of the protocol as the body, the endpoint. That leaves out dependency solving and
answer validation, which cost more than the rest of a step on the host.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from osgym_protocol.records import RECORDS_TYPE, Record, record_head

T = TypeVar("T")

WHOLE_BYTES = 1024 * 1024
"""Size up to which an image is sent in one piece; most frames of 1920x1080 are smaller."""
PIECE_BYTES = 256 * 1024
_RECORDS = (b"content-type", RECORDS_TYPE.encode())


class RawRoute(APIRoute):
    """A route whose endpoint takes path parameters (str), at most one message as its body, and `request`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the dispatcher in place of FastAPI's own; the endpoint's signature is read once."""
        endpoint = self.endpoint
        body_name = ""
        body_type: TypeAdapter[Any] | None = None
        wants_request = False
        for name, parameter in inspect.signature(endpoint, eval_str=True).parameters.items():
            if parameter.annotation is Request:
                wants_request = True
            elif dataclasses.is_dataclass(parameter.annotation):
                body_name, body_type = name, TypeAdapter(cast(Any, parameter.annotation))

        async def dispatch(request: Request) -> Response:
            kwargs: dict[str, Any] = dict(request.path_params)
            if body_type is not None:
                kwargs[body_name] = _parse(body_type, await _read(request.receive))
            if wants_request:
                kwargs["request"] = request
            answer: Response = await endpoint(**kwargs)
            return answer

        return dispatch


def _parse(body_type: TypeAdapter[Any], body: bytes) -> Any:
    try:
        return body_type.validate_json(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**e, "loc": ("body", *e["loc"])} for e in problems]) from error


async def _read(receive: Receive) -> bytes:
    """Return the body, which `osgym_host.http.bodies` has bounded and read whole."""
    chunks: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class ClientGone(Exception):
    """The client closed the connection before it had its answer."""


async def cancel_on_disconnect(request: Request, work: Awaitable[T]) -> T:
    """Return the result of `work`; cancel it if the client disconnects first.

    The body must have been read.

    Raises:
        ClientGone: The client disconnected; `work` was cancelled and has ended.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue


async def _send_blob(send: Send, blob: bytes | memoryview, *, more: bool = False) -> None:
    """Send an image; a large one in pieces, since asyncio copies what the socket does not take at once."""
    if len(blob) > WHOLE_BYTES:
        view = memoryview(blob)
        last = (len(blob) - 1) // PIECE_BYTES * PIECE_BYTES
        for begin in range(0, last, PIECE_BYTES):
            piece = view[begin : begin + PIECE_BYTES]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)  # sending waits only while the client is slower
        blob = view[last:]
    await send({"type": "http.response.body", "body": blob, "more_body": more})


class RecordResponse(Response):
    """One record. The image is handed to the server without a copy."""

    media_type = RECORDS_TYPE

    def __init__(self, record: Record, status_code: int = 200) -> None:
        """Encode the meta. (FastAPI documents the default of `status_code`.)"""
        self._head = record_head(record.meta, len(record.blob))
        self._blob = record.blob
        self.status_code = status_code
        self.background = None
        length = str(len(self._head) + len(record.blob)).encode()
        self.raw_headers = [_RECORDS, (b"content-length", length)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if self._blob:
            await send({"type": "http.response.body", "body": self._head, "more_body": True})
            await _send_blob(send, self._blob)
        else:
            await send({"type": "http.response.body", "body": self._head})


class ImageResponse(Response):
    """PNG of a guest."""

    media_type = "image/png"

    def __init__(self, image: bytes | memoryview) -> None:
        self._image = image
        self.status_code = 200
        self.background = None
        length = str(len(image)).encode()
        self.raw_headers = [(b"content-type", b"image/png"), (b"content-length", length)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await _send_blob(send, self._image)


class RecordStreamResponse(Response):
    """Records, each sent as soon as it is ready."""

    media_type = RECORDS_TYPE

    def __init__(self, records: AsyncIterator[Record]) -> None:
        """Stream `records`, which must not raise."""
        self._records = records
        self.status_code = 200
        self.background = None
        self.raw_headers = [_RECORDS]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for record in self._records:
            head = record_head(record.meta, len(record.blob))
            await send({"type": "http.response.body", "body": head, "more_body": True})
            if record.blob:
                await _send_blob(send, record.blob, more=True)
        await send({"type": "http.response.body", "body": b""})
