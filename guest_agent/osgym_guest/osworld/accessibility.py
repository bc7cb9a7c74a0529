"""``/terminal`` and ``/accessibility``, answered by the helper, which starts only when it is needed."""

from __future__ import annotations

import json

from osgym_guest.http import Request, Response
from osgym_guest.osworld import error, fields
from osgym_guest.osworld.context import OsworldContext
from osgym_guest.osworld.helper import HelperError
from osgym_guest.osworld.x11 import XError

TERMINAL_DEADLINE_S = 3.0
TREE_DEADLINE_S = 6.0
MAX_TREE_DEADLINE_S = 40.0
# Terminals without "term" in their class, and those with it that tell AT-SPI nothing.
_OTHER_TERMINALS = ("konsole", "tilix", "guake", "tilda", "kgx", "org.gnome.console")
_SILENT_TERMINALS = ("xterm", "uxterm", "urxvt", "rxvt", "lxterm")


def is_terminal(instance: str, class_name: str) -> bool:
    """Return whether a window of this WM_CLASS is a terminal whose text can be read."""
    names = (instance.lower(), class_name.lower())
    if any(name in _SILENT_TERMINALS for name in names):
        return False
    return any("term" in name or name in _OTHER_TERMINALS for name in names)


async def terminal(context: OsworldContext, request: Request) -> Response:
    """Return the text of the focused terminal, or null. Without a terminal in front no helper starts."""
    try:
        window = await context.windows.active()
        text = None
        if window is not None and is_terminal(window.instance, window.class_name):
            answer = await context.helper.ask("terminal", deadline_s=TERMINAL_DEADLINE_S)
            text = json.loads(answer.payload)
    except (XError, HelperError) as exc:
        return error(500, str(exc), "display" if isinstance(exc, XError) else "accessibility")
    return Response.json({"output": text, "status": "success"})


async def accessibility(context: OsworldContext, request: Request) -> Response:
    """Return the tree as XML. Parts that could not be read in time are marked ``partial="true"``.

    The query may set ``deadline_s``: the time for each application.
    """
    try:
        asked = {"deadline_s": float(request.query.get("deadline_s", TREE_DEADLINE_S))}
    except ValueError as exc:
        raise fields.bad("deadline_s must be a number") from exc
    deadline_s = fields.number(asked, "deadline_s", 0, low=0.1, high=MAX_TREE_DEADLINE_S)
    try:
        answer = await context.helper.ask("tree", deadline_s=deadline_s)
    except HelperError as exc:
        return error(500, str(exc), "accessibility")
    body: dict[str, object] = {"AT": answer.payload.decode("utf-8")}
    if answer.partial:
        body["partial"] = True
    return Response.json(body)
