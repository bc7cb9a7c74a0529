"""Variations around a task that leave its request unchanged: looks, places, neighbours, wording, time.

Each variation has a random generator of its own, so that switching one leaves the others, and the task,
unchanged. Its set-up steps come before the task's own, but for the window's place, which comes last. Pure.
"""

from __future__ import annotations

import colorsys
import json
import random
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from osgym_tasks.pieces import HOME, execute, launch, upload

VARIATIONS = ("clock", "distractors", "font_scale", "geometry", "theme", "typos", "wallpaper")
_THEMES = (("Adwaita", "Clearlooks"), ("Adwaita-dark", "Onyx"), ("Arc-Dark", "Onyx-Citrus"),
           ("Arc-Darker", "Bear2"), ("Arc-Lighter", "Natura"))  # fmt: skip
"""Themes of GTK and of the window manager in the image, whose defaults are Arc and OSGym."""
_SCALES = (0.9, 1.1, 1.2, 1.3, 1.45)
_FONTS = ("Noto Sans", "DejaVu Sans", "Liberation Sans")
_FOLDERS = ("Desktop", "Documents", "Downloads", "Pictures", "Public", "Templates")
_NAMES = ("minutes", "old draft", "todo", "holiday", "receipt", "recipe", "phone numbers", "packing list",
          "ideas", "garden", "invoice copy", "reading list", "budget old", "letter", "backups")  # fmt: skip
_TEXTS = ("Remember to call back.", "Nothing here yet.", "To be sorted.", "A draft.")
_WINDOWS = {
    "galculator": ("galculator", ("galculator",)),
    "xfce4-terminal": ("Terminal", ("xfce4-terminal", "--geometry=80x24")),
    "mousepad": ("Untitled", ("mousepad",)),
}
"""Windows by application: a part of the title, and the command."""
_KEYS = {"a": "s", "c": "v", "d": "f", "e": "r", "g": "h", "i": "o", "l": "k", "m": "n", "n": "m", "o": "p",
         "r": "t", "s": "d", "t": "y", "u": "i", "y": "u"}  # fmt: skip
_WORD = re.compile(r"(?<![\w./~-])[a-z]{5,}(?![\w/~-]|\.\w)")
_QUOTED = re.compile(r'"[^"]*"')
_MIN_PX, _SCREEN_PX, _PANEL_PX = (900, 620), (1920, 1080), 60

Dice = Callable[[str], random.Random]
"""Function from the name of a variation to its random generator."""


def checked(vary: Iterable[str]) -> tuple[str, ...]:
    """Return the names in the order of `VARIATIONS`, each once.

    Raises:
        ValueError: There is no such variation.
    """
    wanted = set(vary)
    if unknown := sorted(wanted - set(VARIATIONS)):
        raise ValueError(f"unknown variation {unknown[0][:40]!r}; valid variations: {', '.join(VARIATIONS)}")
    return tuple(name for name in VARIATIONS if name in wanted)


def varied(
    task: Mapping[str, Any], literals: Collection[str], vary: Collection[str], dice: Dice
) -> dict[str, Any]:
    """Return the task with these variations.

    Args:
        literals: Parts of the instruction that no typo may change.
        dice: Gives each variation its random generator.
    """
    made = dict(task)
    own = list(task["config"])
    before: list[dict[str, Any]] = []
    if "wallpaper" in vary:
        before += _wallpaper(dice("wallpaper"))
    if "theme" in vary or "font_scale" in vary:
        theme = dice("theme").choice(_THEMES) if "theme" in vary else None
        before += _looks(theme, dice("font_scale") if "font_scale" in vary else None)
    if "distractors" in vary:
        before += _distractors(dice("distractors"), task)
    made["config"] = [*before, *own, *(_geometry(dice("geometry")) if "geometry" in vary else ())]
    if "typos" in vary:
        made["instruction"] = with_typos(task["instruction"], literals, dice("typos"))
    if "clock" in vary and "clock" not in task["osgym"]:
        made["osgym"] = {**task["osgym"], "clock": _time(dice("clock"))}
    return made


def with_typos(text: str, literals: Collection[str], dice: random.Random) -> str:
    """Return the text with one to three typos in words of five letters or more.

    Quoted parts, literals, names of files, words with capitals, and the first letter of a word have none.
    """
    kept = [match.span() for match in _QUOTED.finditer(text)]
    for literal in literals:
        kept += [match.span() for match in re.finditer(re.escape(literal), text)]
    words = [
        match.span()
        for match in _WORD.finditer(text)
        if not any(start < match.end() and match.start() < end for start, end in kept)
    ]
    for start, end in sorted(dice.sample(words, min(len(words), dice.randint(1, 3))), reverse=True):
        text = text[:start] + _slip(text[start:end], dice) + text[end:]
    return text


def _slip(word: str, dice: random.Random) -> str:
    at = dice.randrange(1, len(word) - 1)
    ways = [word[:at] + word[at] + word[at:]]
    if len(word) > 6:  # of a shorter word another may be left
        ways.append(word[:at] + word[at + 1 :])
    if word[at] != word[at + 1]:
        ways.append(word[:at] + word[at + 1] + word[at] + word[at + 2 :])
    if word[at] in _KEYS:
        ways.append(word[:at] + _KEYS[word[at]] + word[at + 1 :])
    return dice.choice(ways)


