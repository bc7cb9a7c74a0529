"""Find another program's window, for the witnesses whose window is not their own."""

from __future__ import annotations

import time

from Xlib import X
from Xlib import display as xdisplay
from Xlib.error import XError

POLL_S = 0.05
UNCHANGED_LOOKS = 3
"""A window that its manager is still placing is at another place at the next look."""


class WindowFinder:
    """Looks for windows that the window manager lists.

    Args:
        timeout_s: how long to look.
    """

    def __init__(self, timeout_s: float = 60) -> None:
        self._display = xdisplay.Display()
        self._root = self._display.screen().root
        self._timeout_s = timeout_s

    def place(self, title: str) -> tuple[int, int, int, int]:
        """Return the content of the first window with `title` in its title, once it has the keyboard.

        Returns:
            x, y, width and height on the screen, in pixels.

        Raises:
            TimeoutError: there is none in time.
        """
        until = time.monotonic() + self._timeout_s
        seen: list[tuple[int, int, int, int]] = []
        while time.monotonic() < until:
            box = self._look(title)
            seen = [*seen, box] if box else []
            if box and len(seen) >= UNCHANGED_LOOKS and len(set(seen[-UNCHANGED_LOOKS:])) == 1:
                return box
            time.sleep(POLL_S)
        raise TimeoutError(f"no window with the title {title} within {self._timeout_s} s")

    def box(self, window: int) -> tuple[int, int, int, int]:
        """Return where a window is on the screen: x, y, width, height in pixels."""
        found = self._display.create_resource_object("window", window)
        size = found.get_geometry()
        corner = self._root.translate_coords(found, 0, 0)
        return (corner.x, corner.y, size.width, size.height)

    def _look(self, title: str) -> tuple[int, int, int, int] | None:
        active = self._root.get_full_property(self._display.get_atom("_NET_ACTIVE_WINDOW"), X.AnyPropertyType)
        if active is None or not active.value[0]:
            return None
        window = self._display.create_resource_object("window", active.value[0])
        try:
            name = window.get_full_property(self._display.get_atom("_NET_WM_NAME"), X.AnyPropertyType)
            named = name.value.decode() if name else window.get_wm_name()
            return self.box(active.value[0]) if title in str(named) else None
        except XError:
            return None
