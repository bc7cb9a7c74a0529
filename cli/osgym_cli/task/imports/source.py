"""A stranger's folder of tasks, read within bounds: no path, link, size or nesting leads out of them."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from osgym_protocol.task_files import MAX_INLINED_BYTES

MAX_JSON_BYTES = 8 << 20
MAX_JSON_DEPTH = 60
MAX_ENTRIES = 400_000
"""Most files and folders of a set that are looked through."""
MAX_FILES = 1000
"""Most files of one folder that a task brings into the desktop."""


class SourceError(ValueError):
    """A file of a set cannot be used. The message names it."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file's content and its permission to be executed."""

    data: bytes
    executable: bool = False


class SourceFolder:
    """Files below a folder. Names are relative to it, with slashes.

    It remembers what was read since `begin`, for the digest of a task's original.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._read: dict[str, str] = {}

    def begin(self) -> None:
        """Forget what was read: another task begins."""
        self._read = {}

    def digest(self) -> str:
        """Return the SHA-256 of all that was read since `begin`, by names and contents."""
        rows = [f"{name}\0{digest}\n" for name, digest in sorted(self._read.items())]
        return hashlib.sha256("".join(rows).encode("utf-8", "surrogatepass")).hexdigest()

    def note(self, name: str, data: bytes) -> None:
        """Count data among what was read, e.g. one row of a larger file."""
        self._read[name] = hashlib.sha256(data).hexdigest()

    def path(self, name: str) -> Path:
        """Return the path of a name.

        Raises:
            SourceError: The name or a link leads out of the folder.
        """
        parts = PurePosixPath(name).parts
        if "\0" in name or name.startswith("/") or ".." in parts:
            raise SourceError(f"{name[:200]!r} is not a plain name of a file in the folder")
        path = self.root.joinpath(*parts)
        try:
            inside = path.resolve().is_relative_to(self.root)
        except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
            raise SourceError(f"{name[:200]!r} cannot be followed: {error}") from None
        if not inside:
            raise SourceError(f"{name[:200]!r} leads out of the folder")
        return path

    def has(self, name: str) -> bool:
        """Return whether there is a file or folder of this name. Raises SourceError as `path`."""
        return self.path(name).exists()

    def file(self, name: str, max_bytes: int = MAX_INLINED_BYTES) -> SourceFile:
        """Read a file.

        Raises:
            SourceError: It is missing, no regular file, or too large.
        """
        path = self.path(name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with os.fdopen(fd, "rb") as file:
                mode = os.fstat(fd).st_mode
                if not stat.S_ISREG(mode):
                    raise SourceError(f"{name}: not a regular file")
                data = file.read(max_bytes + 1)
        except OSError as error:
            raise SourceError(f"{name}: {error.strerror or error}") from None
        if len(data) > max_bytes:
            raise SourceError(f"{name}: larger than {max_bytes} bytes")
        self.note(name, data)
        return SourceFile(data, bool(mode & 0o111))

    def text(self, name: str) -> str:
        """Read a file as UTF-8. Raises SourceError as `file`, and if it is not UTF-8."""
        try:
            return self.file(name, MAX_JSON_BYTES).data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise SourceError(f"{name}: not UTF-8") from None

    def object(self, name: str) -> dict[str, Any]:
        """Read a JSON object. Raises SourceError as `text`, and if it is no object or nested too deeply."""
        return parse_object(self.text(name), name)

    def below(self, folder: str) -> dict[str, SourceFile]:
        """Read all files below a folder, by names relative to it; nothing if the folder is missing.

        Raises:
            SourceError: There are too many or too large files, or a link leads out of the set.
        """
        found: dict[str, SourceFile] = {}
        left = MAX_INLINED_BYTES
        for name in self._names(folder):
            if len(found) >= MAX_FILES:
                raise SourceError(f"{folder}: more than {MAX_FILES} files")
            file = self.file(name)
            left -= len(file.data)
            if left < 0:
                raise SourceError(f"{folder}: more than {MAX_INLINED_BYTES} bytes of files")
            found[str(PurePosixPath(name).relative_to(folder))] = file
        return found

    def _names(self, folder: str) -> Iterator[str]:
        for path, folders, names in os.walk(self.path(folder)):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted([*names, *(one for one in folders if (Path(path) / one).is_symlink())]):
                yield str(PurePosixPath((Path(path) / name).relative_to(self.root)))

    def folders_with(self, file: str) -> list[str]:
        """Return the folders that have a file of this name, in order. Links to folders are not followed.

        Raises:
            SourceError: The set has too many entries.
        """
        return [str(PurePosixPath(name).parent) for name in self.names_ending(f"/{file}")]

    def names_ending(self, end: str) -> list[str]:
        """Return the names of all files whose name, with a slash before it, ends in a text; in order.

        Raises:
            SourceError: The set has too many entries.
        """
        found, seen = [], 0
        for path, folders, names in os.walk(self.root):
            folders.sort()
            seen += len(names) + len(folders)
            if seen > MAX_ENTRIES:
                raise SourceError(f"the folder has more than {MAX_ENTRIES} files and folders")
            inner = PurePosixPath(Path(path).relative_to(self.root))
            found += [str(inner / name) for name in sorted(names) if f"/{name}".endswith(end)]
        return found


def parse_object(text: str, name: str) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        SourceError: It is no JSON object, or nested too deeply.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{name}: not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise SourceError(f"{name}: not a JSON object")
    if _deeper_than(value, MAX_JSON_DEPTH):
        raise SourceError(f"{name}: nested more than {MAX_JSON_DEPTH} levels deep")
    return value


def _deeper_than(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True
