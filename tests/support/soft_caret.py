"""An X client whose window shows nothing but a caret that blinks, on a part of a letter of its colour.

The caret is a bar with an edge softer than its middle.

Run by its path, with DISPLAY set; it draws until it is killed.
"""

from __future__ import annotations

import ctypes
import time

WINDOW_PX = (400, 300)
CARET = (200, 100, 18)
"""Left, top, height in pixels."""
COLUMN_COLOURS = (0x000000, 0x9A9A9A)
WHITE = 0xFFFFFF
LETTER_PX = (0, 5)
"""Column and row in the caret of a pixel that is black always."""
BLINK_S = 0.3
CW_BACK_PIXEL, INPUT_OUTPUT, Z_PIXMAP, DEPTH = 2, 1, 2, 24


class Screen(ctypes.Structure):
    """The beginning of `xcb_screen_t`."""

    _fields_ = (("root", ctypes.c_uint32),)


class Iterator(ctypes.Structure):
    """`xcb_screen_iterator_t`."""

    _fields_ = (("data", ctypes.POINTER(Screen)), ("rem", ctypes.c_int), ("index", ctypes.c_int))


def main() -> None:
    """Open the window and blink."""
    xcb = ctypes.CDLL("libxcb.so.1")
    for name in ("xcb_connect", "xcb_get_setup"):
        getattr(xcb, name).restype = ctypes.c_void_p
    xcb.xcb_setup_roots_iterator.restype = Iterator
    connection = ctypes.c_void_p(xcb.xcb_connect(None, None))
    root = xcb.xcb_setup_roots_iterator(ctypes.c_void_p(xcb.xcb_get_setup(connection))).data.contents.root
    window, context = xcb.xcb_generate_id(connection), xcb.xcb_generate_id(connection)
    white = (ctypes.c_uint32 * 1)(WHITE)
    xcb.xcb_create_window(
        connection, 0, window, root, 0, 0, *WINDOW_PX, 0, INPUT_OUTPUT, 0, CW_BACK_PIXEL, white
    )
    xcb.xcb_create_gc(connection, context, window, 0, None)
    xcb.xcb_map_window(connection, window)
    shown = False
    left, top, height = CARET
    while not xcb.xcb_connection_has_error(connection):
        shown = not shown
        row = COLUMN_COLOURS if shown else (WHITE,) * len(COLUMN_COLOURS)
        pixels = (ctypes.c_uint32 * (len(row) * height))(*(row * height))
        pixels[LETTER_PX[1] * len(row) + LETTER_PX[0]] = COLUMN_COLOURS[0]
        xcb.xcb_put_image(
            connection, Z_PIXMAP, window, context, len(row), height, left, top, 0, DEPTH,
            ctypes.sizeof(pixels), pixels,
        )  # fmt: skip
        xcb.xcb_flush(connection)
        time.sleep(BLINK_S)


if __name__ == "__main__":
    main()
