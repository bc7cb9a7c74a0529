"""Endpoints below ``/v1/reach``: commands, files, windows, videos and ports of the desktop for its client.

Unlike OSWorld's endpoints they take paths as they are, have an error code for every fault of the caller,
never run a command twice, and connect to ports.
"""

from __future__ import annotations

from osgym_guest.http import Endpoint, Router
from osgym_guest.osworld.context import OsworldContext
from osgym_guest.reach.context import ReachContext
from osgym_protocol.limits import MAX_COMMAND_S, MAX_STDIN_BYTES, MAX_WRITE_BYTES

MAX_ORDER_BYTES = 2 * MAX_STDIN_BYTES + (1 << 20)


ENDPOINTS = (
    Endpoint("POST", "/v1/reach/execute", "execute", "execute", MAX_COMMAND_S + 30.0, MAX_ORDER_BYTES, True),
    Endpoint("POST", "/v1/reach/read", "files", "read"),
    Endpoint("POST", "/v1/reach/write", "files", "write", 60.0, MAX_WRITE_BYTES),
    Endpoint("POST", "/v1/reach/windows", "windows", "windows"),
    Endpoint("POST", "/v1/reach/record/start", "record", "start"),
    Endpoint("POST", "/v1/reach/record/end", "record", "end"),
    Endpoint("POST", "/v1/reach/tunnel", "tunnel", "tunnel"),
)


def register(router: Router, desktop: OsworldContext) -> None:
    context = ReachContext(desktop)
    for endpoint in ENDPOINTS:
        endpoint.add_to(router, endpoint.handler(__name__, context))
