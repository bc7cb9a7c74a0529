"""A lean route for the hot path, and record answers that pass image bytes through untouched.

`RawRoute` is documented by FastAPI like any other (path, body model, answers), but dispatches by
itself: path parameters, one body model, the endpoint. That leaves out dependency solving and answer
validation, which cost more than the rest of a step on the host.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from osgym_host.episodes.errors import EpisodeError
from osgym_sdk.wire import RECORDS_TYPE

MAX_BODY_BYTES = 16 * 1024 * 1024

T = TypeVar("T")

_HEADER = struct.Struct(">II")
_RECORDS = (b"content-type", RECORDS_TYPE.encode())


class RawRoute(APIRoute):
    """A route whose endpoint takes path parameters (str), at most one body model, and `request`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns the dispatcher in place of FastAPI's own; what the endpoint wants is worked out once."""
        endpoint = self.endpoint
        body_name = ""
        body_type: type[BaseModel] | None = None
        wants_request = False
        for name, parameter in inspect.signature(endpoint, eval_str=True).parameters.items():
            if parameter.annotation is Request:
                wants_request = True
            elif isinstance(parameter.annotation, type) and issubclass(parameter.annotation, BaseModel):
                body_name, body_type = name, parameter.annotation

        async def dispatch(request: Request) -> Response:
            kwargs: dict[str, Any] = dict(request.path_params)
            if body_type is not None:
                kwargs[body_name] = _parse(body_type, await _read(request.receive))
            if wants_request:
                kwargs["request"] = request
            answer: Response = await endpoint(**kwargs)
            return answer

        return dispatch


def _parse(body_type: type[BaseModel], body: bytes) -> BaseModel:
    try:
        return body_type.model_validate_json(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**e, "loc": ("body", *e["loc"])} for e in problems]) from error


async def _read(receive: Receive) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise EpisodeError("bad_request", 413, f"The body is larger than {MAX_BODY_BYTES} bytes.")
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class ClientGone(Exception):
    """The client closed the connection before it had its answer."""


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """Returns what `work` gives; cancels it when the client disconnects first.

    The body must have been read.

    Raises:
        ClientGone: The client went away; `work` was cancelled and has ended.
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


def record_head(meta: Mapping[str, Any], blob_bytes: int) -> bytes:
    """Returns a record without its blob."""
    text = json.dumps(meta, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return _HEADER.pack(len(text), blob_bytes) + text


class RecordResponse(Response):
    """One record. The image is handed to the server as it came, never copied into a longer body."""

    media_type = RECORDS_TYPE

    def __init__(
        self, meta: Mapping[str, Any], blob: bytes | bytearray = b"", status_code: int = 200
    ) -> None:
        """Encodes the meta."""
        self._head = record_head(meta, len(blob))
        self._blob = blob
        self.status_code = status_code
        self.background = None
        length = str(len(self._head) + len(blob)).encode()
        self.raw_headers = [_RECORDS, (b"content-length", length)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if self._blob:
            await send({"type": "http.response.body", "body": self._head, "more_body": True})
            await send({"type": "http.response.body", "body": self._blob})
        else:
            await send({"type": "http.response.body", "body": self._head})


Part = tuple[Mapping[str, Any], bytes]


class RecordStreamResponse(Response):
    """Records, each sent as soon as it is there."""

    media_type = RECORDS_TYPE

    def __init__(self, parts: AsyncIterator[Part]) -> None:
        """Keeps what gives the records; it may not raise."""
        self._parts = parts
        self.status_code = 200
        self.background = None
        self.raw_headers = [_RECORDS]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends each record when it is there."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for meta, blob in self._parts:
            await send(
                {"type": "http.response.body", "body": record_head(meta, len(blob)), "more_body": True}
            )
            if blob:
                await send({"type": "http.response.body", "body": blob, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
