"""Generic actions for unknown applications, the same for the same seed. Pure.

Menus are walked, dialogs opened and accepted, files saved and opened below /tmp, text typed. Nothing is
closed on purpose. Damage is limited to a replica that ends with the exploration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

FOLDER = "/tmp/osgym-calibration"  # noqa: S108 (in the replica)
WORDS = ("hello", "world", "total", "report", "alpha", "budget", "quick", "brown")


@dataclass(frozen=True, slots=True)
class Area:
    """Place of an application's window, in pixels of the screen."""

    x_px: int
    y_px: int
    width_px: int
    height_px: int

    def at(self, across: float, down: float) -> dict[str, int]:
        """Return a point within it, by shares of its size."""
        return {"x": round(self.x_px + across * self.width_px), "y": round(self.y_px + down * self.height_px)}


@dataclass(frozen=True, slots=True)
class Group:
    """Actions that belong together; the application's window gets the focus before each group."""

    name: str
    actions: tuple[dict[str, Any], ...]


def key(chord: str) -> dict[str, Any]:
    return {"op": "key", "keys": chord.split("+")}


def text(words: str) -> dict[str, Any]:
    return {"op": "type", "text": words}


def explore(area: Area, seed: int, number: int) -> Iterator[Group]:
    """Yield the groups of one round through an application; each round has other words and names of files.

    Args:
        number: Number of the round, from 0; every second one saves over the file of the one before.
    """
    random = Random(f"{seed}/{number}")  # noqa: S311 (the same for the same seed)
    word = random.choice(WORDS)
    path = f"{FOLDER}/{seed}-{number // 2}.txt"
    leave = (key("Escape"), key("Escape"))
    yield Group("text", (_click(area, random), text(word), key("Return"), text("12"), key("BackSpace")))
    yield Group("menu", (key("F10"), key("Down"), key("Down"), key("Right"), key("Down"), *leave))
    yield Group("save", (key("ctrl+s"), key("ctrl+a"), text(path), key("Return"), key("Return"), *leave))
    yield Group(
        "save as", (key("ctrl+shift+s"), key("ctrl+a"), text(path), key("Return"), key("Return"), *leave)
    )
    yield Group("open", (key("ctrl+o"), text(f"{FOLDER}/note.txt"), key("Return"), key("Return"), *leave))
    yield Group("walk", (key("ctrl+Home"), key("Down"), key("Tab"), key("Next"), key("Up"), key("ctrl+End")))
    yield Group("find", (key("ctrl+f"), text(word), key("Return"), key("Return"), key("Escape")))
    yield Group("print", (key("ctrl+p"), key("Tab"), key("Right"), key("Return"), *leave))
    for letter in random.sample("fevhtio", 3):
        walked = (key("Down"), key("Right"), key("Up"))
        yield Group(f"alt+{letter}", (key(f"alt+{letter}"), *walked, key("Escape"), key("Escape")))
    yield Group("about", (key("alt+h"), key("Up"), key("Return"), key("Tab"), key("Return"), *leave))
    yield Group("preferences", (key("alt+e"), key("Up"), key("Return"), key("Tab"), key("Return"), *leave))
    yield Group("context", (_click(area, random, "right"), key("Down"), key("Down"), *leave))
    yield Group("wheel", (_wheel(area, 3), _wheel(area, -3), _click(area, random)))
    yield Group(
        "select", (key("ctrl+a"), key("Right"), text(random.choice(WORDS)), key("ctrl+z"), key("ctrl+z"))
    )


def _click(area: Area, random: Random, button: str = "left") -> dict[str, Any]:
    """Return a click in the middle part of the window, away from its frame's buttons."""
    point = area.at(random.uniform(0.3, 0.7), random.uniform(0.35, 0.7))
    return {"op": "click", **point, "button": button}


def _wheel(area: Area, clicks: int) -> dict[str, Any]:
    return {"op": "scroll", **area.at(0.5, 0.5), "dx": 0, "dy": clicks}
