"""Settle table: timer horizons of an image's programs by kind of action, found by `osgym settle calibrate`.

Pure.

The host keeps it as a file beside the image and gives it to every replica; the guest agent's policy `exact`
counts timers by it. Both derive the kind of an action by `kind_of` from the action alone: what it will open
is unknown when the wait begins.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from osgym_protocol.actions import Action, ButtonState, Click, Hold, Key, KeyState, Screenshot, Type, Wait
from osgym_protocol.codes import TextEnum
from osgym_protocol.keysyms import KEYSYMS, MODIFIERS

ENVIRONMENT = "OSGYM_SETTLE_TABLE"
"""Variable by which a replica gets the table, as JSON."""
MAX_PROGRAMS = 32
MAX_HORIZON_MS = 1000.0
PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+:/@ -]{0,14}")
"""Names of programs as the kernel keeps them: 15 characters."""

_COMMITS = frozenset({0xFF0D, 0xFF8D})
_DELETES = frozenset({0xFF08, 0xFFFF})
_MOVES = frozenset({0xFF09, 0xFE20, 0xFF1B, *range(0xFF50, 0xFF59)})
_OPENS = frozenset({0xFF67, *range(0xFFBE, 0xFFE1)})
"""Keysyms of X11's keysymdef.h: Return and its like; BackSpace and Delete; Tab, Escape and the arrows' block;
Menu and the function keys.
"""
_SHIFTS = frozenset(KEYSYMS[name] for name in MODIFIERS if name.startswith("Shift"))
_MODIFIERS = frozenset(KEYSYMS[name] for name in MODIFIERS)


class ActionKind(TextEnum):
    """Likely effect of an action, derived from its form.

    `commit` is Return, or a text that ends with a line; `open` a click, a chord with Ctrl, Alt or Super, a
    function key; `type` a text, a character, a deletion; `navigate` all else: arrows, Tab, Escape, wheel.
    """

    COMMIT = "commit"
    OPEN = "open"
    NAVIGATE = "navigate"
    TYPE = "type"


@dataclass(frozen=True)
class TimerHorizons:
    """Times until which a program's timers count, after the action and after the last change; 0: off."""

    horizon_ms: float
    change_horizon_ms: float


Table = Mapping[str, Mapping[ActionKind, TimerHorizons]]
"""Horizons by name of program and kind of action."""


def kind_of(actions: Sequence[Action]) -> ActionKind:
    """Return the kind of a step: that of the last of its actions that does something."""
    acting = [action for action in actions if not isinstance(action, (Wait, Screenshot))]
    last = acting[-1] if acting else None
    if isinstance(last, Type):
        return ActionKind.COMMIT if last.text.endswith("\n") else ActionKind.TYPE
    if isinstance(last, (Key, Hold)):
        return _kind_of_chord(last.keysyms)
    if isinstance(last, KeyState):
        return _kind_of_chord((last.keysym,))
    return ActionKind.OPEN if isinstance(last, (Click, ButtonState)) else ActionKind.NAVIGATE


def _kind_of_chord(keysyms: Sequence[int]) -> ActionKind:
    pressed = [keysym for keysym in keysyms if keysym not in _MODIFIERS]
    if not pressed:
        return ActionKind.NAVIGATE
    main = pressed[-1]
    if main in _COMMITS:
        return ActionKind.COMMIT
    if main in _MOVES:
        return ActionKind.NAVIGATE
    if main in _OPENS or any(each in _MODIFIERS - _SHIFTS for each in keysyms):
        return ActionKind.OPEN
    is_character = 0x20 <= main <= 0xFF or main >= 0x01000000
    return ActionKind.TYPE if is_character or main in _DELETES else ActionKind.NAVIGATE


def parse_table(raw: Any) -> dict[str, dict[ActionKind, TimerHorizons]]:
    """Check a table that was decoded from JSON.

    Raises:
        ValueError: It is malformed or beyond its bounds; the message names the program.
    """
    if not isinstance(raw, Mapping) or len(raw) > MAX_PROGRAMS:
        raise ValueError(f"the settle table must be an object of at most {MAX_PROGRAMS} programs")
    table: dict[str, dict[ActionKind, TimerHorizons]] = {}
    for program, kinds in raw.items():
        if not isinstance(program, str) or not PROGRAM.fullmatch(program) or not isinstance(kinds, Mapping):
            raise ValueError(f"the settle table is malformed: {str(program)[:40]!r}")
        table[program] = {_kind(program, name): _horizons(program, given) for name, given in kinds.items()}
    return table


def _kind(program: str, name: Any) -> ActionKind:
    try:
        return ActionKind(name)
    except ValueError as exc:
        kinds = ", ".join(ActionKind)
        raise ValueError(f"the settle table: {program} has {str(name)[:40]!r}, not one of {kinds}") from exc


def _horizons(program: str, given: Any) -> TimerHorizons:
    names = {"horizon_ms", "change_horizon_ms"}
    if not isinstance(given, Mapping) or set(given) != names:
        raise ValueError(f"the settle table: {program} needs {' and '.join(sorted(names))}")
    for name in sorted(names):
        value = given[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"the settle table: {name} of {program} is not a number")
        if not math.isfinite(value) or not 0 <= value <= MAX_HORIZON_MS:
            raise ValueError(f"the settle table: {name} of {program} is not within 0 to {MAX_HORIZON_MS:g}")
    return TimerHorizons(float(given["horizon_ms"]), float(given["change_horizon_ms"]))


def table_json(table: Table) -> dict[str, dict[str, dict[str, float]]]:
    """Return a table as JSON values, sorted, so that equal tables are equal texts."""
    return {
        program: {
            str(kind): {"horizon_ms": own.horizon_ms, "change_horizon_ms": own.change_horizon_ms}
            for kind, own in sorted(kinds.items())
        }
        for program, kinds in sorted(table.items())
    }
