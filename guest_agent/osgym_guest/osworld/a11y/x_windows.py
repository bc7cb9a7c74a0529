"""Windows on the screen as the X server and the window manager know them, for programs without a tree."""

from __future__ import annotations

import asyncio
import enum
import os
from dataclasses import dataclass
from pathlib import Path

from osgym_guest.osworld import x11
from osgym_guest.osworld.a11y.tree import Box
from osgym_guest.osworld.session_pids import PROGRAMS_BELOW, session_pid
from osgym_guest.osworld.x11 import XConnection, XError

MAX_WINDOWS = 256
MAX_TOP_LEVEL = 4096
"""Bound of the windows inside the root window that are read; programs keep many hidden ones there."""
DEADLINE_S = 2.0


class WindowKind(enum.Enum):
    """Purpose of a top-level window; the value is its role in the tree."""

    FRAME = "frame"
    DIALOG = "dialog"
    WINDOW = "window"
    """Dock, desktop window, or one that the window manager leaves alone, such as a menu."""


@dataclass(frozen=True, slots=True)
class XWindow:
    """One top-level window.

    Attributes:
        id: X window id.
        title: Text of the title bar; may be empty.
        program: First part of WM_CLASS, else the name of its process; may be empty.
        pid: Process that made the window, numbered as in the desktop's PID namespace, or None.
        own_pid: The same process, numbered as in this process's namespace.
        box: Place and size of its content on the screen, in pixels.
        kind: Purpose of the window.
        stacking: Place in the stacking order; 0 is the lowest.
        is_active: The window manager reports that it has the keyboard focus.
        is_shown: It is mapped, and not minimised.
        is_modal: It reports that it has to be answered first.
        is_managed: The window manager lists it.
    """

    id: int
    title: str
    program: str
    pid: int | None
    box: Box
    kind: WindowKind
    stacking: int
    is_active: bool = False
    is_shown: bool = True
    is_modal: bool = False
    is_managed: bool = True
    own_pid: int | None = None


async def read_windows() -> list[XWindow]:
    """Return the top-level windows of the session's display, the lowest first.

    The list is empty when the X server cannot be reached or does not answer within `DEADLINE_S`: the trees of
    the programs are useful without it.
    """
    try:
        return await asyncio.wait_for(_read_windows(), DEADLINE_S)
    except (XError, asyncio.TimeoutError):
        return []


async def connect() -> XConnection:
    """Connect to the session's display. Raises XError if it cannot be reached."""
    home = Path(os.environ.get("HOME", "/"))
    xauthority = x11.default_xauthority(home, os.environ.get("XAUTHORITY"))
    return await x11.connect(os.environ.get("DISPLAY", ":0"), xauthority)


async def _read_windows() -> list[XWindow]:
    """Return the topmost `MAX_WINDOWS` windows, the lowest first.

    Raises:
        XError: The X server cannot be reached, or the connection is lost.
    """
    x = await connect()
    try:
        managed = await x.numbers(x.root, "_NET_CLIENT_LIST_STACKING")
        active = (await x.numbers(x.root, "_NET_ACTIVE_WINDOW"))[:1]
        # Menus and other windows that the manager leaves alone lie above those that it stacks.
        order = managed + await _unmanaged(x, frozenset(managed))
        lowest = max(0, len(order) - MAX_WINDOWS)
        found = await asyncio.gather(
            *(
                _describe(x, window, at, at < len(managed), active)
                for at, window in enumerate(order[lowest:], lowest)
            )
        )
    finally:
        x.close()
    return [window for window in found if window is not None]


async def _unmanaged(x: XConnection, managed: frozenset[int]) -> list[int]:
    """Return the windows on the screen that the window manager leaves alone, the lowest first.

    The window manager's own windows are its frames and helpers, not a program's.
    """
    manager = (await x.numbers(x.root, "_NET_SUPPORTING_WM_CHECK"))[:1]
    owner = await x.client_pid(manager[0]) if manager else None
    screen = Box(0, 0, *await x.size(x.root))
    others = [window for window in await x.children(x.root) if window not in managed][-MAX_TOP_LEVEL:]
    are_seen = await asyncio.gather(*(_is_seen(x, window, owner, screen) for window in others))
    return [window for window, is_seen in zip(others, are_seen) if is_seen]  # noqa: B905 - same length


async def _is_seen(x: XConnection, window: int, owner: int | None, screen: Box) -> bool:
    """Return whether a window is on the screen and belongs to another process than `owner`."""
    try:
        attributes = await x.attributes(window)
        if attributes.input_only or not attributes.viewable:
            return False
        if owner is not None and await _pid(x, window) == owner:
            return False
        return _shows(Box(*await x.place(window), *await x.size(window)), screen)
    except XError:
        if x.closed:
            raise
        return False


async def _pid(x: XConnection, window: int) -> int | None:
    """Return the process that made a window, or None where neither the server nor the window reports it.

    The window's report counts only where its program numbers processes as this one does.
    """
    pid = await x.client_pid(window)
    if pid or PROGRAMS_BELOW in os.environ:
        return pid
    return next(iter(await x.numbers(window, "_NET_WM_PID")), None)


def _shows(box: Box, screen: Box) -> bool:
    """Return whether more than a point of a box is on the screen; helper windows lie outside or are tiny."""
    seen = box.clip(screen)
    return seen.width > 1 and seen.height > 1


async def _describe(
    x: XConnection, window: int, stacking: int, is_managed: bool, active: list[int]
) -> XWindow | None:
    """Return what is known of a window; None when it is gone, or is not one that a user sees."""
    try:
        attributes = await x.attributes(window)
        if attributes.input_only or not (is_managed or attributes.viewable):
            return None
        width, height = await x.size(window)
        left, top = await x.place(window)
        title = (await x.property(window, "_NET_WM_NAME")).decode("utf-8", "replace")
        title = title or (await x.property(window, "WM_NAME")).decode("latin-1")
        instance = (await x.property(window, "WM_CLASS")).decode("latin-1").partition("\0")[0]
        states = await x.numbers(window, "_NET_WM_STATE")
        own_pid = await _pid(x, window)
        pid = session_pid(own_pid) or next(iter(await x.numbers(window, "_NET_WM_PID")), None)
        kind = await _kind(x, window) if is_managed else WindowKind.WINDOW
        return XWindow(
            window,
            title,
            instance or _process_name(own_pid),
            pid,
            Box(left, top, width, height),
            kind,
            stacking,
            is_active=[window] == active,
            is_shown=attributes.viewable and await x.atom("_NET_WM_STATE_HIDDEN") not in states,
            is_modal=await x.atom("_NET_WM_STATE_MODAL") in states,
            is_managed=is_managed,
            own_pid=own_pid,
        )
    except XError:
        if x.closed:
            raise
        return None


async def _kind(x: XConnection, window: int) -> WindowKind:
    types = await x.numbers(window, "_NET_WM_WINDOW_TYPE")
    for name, kind in (
        ("_NET_WM_WINDOW_TYPE_DIALOG", WindowKind.DIALOG),
        ("_NET_WM_WINDOW_TYPE_DOCK", WindowKind.WINDOW),
        ("_NET_WM_WINDOW_TYPE_DESKTOP", WindowKind.WINDOW),
    ):
        if await x.atom(name) in types:
            return kind
    return WindowKind.FRAME


def _process_name(pid: int | None) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() if pid else ""
    except OSError:
        return ""
