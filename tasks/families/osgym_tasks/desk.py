"""Parts that families of the desktop, its files and editors share: initial windows, and checks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Any

from osgym_tasks.pieces import HOME, execute, key, launch, output_check, place

_SOUNDS_LIKE_I = re.compile(r"h?i(?!e)", re.IGNORECASE)
"""Beginning of a word before which the Spanish "y" becomes "e"."""
BOX_PX = (300, 150, 1000, 700)
"""Place and size of the windows of these families."""


def terminal() -> list[dict[str, Any]]:
    """Open a terminal in the home folder."""
    return launch("Terminal", "xfce4-terminal", "--geometry=100x30+200+120")


def mousepad(*paths: str) -> list[dict[str, Any]]:
    """Open the text editor with these files in tabs, the last one shown."""
    return [*launch("Mousepad", "mousepad", *paths), *place("mousepad.Mousepad", *BOX_PX)]


def file_manager(folder: str) -> list[dict[str, Any]]:
    """Open the file manager with this folder, found by its title, since the desktop has its class."""
    title = folder.rpartition("/")[2]
    box = ",".join(map(str, BOX_PX))
    return [
        *launch(title, "pcmanfm", folder),
        execute("wmctrl", "-r", title, "-e", f"0,{box}"),
        execute("wmctrl", "-a", title),
    ]


def shell_output(script: str, text: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the check, for `every`, that a shell script prints this text, byte for byte."""
    return output_check(("bash", "-c", script), text)


def without_last_end() -> list[dict[str, Any]]:
    """Return a step that deletes the line end at the end of an open text."""
    return [key("ctrl", "end"), key("backspace")]


def sentence(parts: Iterable[str], language: str = "en") -> str:
    """Return the parts as a list in a sentence of a language: a, b and c."""
    *most, last = parts
    if not most:
        return last
    if language == "zh":
        return f"{'、'.join(most)}和{last}"
    word = {"en": "and", "de": "und", "es": "e" if _SOUNDS_LIKE_I.match(last) else "y"}[language]
    return f"{', '.join(most)} {word} {last}"


def quoted_list(texts: Iterable[str]) -> str:
    """Return the texts, each in double quotes, as a list in a sentence."""
    return sentence(f'"{text}"' for text in texts)


def quoted(texts: Iterable[str]) -> str:
    """Return the texts as quoted words of a shell command."""
    return " ".join(map(shlex.quote, texts))


def home(path: str) -> str:
    """Return the absolute path of a path below the home folder."""
    return f"{HOME}/{path}"