def wallpaper_svg(dice: random.Random) -> str:
    """Return a picture of the screen's size: a sky, a sun and hills in related colours."""
    hue, light = dice.random(), dice.uniform(0.35, 0.75)
    width, height = _SCREEN_PX

    def colour(turn: float, lightness: float, strong: float = 0.45) -> str:
        red, green, blue = colorsys.hls_to_rgb((hue + turn) % 1, lightness, strong)
        return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">',
        '<defs><linearGradient id="s" x1="0" y1="0" x2="0" y2="1">',
        f'<stop offset="0" stop-color="{colour(0, light)}"/>',
        f'<stop offset="1" stop-color="{colour(dice.uniform(0.05, 0.2), min(0.9, light + 0.2))}"/>',
        f'</linearGradient></defs><rect width="{width}" height="{height}" fill="url(#s)"/>',
        f'<circle cx="{dice.randrange(200, 1700)}" cy="{dice.randrange(150, 600)}" '
        f'r="{dice.randrange(40, 150)}" fill="{colour(0.5, 0.85)}"/>',
    ]
    layers = dice.randint(2, 5)
    for layer in range(layers):
        level = 560 + 420 * layer // layers
        points = [(x, level + dice.randrange(-70, 70)) for x in range(0, width + 1, 240)]
        path = " ".join(f"L{x} {y}" for x, y in points)
        fill = colour(0.03 * layer, light * (0.75 - 0.5 * layer / layers))
        parts.append(f'<path fill="{fill}" d="M0 {height} {path} L{width} {height} Z"/>')
    return "".join([*parts, "</svg>\n"])


def _wallpaper(dice: random.Random) -> list[dict[str, Any]]:
    path = f"{HOME}/.local/share/wallpaper.svg"
    show = f"pcmanfm --set-wallpaper={path} --wallpaper-mode=stretch || true"
    return [upload({path: wallpaper_svg(dice)}), execute("bash", "-c", show)]


def _looks(theme: tuple[str, str] | None, dice: random.Random | None) -> list[dict[str, Any]]:
    """Return settings of GTK 3 and 2, which programs read at their start, and of the window manager."""
    three, two = ["[Settings]"], []
    if dice is not None:
        scale, font = dice.choice(_SCALES), dice.choice(_FONTS)
        three += [f"gtk-font-name={font} 10", f"gtk-xft-dpi={round(96 * 1024 * scale)}"]
        two.append(f'gtk-font-name = "{font} {round(10 * scale)}"')
    if theme is not None:
        three.append(f"gtk-theme-name={theme[0]}")
        two.append(f'gtk-theme-name = "{theme[0]}"')
    files = {f"{HOME}/.config/gtk-3.0/settings.ini": three, f"{HOME}/.gtkrc-2.0": two}
    steps = [upload({path: "\n".join(lines) + "\n" for path, lines in files.items()})]
    if theme is not None:
        rename = f"s|<name>OSGym</name>|<name>{theme[1]}</name>|"
        change = f"sudo sed -i '{rename}' /etc/xdg/openbox/rc.xml && openbox --reconfigure || true"
        steps.append(execute("bash", "-c", change))
    return steps


def _distractors(dice: random.Random, task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return files and windows that have nothing to do with the task."""
    said = json.dumps([task["config"], task["evaluator"], task["instruction"]])
    folders = [name for name in _FOLDERS if name not in said]
    steps: list[dict[str, Any]] = []
    if folders:
        names = dice.sample(_NAMES, dice.randint(3, 7))
        paths = [f"{dice.choice(folders)}/{name}.{dice.choice(('txt', 'md', 'csv'))}" for name in names]
        steps.append(upload({f"{HOME}/{path}": f"{dice.choice(_TEXTS)}\n" for path in paths}))
    free = [name for name in sorted(_WINDOWS) if name not in task["osgym"]["apps"] and name not in said]
    for name in dice.sample(free, min(len(free), dice.randint(1, 2))):
        title, argv = _WINDOWS[name]
        steps += launch(title, *argv)
    return steps


def _geometry(dice: random.Random) -> list[dict[str, Any]]:
    """Return another place and size for the window that is active at the end of the set-up."""
    width = dice.randrange(_MIN_PX[0], _SCREEN_PX[0] - 200, 10)
    height = dice.randrange(_MIN_PX[1], _SCREEN_PX[1] - _PANEL_PX - 100, 10)
    x = dice.randrange(0, _SCREEN_PX[0] - width, 5)
    y = dice.randrange(0, _SCREEN_PX[1] - _PANEL_PX - height, 5)
    free = "wmctrl -r :ACTIVE: -b remove,maximized_vert,maximized_horz"
    return [execute("bash", "-c", f"{free}; wmctrl -r :ACTIVE: -e 0,{x},{y},{width},{height} || true")]


def _time(dice: random.Random) -> str:
    minutes = dice.randrange(4 * 365 * 24 * 60)
    return (datetime(2023, 1, 1) + timedelta(minutes=minutes)).isoformat(timespec="minutes")
