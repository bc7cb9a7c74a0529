"""Endpoints below ``/v1/reach``: commands, files, windows, videos and ports of the desktop for its client.

Unlike OSWorld's endpoints they take paths as they are, have an error code for every fault of the caller,
never run a command twice, and connect to ports. As with those, a handler's module is imported when its
endpoint is first called.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from osgym_guest.http import Handler, Request, Response, Router
from osgym_guest.osworld.context import OsworldContext
from osgym_guest.reach.context import ReachContext
from osgym_protocol.limits import MAX_COMMAND_S, MAX_STDIN_BYTES, MAX_WRITE_BYTES

MAX_ORDER_BYTES = 2 * MAX_STDIN_BYTES + (1 << 20)


@dataclass(frozen=True)
class ReachEndpoint:
    """Location of a handler: ``async def name(context, request) -> Response`` in `module`."""

    path: str
    module: str
    name: str
    deadline_s: float = 30.0
    max_body: int = 64 * 1024
    ends_with_caller: bool = False


ENDPOINTS = (
    ReachEndpoint("/v1/reach/execute", "execute", "execute", MAX_COMMAND_S + 30.0, MAX_ORDER_BYTES, True),
    ReachEndpoint("/v1/reach/read", "files", "read"),
    ReachEndpoint("/v1/reach/write", "files", "write", 60.0, MAX_WRITE_BYTES),
    ReachEndpoint("/v1/reach/windows", "windows", "windows"),
    ReachEndpoint("/v1/reach/record/start", "record", "start"),
    ReachEndpoint("/v1/reach/record/end", "record", "end"),
    ReachEndpoint("/v1/reach/tunnel", "tunnel", "tunnel"),
)


def register(router: Router, desktop: OsworldContext) -> None:
    context = ReachContext(desktop)
    for endpoint in ENDPOINTS:
        handler = _handler(endpoint, context)
        router.add(
            "POST",
            endpoint.path,
            handler,
            max_body=endpoint.max_body,
            deadline_s=endpoint.deadline_s,
            ends_with_caller=endpoint.ends_with_caller,
        )


def _handler(endpoint: ReachEndpoint, context: ReachContext) -> Handler:
    async def handle(request: Request) -> Response:
        module = import_module(f"{__name__}.{endpoint.module}")
        response: Response = await getattr(module, endpoint.name)(context, request)
        return response

    return handle
