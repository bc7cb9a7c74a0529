"""Requests, responses and routes of the agent's HTTP server (`osgym_guest.server`).

A fault of the caller is a 4xx with the body ``{"code", "message", "details"}``. A part of the agent
adds its endpoints in one function, ``register(router, ...)``, and imports what is heavy inside its
handlers, at first use.
"""

from __future__ import annotations

import json
import mmap
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osgym_guest.urlencoded import Form, parse_multipart, parse_urlencoded
from osgym_protocol.codes import GuestErrorCode

Body = bytes | mmap.mmap

# What json.loads and json.dumps do besides costs each clone the translation of code that it runs once.
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # the stub has no scan_once
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_SPACE = " \t\n\r"


def to_json(value: Any) -> bytes:
    """A value as JSON."""
    return _encode(value).encode("utf-8", "replace")


class HttpError(Exception):
    """An answer that is not a success, raised by a handler or by the server itself.

    Attributes:
        status: HTTP status, 400 to 599.
        code: stable name of the error.
        message: one sentence for people.
        details: more, as JSON.
    """

    def __init__(
        self, status: int, code: GuestErrorCode, message: str, details: Mapping[str, Any] | None = None
    ):
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.details = dict(details or {})

    def response(self) -> Response:
        """The error as the JSON answer that all clients of the agent know."""
        body = {"code": self.code, "message": self.message, "details": self.details}
        return Response.json(body, status=self.status)


def failure_response(exc: Exception) -> Response:
    """Return the answer to a request whose handler raised; what was not meant to be raised is logged."""
    if isinstance(exc, HttpError):
        return exc.response()
    traceback.print_exception(exc, file=sys.stderr)
    return HttpError(500, GuestErrorCode.INTERNAL, f"{type(exc).__name__}: {exc}").response()


def bad(message: str) -> HttpError:
    """Return the 400 for a malformed request."""
    return HttpError(400, GuestErrorCode.BAD_REQUEST, message)


@dataclass(frozen=True)
class Request:
    """One request, read completely.

    Attributes:
        method: upper case.
        path: decoded path without the query.
        query: decoded query fields; of a repeated field the last one counts.
        headers: names in lower case.
        body: bytes, or a read-only memory map of a temporary file when it was large.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body = b""

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            HttpError: 400 ``bad_json`` when it is not JSON.
        """
        try:
            text = str(self.body, "utf-8").strip(_SPACE)
            value, end = _scan(text, 0)
        except (ValueError, StopIteration, RecursionError) as exc:
            raise HttpError(400, GuestErrorCode.BAD_JSON, f"the body is not JSON: {exc}") from exc
        if end != len(text):
            raise HttpError(400, GuestErrorCode.BAD_JSON, "the body is not JSON: something follows its end")
        return value

    def json_object(self) -> dict[str, Any]:
        """The body as a JSON object; an empty body is an empty object.

        Raises:
            HttpError: 400 ``bad_json`` when it is not a JSON object.
        """
        if len(self.body) == 0:
            return {}
        value = self.json()
        if not isinstance(value, dict):
            raise HttpError(400, GuestErrorCode.BAD_JSON, "the body must be a JSON object")
        return value

    def form(self) -> Form:
        """The fields and files of an urlencoded or multipart form.

        Raises:
            HttpError: 400 ``bad_form`` when the body is not a well-formed form.
        """
        content_type = self.headers.get("content-type", "")
        try:
            if content_type.lower().startswith("multipart/form-data"):
                return parse_multipart(self.body, content_type)
            if content_type.lower().startswith("application/x-www-form-urlencoded"):
                return Form(parse_urlencoded(bytes(self.body).decode("utf-8")), {})
        except ValueError as exc:
            raise HttpError(400, GuestErrorCode.BAD_FORM, str(exc)) from exc
        raise HttpError(
            400, GuestErrorCode.BAD_FORM, "the body must be a form", {"content_type": content_type}
        )


@dataclass(frozen=True)
class Response:
    """One answer.

    Attributes:
        status: HTTP status.
        headers: additional headers; Content-Length is added by the server.
        body: bytes, or a list of buffers that are written one after the other.
        file: when given, this file is streamed instead of `body`.
        then: called when the answer is on its way, before any other request is served.
        take_over: given the connection's socket, and what has come over it since, once the head is sent.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Sequence[bytes | memoryview] = b""
    file: Path | None = None
    then: Callable[[], None] | None = None
    take_over: Callable[[int, bytes], None] | None = None

    @staticmethod
    def json(value: Any, *, status: int = 200, then: Callable[[], None] | None = None) -> Response:
        """An answer with `value` as JSON."""
        return Response(status, {"Content-Type": "application/json"}, to_json(value), then=then)

    @staticmethod
    def text(value: str, *, status: int = 200) -> Response:
        """An answer with `value` as UTF-8 text."""
        return Response(status, {"Content-Type": "text/plain; charset=utf-8"}, value.encode())

    @staticmethod
    def data(value: bytes, content_type: str = "application/octet-stream") -> Response:
        """An answer with raw bytes."""
        return Response(200, {"Content-Type": content_type}, value)

    @staticmethod
    def stream(path: Path, content_type: str = "application/octet-stream") -> Response:
        """An answer with the bytes of a file, streamed."""
        return Response(200, {"Content-Type": content_type}, file=path)


Handler = Callable[[Request], Response | Awaitable[Response]]
"""A function that answers at once, or a coroutine function."""


@dataclass(frozen=True)
class Route:
    """One endpoint: its handler, the largest body it takes, its deadline, whether it ends with its caller."""

    handler: Handler
    max_body: int
    deadline_s: float
    ends_with_caller: bool = False


class Router:
    """Exact method and path to handler."""

    def __init__(self) -> None:
        self._routes: dict[str, dict[str, Route]] = {}

    def add(
        self,
        method: str,
        path: str,
        handler: Handler,
        *,
        max_body: int = 1 << 20,
        deadline_s: float = 30.0,
        ends_with_caller: bool = False,
    ) -> None:
        """Add an endpoint.

        Args:
            method: HTTP method, upper case.
            path: exact path, such as ``/v1/step``.
            handler: may raise `HttpError`.
            max_body: a larger body is refused with 413, unread.
            deadline_s: a handler that takes longer is cancelled and answered with 504 ``deadline``.
            ends_with_caller: the handler is cancelled when its caller closes the connection.
        """
        methods = self._routes.setdefault(path, {})
        if method in methods:
            raise ValueError(f"{method} {path} is there already")
        methods[method] = Route(handler, max_body, deadline_s, ends_with_caller)

    def find(self, method: str, path: str) -> Route:
        """The endpoint of a request.

        Raises:
            HttpError: 404 ``not_found`` or 405 ``method_not_allowed``.
        """
        methods = self._routes.get(path)
        if methods is None:
            raise HttpError(404, GuestErrorCode.NOT_FOUND, f"there is no {path}")
        route = methods.get(method)
        if route is None:
            allowed = sorted(methods)
            raise HttpError(
                405, GuestErrorCode.METHOD_NOT_ALLOWED, f"{path} takes {allowed}", {"allowed": allowed}
            )
        return route
