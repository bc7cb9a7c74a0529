"""Applications of an image, by its desktop entries. Pure.

Entries follow freedesktop.org's Desktop Entry Specification 1.5. Their text is the image's: it is bounded,
and its commands run in the replica only.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

LIST_SCRIPT = (
    "cd /usr/share/applications && for f in *.desktop; do "
    "printf '\\036%s\\n' \"$f\"; head -c 65536 \"$f\" | grep -v '^[A-Za-z-][A-Za-z-]*\\['; done"
)
"""Script that prints every entry after its name, without translations."""

MAX_APPLICATIONS = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
_FIELD_CODE = re.compile(r"%[A-Za-z]")
_NOT_EXPLORED = re.compile(
    r"log-?out|shut-?down|reboot|suspend|hibernate|lock|screensaver|uninstall|installer", re.I
)
"""Pattern of programs that end the session, or have no visible effect."""


@dataclass(frozen=True, slots=True)
class FoundApplication:
    """An application of the menu.

    Attributes:
        name: Name of its desktop entry, without the ending.
        command: Program and arguments, without field codes.
    """

    name: str
    command: tuple[str, ...]


def find_applications(listing: str) -> list[FoundApplication]:
    """Parse the output of `LIST_SCRIPT`: applications of the menu, by name; the first of each command."""
    found: dict[tuple[str, ...], FoundApplication] = {}
    for entry in sorted(listing.split("\x1e")[1:]):
        file, _, text = entry.partition("\n")
        application = _read(file.strip().removesuffix(".desktop"), text)
        if application is not None:
            found.setdefault(application.command, application)
    return list(found.values())[:MAX_APPLICATIONS]


def choose(found: Sequence[FoundApplication], wanted: Sequence[str]) -> list[FoundApplication]:
    """Return the wanted applications, by name of the entry, its last part, or program; all for none.

    Raises:
        ValueError: One is missing; the message lists all.
    """
    if not wanted:
        return list(found)
    chosen: list[FoundApplication] = []
    for name in wanted:
        matching = [each for each in found if name.lower() in _names(each)]
        if not matching:
            known = ", ".join(sorted(each.name for each in found)) or "none"
            raise ValueError(f"the image has no application {name!r}; its applications are {known}")
        chosen.extend(each for each in matching if each not in chosen)
    return chosen


def _names(application: FoundApplication) -> set[str]:
    program = application.command[0].rpartition("/")[2]
    return {each.lower() for each in (application.name, application.name.rpartition(".")[2], program)}


def _read(name: str, text: str) -> FoundApplication | None:
    if not _NAME.fullmatch(name):
        return None
    values = _main_group(text)
    hidden = any(values.get(key, "").lower() == "true" for key in ("NoDisplay", "Hidden", "Terminal"))
    if hidden or values.get("Type") != "Application" or _NOT_EXPLORED.search(name):
        return None
    if (only := values.get("OnlyShowIn")) and "LXDE" not in only.split(";"):
        return None
    if "LXDE" in values.get("NotShowIn", "").split(";"):
        return None
    try:
        words = shlex.split(values.get("Exec", ""))
    except ValueError:
        return None
    command = tuple(word for word in words if not _FIELD_CODE.fullmatch(word))
    if not command or any("\0" in word for word in command) or len(values.get("Exec", "")) > 1024:
        return None
    return FoundApplication(name, command)


def _main_group(text: str) -> dict[str, str]:
    """Return the keys of the group `[Desktop Entry]`; the first one of a repeated key."""
    values: dict[str, str] = {}
    inside = False
    for line in text.splitlines():
        if line.startswith("["):
            inside = line.strip() == "[Desktop Entry]"
        elif inside and "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            values.setdefault(key.strip(), value.strip())
    return values
