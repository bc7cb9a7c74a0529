"""``/v1/reach/read`` and ``/v1/reach/write``: whole files, with paths taken as they are."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from pathlib import Path

from osgym_guest.http import HttpError, Request, Response, bad
from osgym_guest.osworld.files import MAX_SIZELESS_BYTES, NotRegular, begin
from osgym_guest.reach.context import ReachContext
from osgym_protocol.codec import WireFormatError, known_fields
from osgym_protocol.codes import GuestErrorCode
from osgym_protocol.guest_api import number
from osgym_protocol.limits import MAX_READ_BYTES

_MISSING = (errno.ENOENT, errno.ENOTDIR)
_MALFORMED = (errno.ENAMETOOLONG, errno.EINVAL)


def refused(path: Path, exc: OSError) -> HttpError:
    """Return the system's error about a path as an error with a code."""
    text = f"{path}: {exc.strerror or exc}"
    if exc.errno in _MISSING:
        return HttpError(404, GuestErrorCode.NO_SUCH_FILE, text)
    if exc.errno in _MALFORMED:
        return bad(text)
    return HttpError(409, GuestErrorCode.PATH_REFUSED, text, {"errno": errno.errorcode.get(exc.errno or 0)})


def not_regular(path: Path) -> HttpError:
    """Return the error for a folder, a device or a pipe."""
    return HttpError(409, GuestErrorCode.PATH_REFUSED, f"{path}: not a regular file")


async def read(context: ReachContext, request: Request) -> Response:
    """Return the bytes of a file, up to `max_bytes`."""
    try:
        body = known_fields(request.json_object(), ("path", "max_bytes"), request.path)
        most = int(number(body.get("max_bytes", MAX_READ_BYTES), "max_bytes", 1, MAX_READ_BYTES))
    except WireFormatError as exc:
        raise bad(str(exc)) from exc
    path = context.path(body.get("path"))
    file = context.desktop.session.file(path)
    try:
        size, head = await asyncio.to_thread(begin, file, min(most + 1, MAX_SIZELESS_BYTES))
    except NotRegular as exc:
        raise not_regular(path) from exc
    except OSError as exc:
        raise refused(path, exc) from exc
    size = size or len(head)
    if size > most:
        text = f"{path} has {size} bytes; the call allows {most}"
        raise HttpError(413, GuestErrorCode.TOO_LARGE, text, {"size": size})
    return Response.data(head) if head or not size else Response.stream(file)


async def write(context: ReachContext, request: Request) -> Response:
    """Write a whole file, and make the folders above it. The query has its `path`, and `mode` in octal."""
    path = context.path(request.query.get("path"))
    mode = request.query.get("mode")
    bits = None
    if mode is not None:
        if not (1 <= len(mode) <= 4 and set(mode) <= set("01234567")):
            raise bad("mode must be 1 to 4 octal digits")
        bits = int(mode, 8)
    try:
        await asyncio.to_thread(_write, context.desktop.session.file(path), memoryview(request.body), bits)
    except NotRegular as exc:
        raise not_regular(path) from exc
    except OSError as exc:
        raise refused(path, exc) from exc
    return Response.json({"size": len(request.body)})


def _write(path: Path, content: memoryview, mode: int | None) -> None:
    """Write in place. A new file that cannot be written completely is removed.

    Raises:
        OSError: It cannot be written; `NotRegular` when it is no regular file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    was_there = path.exists()
    # A pipe without a reader must not make the agent wait.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(fd, "wb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise NotRegular(errno.EINVAL, "not a regular file")
            file.truncate(0)
            while content:
                content = content[file.write(content) :]
            if mode is not None:
                os.fchmod(fd, mode)
    except OSError:
        if not was_there:
            path.unlink(missing_ok=True)
        raise
