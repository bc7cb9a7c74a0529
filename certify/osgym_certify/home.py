"""State of a desktop's home: a listing, and what changed between two of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

HOME = "/home/user"
LISTING = "/tmp/osgym-certify.json"  # noqa: S108 - in the desktop, whose programs are the only ones there
STATE_FILES = ("Bookmarks", "Preferences", "vlcrc", "mimeapps.list")
"""Names of files below dotted folders that getters read without naming them in the task."""
MAX_HASHED_BYTES = 16 << 20
LIST_PROGRAM = f"""
import hashlib, json, os, stat
found = {{}}
for folder, folders, files in os.walk({HOME!r}):
    folders[:] = [name for name in folders if name not in (".cache", ".dbus")]
    for name in [*folders, *files]:
        path = os.path.join(folder, name)
        try:
            about = os.lstat(path)
            mode = stat.S_IMODE(about.st_mode)
            if stat.S_ISDIR(about.st_mode):
                found[path] = ["folder", mode, 0, ""]
            elif stat.S_ISREG(about.st_mode):
                with open(path, "rb") as file:
                    digest = hashlib.sha256(file.read({MAX_HASHED_BYTES})).hexdigest()
                found[path] = ["file", mode, about.st_size, digest]
            else:
                found[path] = ["other", mode, 0, os.readlink(path) if stat.S_ISLNK(about.st_mode) else ""]
        except OSError:
            pass
with open({LISTING!r}, "w") as file:
    json.dump(found, file)
"""
"""Python that runs in the desktop and writes the listing to `LISTING`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder of the home.

    Attributes:
        kind: `file`, `folder` or `other`.
        digest: SHA-256 of a file's first 16 MiB; target of a link.
    """

    kind: str
    mode: int
    size: int
    digest: str


Listing = Mapping[str, Entry]
"""Entries of the home by absolute path."""


def read_listing(data: bytes) -> Listing:
    """Read the output of `LIST_PROGRAM`.

    Raises:
        ValueError: It is not such output.
    """
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("the listing of the home must be an object")
    return {
        str(path): Entry(str(kind), int(mode), int(size), str(digest))
        for path, (kind, mode, size, digest) in found.items()
    }


@dataclass(frozen=True, slots=True)
class Changes:
    """Difference of two listings.

    Attributes:
        files: Files that are new or changed, by content or permissions.
        folders: Folders that are new or have other permissions.
        removed: Files that are gone.
    """

    files: tuple[str, ...]
    folders: tuple[str, ...]
    removed: tuple[str, ...]


def changes(before: Listing, after: Listing) -> Changes:
    """Return what differs in the second listing."""
    changed = [path for path, entry in after.items() if before.get(path) != entry]
    gone = [path for path in before if path not in after]
    return Changes(
        files=tuple(sorted(path for path in changed if after[path].kind == "file")),
        folders=tuple(sorted(path for path in changed if after[path].kind == "folder")),
        removed=tuple(sorted(path for path in gone if before[path].kind == "file")),
    )


def is_hidden(path: str) -> bool:
    """Whether a path of the home lies below a dotted name, where programs keep their state."""
    return any(part.startswith(".") for part in path.removeprefix(HOME).split("/") if part)


def visible(paths: Iterable[str]) -> list[str]:
    """Return the paths that are not hidden."""
    return [path for path in paths if not is_hidden(path)]


def topmost_new(path: str, known: Listing) -> str:
    """Return the topmost part of a path that the listing lacks; the path itself if its folder is there."""
    top = path
    while (above := top.rpartition("/")[0]) not in known and above not in ("", HOME):
        top = above
    return top
