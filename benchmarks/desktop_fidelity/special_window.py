"""Show a window of a kind over a plain one, and write down what both receive.

`special_window.py LOG KIND TITLE COLOUR`, the colour as a hexadecimal number. It runs inside a replica, with
the image's own Python. The lines are JSON objects: `ready` with the id of the window, `click` and `text` with
the window that received them, and `exit` when one was asked to close.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from Xlib import XK, X, Xatom, Xutil
from Xlib import display as xdisplay
from Xlib.protocol import event as xevent

WIDTH, HEIGHT = 400, 300
PLAIN_COLOR = 0xC0A020
STATES = {
    "modal": ["_NET_WM_STATE_MODAL"],
    "above": ["_NET_WM_STATE_ABOVE"],
    "full-screen": ["_NET_WM_STATE_FULLSCREEN"],
    "maximized": ["_NET_WM_STATE_MAXIMIZED_VERT", "_NET_WM_STATE_MAXIMIZED_HORZ"],
    "no-taskbar": ["_NET_WM_STATE_SKIP_TASKBAR", "_NET_WM_STATE_SKIP_PAGER"],
}
TYPES = {"modal": "DIALOG", "transient": "DIALOG", "utility": "UTILITY"}
OFF_SCREEN_PX = -350
ADD_STATE, FROM_USER = 1, 2
MOVE_BY_USER = 10 | 1 << 8 | 1 << 9 | FROM_USER << 12
"""Static gravity, x and y are given: _NET_MOVERESIZE_WINDOW of the EWMH."""


class Program:
    """Both windows and the file of events."""

    def __init__(self, log: str, kind: str, title: str, color: int) -> None:
        self._file = Path(log).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115 - open until the end
        self._kind = kind
        self._title = title
        self._color = color
        self._display = xdisplay.Display()
        self._root = self._display.screen().root
        self._names: dict[int, str] = {}

    def atom(self, name: str) -> int:
        return int(self._display.get_atom(name))

    def write(self, event: str, **fields: Any) -> None:
        self._file.write(json.dumps({"event": event, **fields}, ensure_ascii=False) + "\n")

    def make(self, name: str, title: str, x: int, y: int, color: int, **attributes: Any) -> Any:
        mask = X.ButtonPressMask | X.KeyPressMask | X.StructureNotifyMask
        window = self._root.create_window(
            *(x, y, WIDTH, HEIGHT, 0, X.CopyFromParent), background_pixel=color, event_mask=mask, **attributes
        )
        window.set_wm_class("special", "Special" if name == "special" else "Plain")
        if self._kind == "old-title" and name == "special":
            # a program of before UTF-8: no _NET_WM_NAME, and a title in Latin-1
            window.change_property(Xatom.WM_NAME, Xatom.STRING, 8, title.encode("latin-1"))
        elif self._kind == "utf8-wm-name" and name == "special":
            window.change_property(Xatom.WM_NAME, self.atom("UTF8_STRING"), 8, title.encode())
        else:
            window.change_property(self.atom("_NET_WM_NAME"), self.atom("UTF8_STRING"), 8, title.encode())
        window.set_wm_protocols([self.atom("WM_DELETE_WINDOW")])
        window.set_wm_normal_hints(flags=Xutil.PPosition | Xutil.USPosition, x=x, y=y)
        self._names[window.id] = name
        return window

    def dress(self, window: Any, parent: Any) -> None:
        """Give the special window the hints of its kind, before it is shown."""
        kind = self._kind
        if states := STATES.get(kind):
            atoms = [self.atom(state) for state in states]
            window.change_property(self.atom("_NET_WM_STATE"), Xatom.ATOM, 32, atoms)
        if kind in TYPES:
            window.change_property(
                self.atom("_NET_WM_WINDOW_TYPE"),
                Xatom.ATOM,
                32,
                [self.atom(f"_NET_WM_WINDOW_TYPE_{TYPES[kind]}")],
            )
            window.set_wm_transient_for(parent)
        if kind == "undecorated":
            hints = self.atom("_MOTIF_WM_HINTS")
            window.change_property(hints, hints, 32, [2, 0, 0, 0, 0])
        if kind == "other-workspace":
            window.change_property(self.atom("_NET_WM_DESKTOP"), Xatom.CARDINAL, 32, [1])
        if kind == "minimised":
            window.set_wm_hints(flags=Xutil.StateHint, initial_state=Xutil.IconicState)
        if kind == "takes-no-keyboard":
            window.set_wm_hints(flags=Xutil.InputHint, input=0)

    def show(self) -> Any:
        """Show both windows, the special one last; return it."""
        plain = self.make("plain", "plain", 300, 250, PLAIN_COLOR)
        plain.map()
        self.wait_mapped(plain)
        x = OFF_SCREEN_PX - 100 if self._kind == "off-screen" else OFF_SCREEN_PX
        place = (x, 260) if self._kind in ("off-screen", "partly-off-screen") else (350, 280)
        window = self.make(
            "special", self._title, *place, self._color, override_redirect=int(self._kind == "menu")
        )
        self.dress(window, plain)
        window.map()
        if self._kind not in ("minimised", "other-workspace"):
            self.wait_mapped(window)
        if self._kind == "off-screen":
            self.ask(window, "_NET_MOVERESIZE_WINDOW", MOVE_BY_USER, *place)
        if self._kind == "shaded":  # openbox takes it from a window that is shown only
            self.ask(window, "_NET_WM_STATE", ADD_STATE, self.atom("_NET_WM_STATE_SHADED"), 0, FROM_USER)
        return window

    def wait_mapped(self, window: Any) -> None:
        """Wait until the window manager has shown a window."""
        while True:
            event = self._display.next_event()
            if event.type == X.MapNotify and event.window.id == window.id:
                return

    def ask(self, window: Any, kind: str, *data: int) -> None:
        """Ask the window manager for something, as a user does by its menus."""
        words = [*(word & 0xFFFFFFFF for word in data), 0, 0, 0, 0, 0][:5]
        message = xevent.ClientMessage(window=window, client_type=self.atom(kind), data=(32, words))
        self._root.send_event(message, X.SubstructureNotifyMask | X.SubstructureRedirectMask)

    def run(self) -> None:
        """Write down what comes, until both windows are gone."""
        window = self.show()
        self._display.sync()
        self.write("ready", id=window.id)
        while self._names:
            event = self._display.next_event()
            if event.type == X.MappingNotify:
                self._display.refresh_keyboard_mapping(event)
                continue
            name = self._names.get(event.window.id, "")
            if event.type == X.ButtonPress:
                self.write("click", window=name)
            elif event.type == X.KeyPress:
                keysym = self._display.keycode_to_keysym(event.detail, event.state & X.ShiftMask)
                self.write("text", window=name, value=XK.keysym_to_string(keysym))
            elif event.type == X.ClientMessage:
                self.write("exit", window=name)
                event.window.destroy()
                self._display.flush()
                del self._names[event.window.id]


if __name__ == "__main__":
    Program(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4], 16)).run()
