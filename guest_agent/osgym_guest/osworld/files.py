"""``/file``, ``/list_directory`` and ``/setup/upload``."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import time
from pathlib import Path
from typing import Any

from osgym_guest.http import Request, Response
from osgym_guest.osworld import error, fields
from osgym_guest.osworld.context import OsworldContext

MAX_ENTRIES = 50_000
MAX_DEPTH = 40
LISTING_S = 20.0
PART_NAME_CHARS = 48
# Files under /proc and /sys say they are empty: read this much of them.
MAX_SIZELESS_BYTES = 16 * 1024 * 1024


class NotRegular(IsADirectoryError):
    """A path leads to a folder, a device or a pipe."""


def begin(path: Path, most: int = MAX_SIZELESS_BYTES) -> tuple[int, bytes]:
    """Return a file's size, and up to `most` bytes of one that reports to be empty, as those of ``/proc`` do.

    The file may be a pipe, for whose writer the agent must not wait.

    Raises:
        OSError: It cannot be read; `NotRegular` when it is no regular file.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise NotRegular(errno.EINVAL, "not a regular file")
        return info.st_size, b"" if info.st_size else file.read(most)


async def get_file(context: OsworldContext, request: Request) -> Response:
    path = context.session.path(fields.text(dict(request.form().fields), "file_path"))
    file = context.session.file(path)
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            return error(400, f"not a regular file: {path}", "not_a_file")
        size, head = begin(file)
    except IsADirectoryError:
        return error(400, f"not a regular file: {path}", "not_a_file")
    except (FileNotFoundError, NotADirectoryError):
        return error(404, "File not found", "no_such_file")
    except (OSError, ValueError) as exc:
        return error(500, f"Failed to serve file: {exc}", "cannot_read")
    answer = Response.stream(file) if size else Response.data(head)
    ascii_name = path.name.encode("ascii", "replace").decode().replace('"', "_").replace("\\", "_")
    safe = "".join(char if char.isprintable() else "_" for char in ascii_name)
    headers = {**answer.headers, "Content-Disposition": f'attachment; filename="{safe}"'}
    return Response(answer.status, headers, answer.body, answer.file)


async def list_directory(context: OsworldContext, request: Request) -> Response:
    """Return the tree of files below a directory."""
    start = fields.text(request.json_object(), "path")
    path = context.session.file(context.session.path(start))
    if not path.is_dir():
        return error(400, "The provided path is not a directory", "not_a_directory")
    lister = _Lister(time.monotonic() + LISTING_S)
    tree = await asyncio.to_thread(lister.directory, path, os.path.basename(start), ())  # noqa: PTH119 - a trailing slash counts
    if lister.truncated:
        tree["truncated"] = True
    return Response.json({"directory_tree": tree})


class _Lister:
    """Lists directories up to a bound of entries and of time."""

    def __init__(self, deadline: float):
        self._deadline = deadline
        self._left = MAX_ENTRIES
        self.truncated = False

    def directory(self, path: Path, name: str, above: tuple[tuple[int, int], ...]) -> dict[str, Any]:
        """List one directory. `above` has its parents, so that a loop of links ends."""
        children: list[dict[str, Any]] = []
        try:
            info = path.stat()
            identity = (info.st_dev, info.st_ino)
            if identity in above or len(above) >= MAX_DEPTH:
                self.truncated = True
                return {"type": "directory", "name": name, "children": []}
            with os.scandir(path) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
            for entry in found:
                if self._left <= 0 or time.monotonic() > self._deadline:
                    self.truncated = True
                    break
                self._left -= 1
                if entry.is_dir():
                    children.append(self.directory(Path(entry.path), entry.name, (*above, identity)))
                else:
                    children.append({"type": "file", "name": entry.name})
        except OSError as exc:
            return {"error": str(exc)}
        return {"type": "directory", "name": name, "children": children}


async def upload(context: OsworldContext, request: Request) -> Response:
    """Write an uploaded file, and make the directories above it."""
    form = request.form()
    content = form.files.get("file_data")
    if "file_path" not in form.fields or content is None:
        raise fields.bad("file_path and file_data are required")
    path = context.session.path(fields.text(dict(form.fields), "file_path"))
    try:
        size = await asyncio.to_thread(_write, context.session.file(path), content.content)
    except (OSError, ValueError) as exc:
        return error(500, f"Failed to upload file: {exc}", "cannot_write")
    return Response.text(f"File Uploaded: {size} bytes")


def _write(path: Path, content: memoryview) -> int:
    """Write a file in place, keeping permissions. A new file appears whole or not at all.

    The desktop draws a picture's icon as soon as there is a file, and from half of the file another icon.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(path):
        return _overwrite(path, content)
    part = path.with_name(f".{path.name[:PART_NAME_CHARS]}.part")
    try:
        with part.open("wb") as file:
            size = file.write(content)
        part.rename(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    return size


def _overwrite(path: Path, content: memoryview) -> int:
    """Overwrite an existing file.

    Raises:
        OSError: It cannot be written, or is no file on a disk: a pipe would make the agent wait for its
            reader, and a link into ``/proc`` leads to the agent itself.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o666)
    with os.fdopen(fd, "wb") as file:
        in_proc = Path(f"/proc/self/fd/{fd}").readlink().is_relative_to("/proc")
        if in_proc or not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        file.truncate(0)
        return file.write(content)
