"""Names of an image's programs. The kernel knows a program by the name it was started by.

GIMP's menu entry starts `gimp-2.10`, people and tasks start `gimp`, a link to it: one program, two names.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from osgym_protocol.settle_table import MAX_PROGRAMS, PROGRAM, ActionKind, TimerHorizons

FOLDERS = ("usr/local/bin", "usr/bin", "usr/local/games", "usr/games")
MAX_LINKS = 8
MAX_ENTRIES = 20_000
COMM_CHARS = 15
"""Length of a name that the kernel keeps."""


def names_of_programs(rootfs: Path) -> list[frozenset[str]]:
    """Return the names that start one file, for each file that has several, as the kernel keeps them.

    Links are read, never followed: they are the image's, and may point anywhere.
    """
    groups: dict[str, set[str]] = defaultdict(set)
    root = rootfs.resolve()
    for folder in FOLDERS:
        place = (root / folder).resolve()
        if not place.is_relative_to(root) or not place.is_dir():
            continue
        for name in sorted(entry.name for entry in place.iterdir())[:MAX_ENTRIES]:
            target = _end_of_links(root, f"{folder}/{name}")
            groups[target] |= {name[:COMM_CHARS], posixpath.basename(target)[:COMM_CHARS]}
    found = [frozenset(filter(PROGRAM.fullmatch, names)) for names in groups.values()]
    return sorted((names for names in found if len(names) > 1), key=sorted)


def _end_of_links(rootfs: Path, path: str) -> str:
    for _ in range(MAX_LINKS):
        try:
            said = str((rootfs / path).readlink())
        except OSError:
            break
        # "/.." is "/": no link leads out of the image.
        path = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), said)).lstrip("/")
    return path


def with_other_names(
    table: Mapping[str, Mapping[ActionKind, TimerHorizons]], groups: Iterable[frozenset[str]]
) -> dict[str, dict[ActionKind, TimerHorizons]]:
    """Return the table with its programs' other names, as far as there is room. Pure."""
    found = {program: dict(kinds) for program, kinds in table.items()}
    for names in groups:
        known = sorted(names & table.keys())
        for name in sorted(names - table.keys()):
            if known and name not in found and len(found) < MAX_PROGRAMS:
                found[name] = dict(table[known[0]])
    return found
