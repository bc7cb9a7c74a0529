"""What OSWorld's clients ask about the screen and the machine."""

from __future__ import annotations

from osgym_guest.http import Request, Response
from osgym_guest.osworld import error, fields
from osgym_guest.osworld.context import Context
from osgym_guest.osworld.x11 import XError


async def screenshot(context: Context, request: Request) -> Response:
    """The screen now, cursor drawn in."""
    return Response.data(await context.desktop.screenshot_png(), "image/png")


async def screen_size(context: Context, request: Request) -> Response:
    """Width and height of the screen in pixels."""
    width, height = context.desktop.screen_size()
    return Response.json({"width": width, "height": height})


async def cursor_position(context: Context, request: Request) -> Response:
    """Where the pointer is."""
    return Response.json(list(await context.desktop.cursor_position()))


async def platform(context: Context, request: Request) -> Response:
    """Name of the system."""
    return Response.text("Linux")


async def window_size(context: Context, request: Request) -> Response:
    """Size of the first window whose WM_CLASS has the given name as one of its parts."""
    name = fields.text(dict(request.form().fields), "app_class_name").lower()
    try:
        for window in await context.windows.list():
            if name in (window.instance.lower(), window.class_name.lower()):
                width, height = await context.windows.size(window)
                return Response.json({"width": width, "height": height})
    except XError as exc:
        return error(500, str(exc), "display")
    return error(404, f"no window of class {name}", "no_such_window")


async def desktop_path(context: Context, request: Request) -> Response:
    """The user's desktop folder."""
    path = context.session.home / "Desktop"
    if not path.is_dir():
        return error(404, "desktop path not found", "no_such_file")
    return Response.json({"desktop_path": str(path)})
