"""Witness of plain X11: `python3 x11.py LOG` shows a window and appends what it received to LOG.

No toolkit stands between the X server and this program. Fields are as simple as can be: a text is what the
keysyms of the events say, in the group and with the Shift that the events carry.
"""

from __future__ import annotations

import sys

from recorder import HEIGHT, PLACES, WIDTH, PressCounter, Recorder, Stroke, key_name
from Xlib import XK, X, Xatom, Xutil
from Xlib import display as xdisplay
from Xlib.protocol import event as xevent

TARGETS = ("entry", "password", "multiline", "keys", "area", "scroll")
WHEEL = {4: (0, -1), 5: (0, 1), 6: (-1, 0), 7: (1, 0)}
UNICODE = 0x01000000
"""Keysyms from here on are characters: https://www.x.org/releases/current/doc/xproto/x11protocol.html."""
GROUP_SHIFT = 13
"""Bits 13 and 14 of an event's state are its group: XkbGroupForCoreState, X11/extensions/XKB.h."""


class Window:
    """A window with fields at fixed places, and which of them has the keyboard."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._display = xdisplay.Display()
        screen = self._display.screen()
        self._window = screen.root.create_window(
            60,
            60,
            WIDTH,
            HEIGHT,
            0,
            screen.root_depth,
            background_pixel=screen.white_pixel,
            event_mask=X.KeyPressMask
            | X.KeyReleaseMask
            | X.ButtonPressMask
            | X.ButtonReleaseMask
            | X.ButtonMotionMask
            | X.ExposureMask
            | X.FocusChangeMask
            | X.StructureNotifyMask,
        )
        self._window.set_wm_name("witness x11")
        self._window.set_wm_class("witness", "Witness")
        self._window.set_wm_normal_hints(
            flags=Xutil.PMinSize | Xutil.PMaxSize,
            min_width=WIDTH,
            min_height=HEIGHT,
            max_width=WIDTH,
            max_height=HEIGHT,
        )
        self._close = self._display.intern_atom("WM_DELETE_WINDOW")
        self._protocols = self._display.intern_atom("WM_PROTOCOLS")
        self._window.change_property(self._protocols, Xatom.ATOM, 32, [self._close])
        self._pen = self._window.create_gc(foreground=screen.black_pixel)
        self._focus = ""
        self._replace = False
        self._texts = {"entry": "", "password": "", "multiline": ""}
        self._presses = PressCounter()
        self._stroke: Stroke | None = None
        self._mapped = self._focused = self._told = False
        self._window.map()

    def run(self) -> None:
        """Handle events until the window is closed."""
        while True:
            event = self._display.next_event()
            match event.type:
                case X.Expose:
                    self._draw()
                    self._mapped = True
                case X.FocusIn:
                    self._focused = True
                case X.ButtonPress:
                    self._button(event)
                case X.MotionNotify if self._stroke is not None:
                    self._stroke.move(event.root_x, event.root_y)
                case X.ButtonRelease if self._stroke is not None and event.detail < min(WHEEL):
                    self._stroke.end(self._recorder, event.root_x, event.root_y)
                    self._stroke = None
                case X.KeyPress | X.KeyRelease:
                    self._key(event, event.type == X.KeyPress)
                case X.MappingNotify:
                    self._display.refresh_keyboard_mapping(event)
                case X.ClientMessage if event.data[1][0] == self._close:
                    self._recorder.write("exit")
                    return
            if self._mapped and self._focused and not self._told:
                self._told = True
                origin = self._window.translate_coords(self._display.screen().root, 0, 0)
                self._recorder.ready((-origin.x, -origin.y), TARGETS)

    def _draw(self) -> None:
        for name in TARGETS:
            x, y, width, height = PLACES[name]
            self._window.rectangle(self._pen, x, y, width - 1, height - 1)
            text = self._texts.get(name) or name
            self._window.clear_area(x + 1, y + 1, width - 2, height - 2)
            shown = text.encode("ascii", "replace")[-40:]
            self._window.draw_text(self._pen, x + 6, y + 20, shown)

    def _button(self, event: xevent.ButtonPress) -> None:
        target = next((name for name in TARGETS if _inside(PLACES[name], event)), "")
        if event.detail in WHEEL:
            if target == "scroll":
                dx, dy = WHEEL[event.detail]
                self._recorder.write("scroll", dx=dx, dy=dy)
            return
        self._focus = target
        if target == "area":
            x, y, button = event.root_x, event.root_y, event.detail
            count = self._presses.count(button, x, y, event.time)
            self._recorder.write("click", target="area", button=button, count=count, x=x, y=y)
            self._stroke = Stroke(x, y)

    def _key(self, event: xevent.KeyPress, down: bool) -> None:
        keysym = self._keysym(event)
        symbol, char = _symbol(keysym), _char(keysym)
        ctrl = bool(event.state & X.ControlMask)
        if self._focus == "keys":
            alt, shift = bool(event.state & X.Mod1Mask), bool(event.state & X.ShiftMask)
            name = key_name(symbol, char, ctrl=ctrl, alt=alt, shift=shift)
            self._recorder.write("key", name=name, down=down)
        elif down and self._focus in self._texts:
            if ctrl and char == "a":
                self._replace = True
            else:
                self._edit(self._focus, symbol, "" if ctrl else char)

    def _keysym(self, event: xevent.KeyPress) -> int:
        """Return what a key means in the group and with the Shift of its event."""
        first = (event.state >> GROUP_SHIFT & 3) * 2
        shift = bool(event.state & X.ShiftMask)
        of = self._display.keycode_to_keysym
        keysym = of(event.detail, first + shift) or of(event.detail, first) or of(event.detail, shift)
        return int(keysym or of(event.detail, 0))

    def _edit(self, target: str, symbol: str, char: str) -> None:
        text = "" if self._replace and char else self._texts[target]
        self._replace = self._replace and not char
        if symbol == "Return" and target != "multiline":
            self._recorder.write("activate", target=target)
            return
        if symbol == "Tab" and target == "entry":
            self._focus = "password"
            return
        text = text[:-1] if symbol == "BackSpace" else text + ("\n" if symbol == "Return" else char)
        if text != self._texts[target]:
            self._texts[target] = text
            self._recorder.write("text", target=target, value=text)
            self._draw()


def _inside(place: tuple[int, int, int, int], event: xevent.ButtonPress) -> bool:
    x, y, width, height = place
    return x <= event.event_x < x + width and y <= event.event_y < y + height


def _symbol(keysym: int) -> str:
    return next((name[3:] for name in _NAMES if getattr(XK, name) == keysym), "")


def _char(keysym: int) -> str:
    if keysym >= UNICODE:
        return chr(keysym - UNICODE)
    if 0x20 <= keysym < 0x7F or 0xA0 <= keysym < 0x100:
        return chr(keysym)
    return _CYRILLIC.get(keysym, "")


XK.load_keysym_group("cyrillic")
_NAMES = [name for name in dir(XK) if name.startswith("XK_")]
_KOI8 = range(0x6C0, 0x700)
"""Cyrillic keysyms are 0x600 and the letter's place in KOI8-R."""
_CYRILLIC = {keysym: bytes([keysym - 0x600]).decode("koi8-r") for keysym in _KOI8}

if __name__ == "__main__":
    Window(Recorder(sys.argv[1])).run()
