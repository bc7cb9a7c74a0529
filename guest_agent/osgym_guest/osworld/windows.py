"""Top-level windows: listed, found, activated and closed as wmctrl does it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from osgym_guest.osworld import x11
from osgym_guest.osworld.session import DesktopSession
from osgym_guest.osworld.x11 import XConnection, XError

POLL_S = 0.05
MAX_DIALOGS = 8
Condition = Callable[[], Awaitable[bool]]
_SOURCE_PAGER = 2
_STATES = (
    "_NET_WM_STATE_HIDDEN",
    "_NET_WM_STATE_MAXIMIZED_VERT",
    "_NET_WM_STATE_MAXIMIZED_HORZ",
    "_NET_WM_STATE_FULLSCREEN",
    "_NET_WM_STATE_MODAL",
    "_NET_WM_STATE_ABOVE",
    "_NET_WM_STATE_SHADED",
)
_ALL_WORKSPACES = 0xFFFFFFFF
_UNLISTED_TYPES = ("_NET_WM_WINDOW_TYPE_DESKTOP", "_NET_WM_WINDOW_TYPE_DOCK", "_NET_WM_WINDOW_TYPE_SPLASH")


@dataclass(frozen=True)
class DesktopWindow:
    """One window that the window manager lists.

    Attributes:
        id: X window id.
        title: Text of its title bar.
        instance: First part of WM_CLASS.
        class_name: Second part of WM_CLASS.
    """

    id: int
    title: str
    instance: str
    class_name: str

    @property
    def identity(self) -> tuple[int, str, str]:
        """Identity of the window while it lives; X gives the id of a closed window to another."""
        return self.id, self.instance, self.class_name

    def matches(self, name: str, *, strict: bool, by_class: bool) -> bool:
        """Return whether wmctrl would choose it: by a part of the title (or of ``instance.class``), ignoring
        case; by the whole, exactly, when `strict`.
        """
        text = f"{self.instance}.{self.class_name}" if by_class else self.title
        return text == name if strict else name.lower() in text.lower()


@dataclass(frozen=True)
class WindowState:
    """State of a window beyond its names.

    Attributes:
        box: x, y, width, height of its content on the screen, in pixels.
        states: Names of its _NET_WM_STATE.
        pid: Process that it reports to belong to.
        visible: Some of its content is on the screen, unless other windows cover it: it is on the workspace
            that is shown, neither minimised nor rolled up, and not beside the screen.
    """

    box: tuple[int, int, int, int]
    states: frozenset[str]
    pid: int | None
    visible: bool


class DesktopWindows:
    """Windows of the session's display; connects at first use, and again after a loss.

    Args:
        session: Session that names the display.
    """

    def __init__(self, session: DesktopSession):
        self._display = session.env.get("DISPLAY", ":0")
        self._xauthority = x11.default_xauthority(session.home, session.env.get("XAUTHORITY"))
        self._connection: XConnection | None = None
        self._connecting = asyncio.Lock()

    async def connect(self) -> None:
        """Connect now, before the desktop's programs use up the X server's connections.

        Raises:
            XError: The X server cannot be reached.
        """
        await self._x()

    async def _x(self) -> XConnection:
        async with self._connecting:
            if self._connection is None or self._connection.closed:
                self._connection = await x11.connect(self._display, self._xauthority)
            return self._connection

    async def list(self) -> list[DesktopWindow]:
        """Return all listed windows, oldest first. Raises XError if the X server cannot be reached."""
        x = await self._x()
        ids = await x.numbers(x.root, "_NET_CLIENT_LIST")
        found = await asyncio.gather(*(self._describe(x, window) for window in ids))
        return [window for window in found if window is not None]

    async def active(self) -> DesktopWindow | None:
        """Return the window that has the keyboard focus, if one has."""
        x = await self._x()
        ids = await x.numbers(x.root, "_NET_ACTIVE_WINDOW")
        return await self._describe(x, ids[0]) if ids and ids[0] else None

    async def _describe(self, x: XConnection, window: int) -> DesktopWindow | None:
        """Return a window's names; None when it went away meanwhile."""
        try:
            title = await x.title(window)
            classes = (await x.property(window, "WM_CLASS")).decode("latin-1").split("\0")
        except XError:
            if x.closed:
                raise
            return None
        return DesktopWindow(window, title, classes[0], classes[1] if len(classes) > 1 else "")

    async def is_ordinary(self, window: DesktopWindow) -> bool:
        """Return whether a window is an application's: no panel, desktop or splash screen."""
        x = await self._x()
        try:
            types = await x.numbers(window.id, "_NET_WM_WINDOW_TYPE")
        except XError:
            return False
        return not set(types) & {await x.atom(name) for name in _UNLISTED_TYPES}

    async def find(self, name: str, *, strict: bool = False, by_class: bool = False) -> DesktopWindow | None:
        """Return the first window that matches."""
        for window in await self.list():
            if window.matches(name, strict=strict, by_class=by_class):
                return window
        return None

    async def activate(self, window: DesktopWindow, *, timeout_s: float = 1.0) -> bool:
        """Bring a window to the front with the keyboard focus, and return whether it got there within
        `timeout_s`.

        The workspace that it is on is shown.
        """
        x = await self._x()
        desktop = await x.numbers(window.id, "_NET_WM_DESKTOP")
        if desktop and not await self._on_current_workspace(x, window.id):
            await x.message(x.root, "_NET_CURRENT_DESKTOP", desktop[0])
        await x.message(window.id, "_NET_ACTIVE_WINDOW", _SOURCE_PAGER)
        await x.map_raised(window.id)
        return await self._until(lambda: self._is_active(window.id), timeout_s)

    async def close(self, window: DesktopWindow, *, timeout_s: float = 1.0) -> bool:
        """Ask a window to close, and return whether it closed within `timeout_s` (it may ask back)."""
        x = await self._x()
        await x.message(window.id, "_NET_CLOSE_WINDOW", 0, _SOURCE_PAGER)
        return await self._until(lambda: self._is_gone(window.id), timeout_s)

    async def size(self, window: DesktopWindow) -> tuple[int, int]:
        """Return width and height of a window, without its frame."""
        return await (await self._x()).size(window.id)

    async def state(self, window: DesktopWindow) -> WindowState | None:
        """Return the state of a window; None when it went away meanwhile.

        Raises:
            XError: The X server cannot be reached.
        """
        x = await self._x()
        try:
            atoms = set(await x.numbers(window.id, "_NET_WM_STATE"))
            states = frozenset([name for name in _STATES if await x.atom(name) in atoms])
            pids = await x.numbers(window.id, "_NET_WM_PID")
            width, height = await x.size(window.id)
            left, top = await x.place(window.id)
            screen_width, screen_height = await x.size(x.root)
            visible = await self._on_current_workspace(x, window.id)
        except XError:
            if x.closed:
                raise
            return None
        visible &= left < screen_width and top < screen_height and left + width > 0 and top + height > 0
        visible &= not states & {"_NET_WM_STATE_HIDDEN", "_NET_WM_STATE_SHADED"}
        return WindowState((left, top, width, height), states, pids[0] if pids else None, visible)

    async def _on_current_workspace(self, x: XConnection, window: int) -> bool:
        """Return whether the workspace of a window is shown; a window that names none is on all of them."""
        desktop = await x.numbers(window, "_NET_WM_DESKTOP")
        current = await x.numbers(x.root, "_NET_CURRENT_DESKTOP")
        return not desktop or not current or desktop[0] in (current[0], _ALL_WORKSPACES)

    async def _is_active(self, window: int) -> bool:
        """Return whether a window, or a dialog in front of it, has the keyboard focus."""
        x = await self._x()
        active = (await x.numbers(x.root, "_NET_ACTIVE_WINDOW"))[:1]
        for _ in range(MAX_DIALOGS):
            if not active or active[0] in (0, window):
                break
            active = (await x.numbers(active[0], "WM_TRANSIENT_FOR"))[:1]
        return active == [window]

    async def _is_gone(self, window: int) -> bool:
        x = await self._x()
        return window not in await x.numbers(x.root, "_NET_CLIENT_LIST")

    async def _until(self, condition: Condition, timeout_s: float) -> bool:
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not await condition():
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(POLL_S)
        return True

    def disconnect(self) -> None:
        """Close the connection; it opens again when it is needed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
