"""Opens many windows, with a menu above them, and many helper windows that nobody sees.

`python many_windows.py COUNT`, by the system's Python, which has python-xlib. It prints "open" when the X
server has all windows, and stays until it is killed.
"""

from __future__ import annotations

import sys

from Xlib import X, display


def main() -> None:
    """Open them."""
    count = int(sys.argv[1])
    server = display.Display()
    root = server.screen().root
    for number in range(count):
        window = root.create_window(10, 40, 200, 100, 0, X.CopyFromParent)
        window.set_wm_name(f"window {number}")
        window.map()
    menu = root.create_window(50, 50, 100, 200, 0, X.CopyFromParent, override_redirect=True)
    menu.set_wm_name("menu")
    menu.map()
    for _ in range(count):
        root.create_window(0, 0, 10, 10, 0, X.CopyFromParent)
    server.sync()
    print("open", flush=True)
    while True:
        server.next_event()


if __name__ == "__main__":
    main()
