"""What the witnesses share: where their parts lie, how they write down what they received."""

from __future__ import annotations

import json
from pathlib import Path

WIDTH, HEIGHT = 900, 700
PLACES = {
    "entry": (10, 10, 280, 34),
    "password": (10, 54, 280, 34),
    "spin": (10, 98, 280, 34),
    "mask": (10, 142, 280, 34),
    "search": (10, 186, 280, 200),
    "keys": (10, 396, 280, 60),
    "save": (10, 466, 130, 40),
    "open": (150, 466, 130, 40),
    "multiline": (310, 10, 280, 200),
    "scroll": (310, 220, 280, 160),
    "source": (310, 396, 130, 60),
    "drop": (460, 396, 130, 60),
    "area": (10, 516, 880, 170),
}
"""Place and size of each target in the window, in pixels."""
ROWS = ("apple", "banana", "cherimoya", "cherry", "date", "elderberry", "fig", "grape")
"""Rows of the list with type-ahead search. Two begin alike, so that a lost letter selects the wrong one."""
LATE_MS = 300
"""Time between the click on "open" and the window that it opens."""
DOUBLE_CLICK_MS, DOUBLE_CLICK_PX = 400, 5
"""Bounds of a double click where the toolkit has no notion of it; GTK's defaults."""


class Recorder:
    """Appends events to a file, one JSON object a line."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def write(self, event: str, **fields: object) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **fields}, ensure_ascii=False) + "\n")

    def ready(self, origin: tuple[int, int], names: tuple[str, ...]) -> None:
        """Say that the window is mapped and laid out, and where its targets are on the screen.

        Args:
            origin: the screen position of the window's content.
        """
        x, y = origin
        places = {name: PLACES[name] for name in names}
        targets = {name: [x + place[0], y + place[1], *place[2:]] for name, place in places.items()}
        self.write("ready", targets=targets)


class PressCounter:
    """Counts presses that belong together, for toolkits that leave it to the program."""

    def __init__(self) -> None:
        self._last = (0, 0, 0, 0)
        self._count = 0

    def count(self, button: int, x: int, y: int, time_ms: int) -> int:
        """Return 1 for a single click, 2 for the second press of a double click, 3 for a triple click."""
        last_button, last_x, last_y, last_ms = self._last
        near = max(abs(x - last_x), abs(y - last_y)) <= DOUBLE_CLICK_PX
        soon = time_ms - last_ms <= DOUBLE_CLICK_MS
        self._count = self._count % 3 + 1 if self._count and button == last_button and near and soon else 1
        self._last = (button, x, y, time_ms)
        return self._count


class Stroke:
    """One press, move and release of the pointer."""

    def __init__(self, x: int, y: int) -> None:
        self._path = [[x, y]]

    def move(self, x: int, y: int) -> None:
        """Take down one motion while the button is down."""
        self._path.append([x, y])

    def end(self, recorder: Recorder, x: int, y: int) -> None:
        """Record a drag, if the pointer is no longer where it was pressed."""
        if [x, y] != self._path[0]:
            ends = {"from": self._path[0], "to": [x, y]}
            recorder.write("drag", points=len(self._path) - 1, path=self._path, **ends)


def key_name(symbol: str, char: str, *, ctrl: bool, alt: bool, shift: bool) -> str:
    """Name a key as the protocol of the witnesses does: `a`, `A`, `Return`, `shift+Right`, `ctrl+shift+s`.

    Args:
        char: the printable character that it types, or nothing.
        ctrl: Control was down before it.
        shift: Shift was down before it; part of the name only where no character says so.
    """
    modifier = symbol.startswith(("Shift", "Control", "Alt", "Meta", "ISO_"))
    if modifier:
        return symbol
    printable = len(char) == 1 and char.isprintable() and char != " "
    chord = ctrl or alt
    key = char if printable else symbol
    if chord and len(key) == 1:
        key = key.lower()
    parts = ["ctrl"] * ctrl + ["alt"] * alt + ["shift"] * (shift and (chord or not printable))
    return "+".join([*parts, key])
