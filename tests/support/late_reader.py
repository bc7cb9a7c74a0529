"""A dialog of plain Xlib that reads its keys late, and takes an Enter only when a timer after them has fired.

`python late_reader.py READ_AFTER_S TIMER_S`, with libX11 alone. It draws nothing. As GTK's file dialog
does, it completes a name by a timer and ignores an Enter that comes before. It makes the file `accepted` when
it takes one, and `lost` when it loses one.
"""

from __future__ import annotations

import ctypes
import select
import sys
import time
from pathlib import Path

KEY_PRESS, KEY_EVENTS = 2, 1
ENTER_CODE = 36


def main() -> None:
    """Open the dialog and read keys until it is killed."""
    read_after_s, timer_s = float(sys.argv[1]), float(sys.argv[2])
    x11 = ctypes.CDLL("libX11.so.6")
    x11.XOpenDisplay.restype = ctypes.c_void_p
    display = ctypes.c_void_p(x11.XOpenDisplay(None))
    root = ctypes.c_ulong(x11.XDefaultRootWindow(display))
    window = ctypes.c_ulong(x11.XCreateSimpleWindow(display, root, 0, 0, 300, 200, 0, 0, 0xFFFFFF))
    x11.XSetTransientForHint(display, window, root)
    x11.XSelectInput(display, window, ctypes.c_long(KEY_EVENTS))
    x11.XMapWindow(display, window)
    x11.XFlush(display)
    event = (ctypes.c_uint * 64)()
    connection = x11.XConnectionNumber(display)
    completes_s: float | None = None
    while True:
        left_s = None if completes_s is None else max(0.0, completes_s - time.monotonic())
        select.select([connection], [], [], left_s)
        if completes_s is not None and time.monotonic() >= completes_s:
            completes_s = None
            continue
        _work(read_after_s)
        while x11.XPending(display):
            x11.XNextEvent(display, ctypes.byref(event))
            if event[0] != KEY_PRESS:
                continue
            if event[21] != ENTER_CODE:
                completes_s = time.monotonic() + timer_s
            else:
                Path("accepted" if completes_s is None else "lost").touch()


def _work(seconds: float) -> None:
    """Use the processor."""
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        pass


if __name__ == "__main__":
    main()
