"""Endpoints of OSWorld's guest server, so that its controllers work with our replicas unchanged.

`register` only names them. A handler's module is imported when its endpoint is first called, since most
replicas need few of them and every replica pays for what is loaded.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module

from osgym_guest.http import Handler, HttpError, Request, Response, Router
from osgym_guest.osworld.context import Desktop, OsworldContext
from osgym_guest.osworld.session import DesktopSession

MAX_UPLOAD_BYTES = 1 << 30
MAX_JSON_BYTES = 8 << 20


@dataclass(frozen=True)
class OsworldEndpoint:
    """Location of a handler: ``async def name(context, request) -> Response`` in `module`."""

    method: str
    path: str
    module: str
    name: str
    deadline_s: float = 30.0
    max_body: int = 64 * 1024
    ends_with_caller: bool = False


ENDPOINTS = (
    OsworldEndpoint("GET", "/screenshot", "screen", "screenshot"),
    OsworldEndpoint("POST", "/screen_size", "screen", "screen_size"),
    OsworldEndpoint("GET", "/cursor_position", "screen", "cursor_position"),
    OsworldEndpoint("GET", "/platform", "screen", "platform"),
    OsworldEndpoint("POST", "/window_size", "screen", "window_size"),
    OsworldEndpoint("POST", "/desktop_path", "screen", "desktop_path"),
    OsworldEndpoint("POST", "/wallpaper", "wallpaper", "get_wallpaper"),
    OsworldEndpoint("POST", "/setup/change_wallpaper", "wallpaper", "change_wallpaper"),
    OsworldEndpoint("GET", "/terminal", "accessibility", "terminal"),
    OsworldEndpoint("GET", "/accessibility", "accessibility", "accessibility", 45.0),
    OsworldEndpoint("POST", "/execute", "commands", "execute", 630.0, MAX_JSON_BYTES, True),
    OsworldEndpoint("POST", "/setup/execute", "commands", "execute", 630.0, MAX_JSON_BYTES, True),
    OsworldEndpoint(
        "POST", "/execute_with_verification", "commands", "execute_verified", 1260.0, MAX_JSON_BYTES, True
    ),
    OsworldEndpoint(
        "POST",
        "/setup/execute_with_verification",
        "commands",
        "execute_verified",
        1260.0,
        MAX_JSON_BYTES,
        True,
    ),
    OsworldEndpoint("POST", "/setup/launch", "commands", "launch", 30.0, MAX_JSON_BYTES),
    OsworldEndpoint("POST", "/run_python", "scripts", "run_python", 60.0, MAX_JSON_BYTES, True),
    OsworldEndpoint("POST", "/run_bash_script", "scripts", "run_bash_script", 630.0, MAX_JSON_BYTES, True),
    OsworldEndpoint("POST", "/file", "files", "get_file", 60.0),
    OsworldEndpoint("POST", "/list_directory", "files", "list_directory", 60.0),
    OsworldEndpoint("POST", "/setup/upload", "files", "upload", 600.0, MAX_UPLOAD_BYTES),
    OsworldEndpoint("POST", "/setup/open_file", "open_file", "open_file", 630.0),
    OsworldEndpoint("POST", "/setup/download_file", "download", "download_file", 330.0),
    OsworldEndpoint("POST", "/start_recording", "screen", "start_recording"),
    OsworldEndpoint("POST", "/end_recording", "screen", "end_recording"),
    OsworldEndpoint("POST", "/setup/activate_window", "screen", "activate_window"),
    OsworldEndpoint("POST", "/setup/close_window", "screen", "close_window"),
)


def register(
    router: Router, desktop: Desktop, session: DesktopSession | None = None, *, helper_warm_s: float = 60.0
) -> OsworldContext:
    """Add OSWorld's endpoints to a router.

    Args:
        router: Router of the agent.
        desktop: Screen and pointer.
        session: Environment in which commands run; by default the agent's own.
        helper_warm_s: Idle time after which the accessibility helper ends.

    Returns:
        Context that the endpoints share; close it when the agent ends.
    """
    context = OsworldContext(desktop, session or DesktopSession.from_environment(os.environ), helper_warm_s)
    add_endpoints(router, context)
    return context


def add_endpoints(router: Router, context: OsworldContext) -> None:
    """Add OSWorld's endpoints to a router for an existing context."""
    for endpoint in ENDPOINTS:
        router.add(
            endpoint.method,
            endpoint.path,
            _handler(endpoint, context),
            max_body=endpoint.max_body,
            deadline_s=endpoint.deadline_s,
            ends_with_caller=endpoint.ends_with_caller,
        )


def _handler(endpoint: OsworldEndpoint, context: OsworldContext) -> Handler:
    async def handle(request: Request) -> Response:
        module = import_module(f"{__name__}.{endpoint.module}")
        try:
            response: Response = await getattr(module, endpoint.name)(context, request)
        except HttpError as exc:
            return error(exc.status, exc.message, exc.code)
        return response

    return handle


def error(status: int, message: str, code: str = "failed") -> Response:
    """Return an error with all the field names that OSWorld's clients read."""
    body = {"status": "error", "message": message, "error": message, "code": code}
    return Response.json(body, status=status)
