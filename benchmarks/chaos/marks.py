"""Mark of an episode in its frames: blocks of two colours, all over the desktop's background.

A mark says which task the desktop was set up for and a number that the desktop drew for itself, so that two
attempts at one task, on two replicas, look different. A checksum tells a mark that a window covers in part
from one that is whole.
"""

from __future__ import annotations

import base64
import io
import zlib
from dataclasses import dataclass
from typing import Any

from PIL import Image

BLOCK_PX, COLUMNS, ROWS = 6, 16, 5
TILE_PX, AT_PX = (112, 48), (8, 8)
DARK_BLUE, YELLOW = (32, 32, 160), (224, 224, 64)
"""Colours of 0 and 1, whose blue parts lie on either side of 112."""
DRAW_S = 10.0


@dataclass(frozen=True, order=True)
class Mark:
    """Mark of one desktop.

    Attributes:
        task: Number of the trajectory.
        desktop: Random number that the desktop drew when the task was set up.
    """

    task: int
    desktop: int


def bits_of(mark: Mark) -> list[int]:
    """Return the blocks of a mark, row by row: task and desktop in 32 bits each, checksum in 16."""
    data = mark.task.to_bytes(4, "big") + mark.desktop.to_bytes(4, "big")
    data += (zlib.crc32(data) & 0xFFFF).to_bytes(2, "big")
    return [byte >> place & 1 for byte in data for place in range(7, -1, -1)]


def mark_of(bits: list[int]) -> Mark | None:
    """Return the mark that blocks stand for; None when something covers it."""
    data = bytes(int("".join(map(str, bits[at : at + 8])), 2) for at in range(0, len(bits), 8))
    if int.from_bytes(data[8:], "big") != zlib.crc32(data[:8]) & 0xFFFF:
        return None
    mark = Mark(int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big"))
    return None if mark == Mark(0, 0) else mark


def mark_in(image: Image.Image) -> Mark | None:
    """Return the first whole mark of a screen, from its right side, where windows are rare."""
    blue = (image if image.mode == "RGB" else image.convert("RGB")).getchannel("B")
    width, height = blue.size
    raw = blue.tobytes()
    tiles = range(AT_PX[0], width - COLUMNS * BLOCK_PX, TILE_PX[0])
    for left in reversed(tiles):
        for top in range(AT_PX[1], height - ROWS * BLOCK_PX, TILE_PX[1]):
            bits: list[int] = []
            for row in range(ROWS):
                start = (top + row * BLOCK_PX + BLOCK_PX // 2) * width + left + BLOCK_PX // 2
                bits += [int(value < 112) for value in raw[start : start + COLUMNS * BLOCK_PX : BLOCK_PX]]
            if (mark := mark_of(bits)) is not None:
                return mark
    return None


def mark_of_png(data: bytes) -> Mark | None:
    with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
        return mark_in(image)


_DRAW = """
import os, struct, subprocess, sys, time, zlib
from PIL import ImageGrab
task = int(sys.argv[1])
body = struct.pack(">I", task) + os.urandom(4)
body += struct.pack(">H", zlib.crc32(body) & 0xFFFF)
bits = [byte >> place & 1 for byte in body for place in range(7, -1, -1)]
W, H = {tile}
rows = []
for y in range(H):
    row = bytearray()
    for x in range(W):
        column, line = (x - {left}) // {block}, (y - {top}) // {block}
        inside = 0 <= column < {columns} and 0 <= line < {rows}
        one = inside and bits[line * {columns} + column]
        row += bytes({yellow} if one else {blue})
    rows.append(b"\\0" + bytes(row))
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", W, H, 8, 2, 0, 0, 0))
png += chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b"")
path = "/tmp/mark-%d.png" % task
open(path, "wb").write(png)
def shown():
    screen = ImageGrab.grab(xdisplay=":0").convert("RGB").getchannel("B")
    # windows cover the top right corner last
    for tile in range(screen.width // W):
        got = []
        for row in range({rows}):
            y = {top} + row * {block} + 3
            got += [screen.getpixel((tile * W + {left} + {block} * c + 3, y)) < 112 for c in range({columns})]
        if got == [bool(bit) for bit in bits]:
            return True
    return False
end = time.monotonic() + {seconds}
while not shown():
    if time.monotonic() > end:
        sys.exit("the mark does not show")
    subprocess.run(["pcmanfm", "--set-wallpaper=" + path, "--wallpaper-mode=tile"], timeout=10)
    again = time.monotonic() + 2
    while not shown() and time.monotonic() < again:
        time.sleep(0.02)
"""


def set_up(task: int) -> list[dict[str, Any]]:
    """Return the set-up steps by which a desktop draws its mark, and waits until it shows."""
    script = _DRAW.format(
        tile=TILE_PX,
        left=AT_PX[0],
        top=AT_PX[1],
        block=BLOCK_PX,
        columns=COLUMNS,
        rows=ROWS,
        yellow=YELLOW,
        blue=DARK_BLUE,
        seconds=DRAW_S,
    )
    upload = {"path": "/tmp/draw-mark.py", "data_base64": base64.b64encode(script.encode()).decode()}
    draw = ["python3", "/tmp/draw-mark.py", str(task)]
    return [
        {"type": "upload_file", "parameters": {"files": [upload]}},
        {"type": "execute", "parameters": {"command": draw}},
    ]
