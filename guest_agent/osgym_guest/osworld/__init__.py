"""The endpoints of OSWorld's guest server, so that its controllers work against our replicas unchanged.

`register` only names them; a handler's module is imported when its endpoint is first called, since
most replicas need few of them and every replica pays for what is loaded.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module

from osgym_guest.desktop import Desktop
from osgym_guest.http import Handler, HttpError, Request, Response, Router
from osgym_guest.osworld.context import Context
from osgym_guest.osworld.session import Session

MAX_UPLOAD_BYTES = 1 << 30
MAX_JSON_BYTES = 8 << 20


@dataclass(frozen=True)
class Endpoint:
    """Where an endpoint's handler is: ``async def name(context, request) -> Response`` in `module`."""

    method: str
    path: str
    module: str
    name: str
    deadline_s: float = 30.0
    max_body: int = 64 * 1024


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
    Endpoint("POST", "/execute", "commands", "execute", 630.0, MAX_JSON_BYTES),
    Endpoint("POST", "/setup/execute", "commands", "execute", 630.0, MAX_JSON_BYTES),
    Endpoint("POST", "/execute_with_verification", "commands", "execute_verified", 1260.0, MAX_JSON_BYTES),
    Endpoint(
        "POST", "/setup/execute_with_verification", "commands", "execute_verified", 1260.0, MAX_JSON_BYTES
    ),
    Endpoint("POST", "/setup/launch", "commands", "launch", 30.0, MAX_JSON_BYTES),
    Endpoint("POST", "/run_python", "scripts", "run_python", 60.0, MAX_JSON_BYTES),
    Endpoint("POST", "/run_bash_script", "scripts", "run_bash_script", 630.0, MAX_JSON_BYTES),
    Endpoint("POST", "/file", "files", "get_file", 60.0),
    Endpoint("POST", "/list_directory", "files", "list_directory", 60.0),
    Endpoint("POST", "/setup/upload", "files", "upload", 600.0, MAX_UPLOAD_BYTES),
    Endpoint("POST", "/setup/open_file", "opening", "open_file", 630.0),
    Endpoint("POST", "/setup/download_file", "download", "download_file", 330.0),
    Endpoint("POST", "/start_recording", "recording", "start_recording"),
    Endpoint("POST", "/end_recording", "recording", "end_recording"),
    Endpoint("POST", "/setup/activate_window", "opening", "activate_window"),
    Endpoint("POST", "/setup/close_window", "opening", "close_window"),
)


def register(
    router: Router, desktop: Desktop, session: Session | None = None, *, helper_warm_s: float = 60.0
) -> Context:
    """Add OSWorld's endpoints to a router.

    Args:
        router: the agent's router.
        desktop: the screen and the pointer.
        session: where commands run; by default the agent's own environment.
        helper_warm_s: how long the accessibility helper stays unasked.

    Returns:
        What the endpoints share; close it when the agent ends.
    """
    context = Context(desktop, session or Session.from_environment(os.environ), helper_warm_s)
    for endpoint in ENDPOINTS:
        router.add(
            endpoint.method,
            endpoint.path,
            _handler(endpoint, context),
            max_body=endpoint.max_body,
            deadline_s=endpoint.deadline_s,
        )
    return context


def _handler(endpoint: Endpoint, context: Context) -> Handler:
    async def handle(request: Request) -> Response:
        module = import_module(f"{__name__}.{endpoint.module}")
        try:
            response: Response = await getattr(module, endpoint.name)(context, request)
        except HttpError as exc:
            return error(exc.status, exc.message, exc.code)
        return response

    return handle


def error(status: int, message: str, code: str = "failed") -> Response:
    """An error with all the field names that OSWorld's clients look at."""
    body = {"status": "error", "message": message, "error": message, "code": code}
    return Response.json(body, status=status)
