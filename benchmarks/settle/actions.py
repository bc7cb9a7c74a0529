"""Actions of scenarios, and the flows that are the same in most applications. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any

from benchmarks.settle.documents import FOLDER

InternalAction = dict[str, Any]

WORDS = ("hello", "world", "total", "report", "alpha", "budget", "quick", "brown")
SAVED = f"{FOLDER}/saved"
"""Folder in which flows save files."""


class Kind(StrEnum):
    """Kind of effect that an action has on the screen."""

    CLICK = "click"
    KEY = "key"
    TYPE = "type"
    SCROLL = "scroll"
    MENU = "menu"
    DIALOG = "dialog"
    TAB = "tab"
    LINK = "link"
    OPEN = "open"
    COMMIT = "commit"
    HOVER = "hover"
    NOTHING = "nothing"


GROUPS: dict[Kind, str] = {
    Kind.COMMIT: "commit",
    Kind.OPEN: "open",
    Kind.DIALOG: "open",
    Kind.TYPE: "type",
    Kind.NOTHING: "nothing",
}
"""Groups of the report: a dialog is accepted, a window appears, text, nothing; all else navigates."""


def group_of(kind: str) -> str:
    return GROUPS.get(Kind(kind), "navigate")


@dataclass(frozen=True, slots=True)
class Action:
    """One step: a name for the report, its kind, and its actions."""

    label: str
    kind: Kind
    send: InternalAction


@dataclass(frozen=True, slots=True)
class Application:
    """One application: its start, its window, and its actions.

    Attributes:
        window: A part of its window's title.
        saves: Files that must exist at the end, which prove that its flows were carried through.
        kept: It is kept for the end: no rule is chosen by looking at it.
        own_image: It is in the benchmark's own image only.
        mix: `strokes`, single actions that leave dialogs by Escape, or `flows`, carried to their end.
    """

    name: str
    command: str
    window: str
    actions: Callable[[Random], list[Action]]
    saves: tuple[str, ...] = ()
    kept: bool = False
    own_image: bool = False
    mix: str = "strokes"


def key(chord: str, kind: Kind = Kind.KEY, label: str | None = None) -> Action:
    return Action(label or chord, kind, {"op": "key", "keys": chord.split("+")})


def keys(*chords: str, kind: Kind = Kind.KEY) -> list[Action]:
    """Press one chord after the other, a step for each."""
    return [key(chord, kind) for chord in chords]


def click(
    label: str, point: tuple[int, int], kind: Kind = Kind.CLICK, *, button: str = "left", count: int = 1
) -> Action:
    return Action(
        label, kind, {"op": "click", "x": point[0], "y": point[1], "button": button, "count": count}
    )


def write(text: str) -> Action:
    return Action(f"type {text}", Kind.TYPE, {"op": "type", "text": text})


def scroll(point: tuple[int, int], clicks: int) -> Action:
    label = "scroll down" if clicks > 0 else "scroll up"
    return Action(label, Kind.SCROLL, {"op": "scroll", "x": point[0], "y": point[1], "dy": clicks})


def move(label: str, point: tuple[int, int], kind: Kind = Kind.HOVER) -> Action:
    return Action(label, kind, {"op": "move", "x": point[0], "y": point[1]})


def drag(label: str, start: tuple[int, int], end: tuple[int, int]) -> Action:
    return Action(label, Kind.CLICK, {"op": "drag", "path": [list(start), list(end)]})


def nothing() -> Action:
    """Press a key that changes nothing, which measures the wait of a policy without an effect."""
    return key("shift", Kind.NOTHING, "shift alone")


def commit(label: str, chord: str = "Return") -> Action:
    """Accept a dialog by its default button."""
    return key(chord, Kind.COMMIT, label)


def save_as(chord: str, path: str, *answers: str, accept: str = "Return") -> list[Action]:
    """Save under a name; `answers` are the questions that must be accepted (overwrite, keep the format)."""
    return [
        key(chord, Kind.OPEN, "save as"), key("ctrl+a"), write(path), commit("save", accept),
        *(commit(answer) for answer in answers),
    ]  # fmt: skip


def open_file(path: str, chord: str = "ctrl+o") -> list[Action]:
    return [key(chord, Kind.OPEN, "open"), write(path), commit("open it")]


def look_at(*chords: str) -> list[Action]:
    """Open dialogs one after the other and leave each."""
    return [step for chord in chords for step in (key(chord, Kind.OPEN), key("Escape", Kind.DIALOG))]


def walk_menus(opener: str = "F10") -> list[Action]:
    """Go from the menu bar through the first menus by keyboard, and out again."""
    moves = keys("Down", "Down", "Right", "Down", "Right", "Down", "Left", kind=Kind.MENU)
    return [key(opener, Kind.MENU, "menu bar"), *moves, key("Escape", Kind.MENU), key("Escape", Kind.MENU)]
