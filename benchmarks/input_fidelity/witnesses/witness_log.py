"""Write down what a witness received: one JSON line for each event, flushed at once.

A witness imports it by its folder, so the folder is copied into a replica as a whole. Nothing but the
standard library of the image's own Python is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

MODIFIERS = ("ctrl", "alt", "shift", "super")
NAMED_KEYSYMS = {
    0x20: "space",
    0xFF08: "BackSpace",
    0xFF09: "Tab",
    0xFF0D: "Return",
    0xFF1B: "Escape",
    0xFF50: "Home",
    0xFF51: "Left",
    0xFF52: "Up",
    0xFF53: "Right",
    0xFF54: "Down",
    0xFF55: "Prior",
    0xFF56: "Next",
    0xFF57: "End",
    0xFF63: "Insert",
    0xFF8D: "KP_Enter",
    0xFFE1: "Shift_L",
    0xFFE2: "Shift_R",
    0xFFE3: "Control_L",
    0xFFE4: "Control_R",
    0xFFE5: "Caps_Lock",
    0xFFE9: "Alt_L",
    0xFFEA: "Alt_R",
    0xFFEB: "Super_L",
    0xFFEC: "Super_R",
    0xFFFF: "Delete",
    **{0xFFBE + at: f"F{at + 1}" for at in range(12)},
}
"""Names of X.Org's keysymdef.h for the keys that type no character."""


class WitnessLog:
    """A file of JSON lines that another process reads while it grows.

    Args:
        path: the file; it is appended to.
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - open until the end

    def write(self, event: str, **fields: Any) -> None:
        """Append one event."""
        self._file.write(json.dumps({"event": event, **fields}, ensure_ascii=False) + "\n")
        self._file.flush()

    def ready(self, targets: dict[str, Iterable[int]]) -> None:
        """Say that the window is laid out, and where each target is on the screen: x, y, width, height."""
        self.write("ready", targets={name: [int(part) for part in box] for name, box in targets.items()})


def keysym_name(keysym: int) -> str:
    """Return the character that a keysym types, or its name in X.Org's header.

    >>> keysym_name(0x61), keysym_name(0x1002603), keysym_name(0xFF0D)
    ('a', '☃', 'Return')
    """
    if keysym in NAMED_KEYSYMS:
        return NAMED_KEYSYMS[keysym]
    if keysym > 0x1000000:
        return chr(keysym - 0x1000000)
    return chr(keysym) if 0x20 < keysym < 0x100 else hex(keysym)


def chord_name(name: str, held: Iterable[str]) -> str:
    """Return a key with the modifiers that are held; Shift alone is part of the character.

    >>> chord_name("S", ["shift", "ctrl"]), chord_name("S", ["shift"]), chord_name("Control_L", ["ctrl"])
    ('ctrl+shift+s', 'S', 'Control_L')
    """
    held = set(held)
    if name.endswith(("_L", "_R")):
        return name
    shows_shift = len(name) > 1 or bool(held - {"shift"})
    parts = [modifier for modifier in MODIFIERS if modifier in held and (modifier != "shift" or shows_shift)]
    return "+".join([*parts, name.lower() if parts and len(name) == 1 else name])
