"""Endpoints of OSWorld's guest server, so that its controllers work with our replicas unchanged."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from osgym_guest.http import Endpoint, Handler, HttpError, Request, Response, Router
from osgym_guest.osworld.context import Desktop, OsworldContext
from osgym_guest.osworld.session import DesktopSession

MAX_UPLOAD_BYTES = 1 << 30
MAX_JSON_BYTES = 8 << 20


ENDPOINTS = (
    Endpoint("GET", "/screenshot", "screen", "screenshot"),
    Endpoint("POST", "/screen_size", "screen", "screen_size"),
    Endpoint("GET", "/cursor_position", "screen", "cursor_position"),
    Endpoint("GET", "/platform", "screen", "platform"),
    Endpoint("POST", "/window_size", "screen", "window_size"),
    Endpoint("POST", "/desktop_path", "screen", "desktop_path"),
    Endpoint("POST", "/wallpaper", "wallpaper", "get_wallpaper"),
    Endpoint("POST", "/setup/change_wallpaper", "wallpaper", "change_wallpaper"),
    Endpoint("GET", "/terminal", "accessibility", "terminal"),
    Endpoint("GET", "/accessibility", "accessibility", "accessibility", 45.0),
    Endpoint("POST", "/execute", "commands", "execute", 630.0, MAX_JSON_BYTES, True),
    Endpoint("POST", "/setup/execute", "commands", "execute", 630.0, MAX_JSON_BYTES, True),
    Endpoint(
        "POST", "/execute_with_verification", "commands", "execute_verified", 1260.0, MAX_JSON_BYTES, True
    ),
    Endpoint(
        "POST",
        "/setup/execute_with_verification",
        "commands",
        "execute_verified",
        1260.0,
        MAX_JSON_BYTES,
        True,
    ),
    Endpoint("POST", "/setup/launch", "commands", "launch", 30.0, MAX_JSON_BYTES),
    Endpoint("POST", "/run_python", "scripts", "run_python", 60.0, MAX_JSON_BYTES, True),
    Endpoint("POST", "/run_bash_script", "scripts", "run_bash_script", 630.0, MAX_JSON_BYTES, True),
    Endpoint("POST", "/file", "files", "get_file", 60.0),
    Endpoint("POST", "/list_directory", "files", "list_directory", 60.0),
    Endpoint("POST", "/setup/upload", "files", "upload", 600.0, MAX_UPLOAD_BYTES),
    Endpoint("POST", "/setup/open_file", "open_file", "open_file", 630.0),
    Endpoint("POST", "/setup/download_file", "download", "download_file", 330.0),
    Endpoint("POST", "/start_recording", "screen", "start_recording"),
    Endpoint("POST", "/end_recording", "screen", "end_recording"),
    Endpoint("POST", "/setup/activate_window", "screen", "activate_window"),
    Endpoint("POST", "/setup/close_window", "screen", "close_window"),
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
        endpoint.add_to(router, _with_errors(endpoint.handler(__name__, context)))


def _with_errors(handler: Callable[[Request], Awaitable[Response]]) -> Handler:
    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except HttpError as exc:
            return error(exc.status, exc.message, exc.code)

    return handle


def error(status: int, message: str, code: str = "failed") -> Response:
    """Return an error with all the field names that OSWorld's clients read."""
    body = {"status": "error", "message": message, "error": message, "code": code}
    return Response.json(body, status=status)
