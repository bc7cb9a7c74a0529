"""Endpoints of OSWorld's clients for the screen, its windows, its recordings, and the machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from osgym_guest.http import Request, Response
from osgym_guest.osworld import error, fields
from osgym_guest.osworld.context import OsworldContext
from osgym_guest.osworld.x11 import XError

if TYPE_CHECKING:
    from osgym_guest.osworld.windows import DesktopWindow


async def screenshot(context: OsworldContext, request: Request) -> Response:
    """Return the screen with the cursor drawn in."""
    return Response.data(await context.desktop.screenshot_png(), "image/png")


async def screen_size(context: OsworldContext, request: Request) -> Response:
    width, height = context.desktop.screen_size()
    return Response.json({"width": width, "height": height})


async def cursor_position(context: OsworldContext, request: Request) -> Response:
    """Return the position of the pointer."""
    return Response.json(list(await context.desktop.cursor_position()))


async def platform(context: OsworldContext, request: Request) -> Response:
    return Response.text("Linux")


async def window_size(context: OsworldContext, request: Request) -> Response:
    """Return the size of the first window whose WM_CLASS has the given name as one of its parts."""
    name = fields.text(dict(request.form().fields), "app_class_name").lower()
    try:
        for window in await context.windows.list():
            if name in (window.instance.lower(), window.class_name.lower()):
                width, height = await context.windows.size(window)
                return Response.json({"width": width, "height": height})
    except XError as exc:
        return error(500, str(exc), "display")
    return error(404, f"no window of class {name}", "no_such_window")


async def desktop_path(context: OsworldContext, request: Request) -> Response:
    """Return the user's desktop folder."""
    path = context.session.home / "Desktop"
    if not path.is_dir():
        return error(404, "desktop path not found", "no_such_file")
    return Response.json({"desktop_path": str(path)})


async def activate_window(context: OsworldContext, request: Request) -> Response:
    """Bring the first matching window to the front; succeed also when nothing matched."""
    return await _with_window(context, request, context.windows.activate, "Window activated successfully")


async def close_window(context: OsworldContext, request: Request) -> Response:
    """Ask the first matching window to close; succeed also when nothing matched."""
    return await _with_window(context, request, context.windows.close, "Window closed successfully.")


async def _with_window(
    context: OsworldContext,
    request: Request,
    act: Callable[[DesktopWindow], Awaitable[bool]],
    message: str,
) -> Response:
    data = request.json_object()
    name = fields.text(data, "window_name")
    strict, by_class = fields.flag(data, "strict"), fields.flag(data, "by_class")
    try:
        window = await context.windows.find(name, strict=strict, by_class=by_class)
        if window is not None:
            await act(window)
    except XError as exc:
        return error(500, str(exc), "display")
    return Response.text(message)


async def start_recording(context: OsworldContext, request: Request) -> Response:
    recorder = context.recorder
    async with recorder.lock:
        if recorder.running:
            return error(400, "Recording is already in progress.", "recording")
        try:
            failure = await recorder.start()
        except OSError as exc:
            return error(500, f"Failed to start recording: {exc}", "cannot_start")
    if failure is not None:
        return error(500, f"Failed to start recording: {failure}", "cannot_start")
    return Response.json({"status": "success", "message": "Started recording successfully."})


async def end_recording(context: OsworldContext, request: Request) -> Response:
    recorder = context.recorder
    async with recorder.lock:
        if not recorder.running:
            return error(400, "No recording in progress to stop.", "not_recording")
        failure = await recorder.stop()
    if failure is not None:
        return error(500, f"Recording failed: {failure}", "recording_failed")
    return Response.stream(recorder.path, "video/mp4")
