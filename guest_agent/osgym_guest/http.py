"""Requests, responses and routes of the agent's HTTP server (`osgym_guest.server`).

A fault of the caller is a 4xx with the body ``{"code", "message", "details"}``. Each part of the agent adds
its endpoints in one function, ``register(router, ...)``, and imports heavy modules inside its handlers, at
first use.
"""

from __future__ import annotations

import json
import mmap
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
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
    return _encode(value).encode("utf-8", "replace")


class HttpError(Exception):
    """An error answer, raised by a handler or by the server itself.

    Attributes:
        status: HTTP status, 400 to 599.
        code: Stable name of the error.
        message: One sentence for people.
        details: Further facts as JSON.
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
        """Return the error as the JSON answer that all clients of the agent know."""
        body = {"code": self.code, "message": self.message, "details": self.details}
        return Response.json(body, status=self.status)


def failure_response(exc: Exception) -> Response:
    """Return the answer to a request whose handler raised. Unexpected exceptions are logged."""
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
        method: Method in upper case.
        path: Decoded path without the query.
        query: Decoded query fields; the last one of a repeated field.
        headers: Headers with names in lower case.
        body: Bytes, or a read-only memory map of a temporary file for a large body.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body = b""

    def json(self) -> Any:
        """Return the body as JSON. Raises HttpError: 400 ``bad_json`` when it is not JSON."""
        try:
            text = str(self.body, "utf-8").strip(_SPACE)
            value, end = _scan(text, 0)
        except (ValueError, StopIteration, RecursionError) as exc:
            raise HttpError(400, GuestErrorCode.BAD_JSON, f"the body is not JSON: {exc}") from exc
        if end != len(text):
            raise HttpError(400, GuestErrorCode.BAD_JSON, "the body is not JSON: text follows its end")
        return value

    def json_object(self) -> dict[str, Any]:
        """Return the body as a JSON object; an empty body is an empty object.

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
        """Return the fields and files of an urlencoded or multipart form.

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
        headers: Additional headers; the server adds Content-Length.
        body: Bytes, or a list of buffers that are written one after the other.
        file: File that is streamed instead of `body`.
        then: Called when the answer is being sent, before any other request is served.
        take_over: Called with the connection's socket, and the bytes received since, once the head is sent.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Sequence[bytes | memoryview] = b""
    file: Path | None = None
    then: Callable[[], None] | None = None
    take_over: Callable[[int, bytes], None] | None = None

    @staticmethod
    def json(value: Any, *, status: int = 200, then: Callable[[], None] | None = None) -> Response:
        return Response(status, {"Content-Type": "application/json"}, to_json(value), then=then)

    @staticmethod
    def text(value: str, *, status: int = 200) -> Response:
        return Response(status, {"Content-Type": "text/plain; charset=utf-8"}, value.encode())

    @staticmethod
    def data(value: bytes, content_type: str = "application/octet-stream") -> Response:
        return Response(200, {"Content-Type": content_type}, value)

    @staticmethod
    def stream(path: Path, content_type: str = "application/octet-stream") -> Response:
        """Return an answer that streams a file."""
        return Response(200, {"Content-Type": content_type}, file=path)


Handler = Callable[[Request], Response | Awaitable[Response]]
"""Function that answers at once, or a coroutine function."""


@dataclass(frozen=True)
class Route:
    """One endpoint: handler, largest body, deadline, and whether the handler ends with its caller."""

    handler: Handler
    max_body: int
    deadline_s: float
    ends_with_caller: bool = False


class Router:
    """Endpoints by method and exact path."""

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
            path: Exact path, such as ``/v1/step``.
            handler: Function of the request; may raise `HttpError`.
            max_body: Largest body; a larger one is refused unread with 413.
            deadline_s: Time after which the handler is cancelled and answered with 504 ``deadline``.
            ends_with_caller: The handler is cancelled when its caller closes the connection.
        """
        methods = self._routes.setdefault(path, {})
        if method in methods:
            raise ValueError(f"{method} {path} is registered twice")
        methods[method] = Route(handler, max_body, deadline_s, ends_with_caller)

    def find(self, method: str, path: str) -> Route:
        """Return the endpoint of a request.

        Raises:
            HttpError: 404 ``not_found`` or 405 ``method_not_allowed``.
        """
        methods = self._routes.get(path)
        if methods is None:
            raise HttpError(404, GuestErrorCode.NOT_FOUND, f"unknown path {path}")
        route = methods.get(method)
        if route is None:
            allowed = sorted(methods)
            raise HttpError(
                405, GuestErrorCode.METHOD_NOT_ALLOWED, f"{path} accepts {allowed}", {"allowed": allowed}
            )
        return route


@dataclass(frozen=True)
class Endpoint:
    """Location of a handler, ``async def name(context, request) -> Response`` in `module` of a package.

    The module is imported when the endpoint is first called, since most replicas need few of them and every
    replica pays for what is loaded.
    """

    method: str
    path: str
    module: str
    name: str
    deadline_s: float = 30.0
    max_body: int = 64 * 1024
    ends_with_caller: bool = False

    def handler(self, package: str, context: object) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that calls the one in the package."""

        async def handle(request: Request) -> Response:
            module = import_module(f"{package}.{self.module}")
            response: Response = await getattr(module, self.name)(context, request)
            return response

        return handle

    def add_to(self, router: Router, handler: Handler) -> None:
        """Add a handler to a router for this endpoint's path, with its bounds."""
        router.add(
            self.method,
            self.path,
            handler,
            max_body=self.max_body,
            deadline_s=self.deadline_s,
            ends_with_caller=self.ends_with_caller,
        )
