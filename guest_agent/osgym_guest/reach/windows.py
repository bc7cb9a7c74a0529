"""``/v1/reach/windows``: the windows that the window manager lists, with the state of each."""

from __future__ import annotations

from osgym_guest.http import HttpError, Request, Response, to_json
from osgym_guest.osworld.x11 import XError
from osgym_guest.reach.context import ReachContext
from osgym_protocol.codes import GuestErrorCode
from osgym_protocol.limits import MAX_WINDOWS

MAX_TITLE_CHARS = 200
MAX_APP_CHARS = 60
MAX_BYTES = 30 * 1024
"""Size of the whole answer, which the host parses between the steps of others."""


async def windows(context: ReachContext, request: Request) -> Response:
    """Return the windows, oldest first, without those beyond the bounds."""
    desktop = context.desktop.windows
    found: list[dict[str, object]] = []
    room = MAX_BYTES
    truncated = False
    try:
        active = await desktop.active()
        for window in await desktop.list():
            state = await desktop.state(window)
            if state is None:
                continue
            x, y, width, height = state.box
            row: dict[str, object] = {
                "id": window.id,
                "title": window.title[:MAX_TITLE_CHARS],
                "app": window.class_name[:MAX_APP_CHARS],
                "instance": window.instance[:MAX_APP_CHARS],
                "x_px": x,
                "y_px": y,
                "width_px": width,
                "height_px": height,
                "focused": active is not None and active.id == window.id,
                "minimized": "_NET_WM_STATE_HIDDEN" in state.states,
                "maximized": {"_NET_WM_STATE_MAXIMIZED_VERT", "_NET_WM_STATE_MAXIMIZED_HORZ"} <= state.states,
                "fullscreen": "_NET_WM_STATE_FULLSCREEN" in state.states,
                "modal": "_NET_WM_STATE_MODAL" in state.states,
                "above": "_NET_WM_STATE_ABOVE" in state.states,
                "visible": state.visible,
                "ordinary": await desktop.is_ordinary(window),
                "pid": state.pid,
            }
            room -= len(to_json(row)) + 1
            if room < 0 or len(found) >= MAX_WINDOWS:
                truncated = True
                break
            found.append(row)
    except XError as exc:
        raise HttpError(500, GuestErrorCode.DISPLAY_GONE, str(exc)) from exc
    return Response.json({"windows": found, "truncated": truncated})
