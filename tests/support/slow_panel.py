"""A panel that works for a while before it shows a new list of windows, and perhaps has a clock without end.

`python slow_panel.py WORK_S CLOCK_HZ`, by the system's Python, which has python-xlib. It draws until it is
killed.
"""

from __future__ import annotations

import select
import sys
import time

from Xlib import X, Xatom, Xutil, display

HEIGHT_PX = 30


def work(seconds: float) -> None:
    """Use the processor."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        pass


def main() -> None:
    """Open the panel and draw."""
    work_s, clock_hz = float(sys.argv[1]), float(sys.argv[2])
    server = display.Display()
    screen = server.screen()
    size = (screen.width_in_pixels, HEIGHT_PX)
    window = screen.root.create_window(
        0, screen.height_in_pixels - HEIGHT_PX, *size, 0, X.CopyFromParent, background_pixel=0x202020
    )
    dock = server.intern_atom("_NET_WM_WINDOW_TYPE_DOCK")
    window.change_property(server.intern_atom("_NET_WM_WINDOW_TYPE"), Xatom.ATOM, 32, [dock])
    window.set_wm_normal_hints(flags=Xutil.USPosition)
    listed = server.intern_atom("_NET_CLIENT_LIST")
    screen.root.change_attributes(event_mask=X.PropertyChangeMask)
    context = window.create_gc()
    window.map()
    server.flush()
    ticks = 0
    while True:
        select.select([server.fileno()], [], [], 1 / clock_hz if clock_hz else None)
        changed = False
        while server.pending_events():
            event = server.next_event()
            changed |= event.type == X.PropertyNotify and event.atom == listed
        if changed:
            work(work_s)
            count = len(screen.root.get_full_property(listed, X.AnyPropertyType).value)
            context.change(foreground=0x4080C0)
            window.fill_rectangle(context, 0, 0, 40 * count, HEIGHT_PX)
        if clock_hz:
            ticks += 1
            work(0.4 / clock_hz)
            context.change(foreground=ticks * 0x010203 & 0xFFFFFF)
            window.fill_rectangle(context, size[0] - 60, 0, 60, HEIGHT_PX)
        server.flush()


if __name__ == "__main__":
    main()
