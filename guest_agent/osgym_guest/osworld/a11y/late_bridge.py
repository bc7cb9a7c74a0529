"""Programs of GTK 2 that join the accessibility bus only when a tree is read.

GTK 2 joins the bus at its start, by the module atk-bridge, which starts the bus. Every desktop runs one such
program from the start, the one that draws the desktop, and most desktops are never asked for a tree. So that
program starts without the module, and with one more resource file in GTK2_RC_FILES, which does not exist. The
first reading of a tree writes this file, which names the module, and makes the program read its resource
files again, as a settings program would.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path

from osgym_guest.osworld.a11y import x_windows
from osgym_guest.osworld.a11y.x_windows import XWindow
from osgym_guest.osworld.x11 import XError

RC_NAME = "gtkrc-accessibility"
"""Name of the file. /usr/lib/osgym/desktop of the image defines its folder."""
CONTENT = 'gtk-modules = "gail:atk-bridge"\n'
JOIN_TIMEOUT_S = 1.0
POLL_S = 0.02
MAX_ENVIRONMENT_BYTES = 1 << 20


def rc_file(pid: int) -> Path | None:
    """Return the file that a program waits for; None for any other program, and for one that is gone."""
    try:
        with Path(f"/proc/{pid}/environ").open("rb") as stream:
            environment = stream.read(MAX_ENVIRONMENT_BYTES).split(b"\0")
    except OSError:
        return None
    for entry in environment:
        name, _, value = entry.partition(b"=")
        if name == b"GTK2_RC_FILES":
            paths = [Path(text) for text in value.decode("utf-8", "replace").split(":")]
            return next((path for path in paths if path.name == RC_NAME), None)
    return None


def write(path: Path) -> None:
    """Write the file. The program chose the path, so links are not followed and pipes are not waited for.

    Raises:
        OSError: It cannot be written, or is not an ordinary file.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o644), "wb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise FileExistsError(f"{path} is not an ordinary file")
        file.truncate()
        file.write(CONTENT.encode())


class GtkBridges:
    """Loads the bridge into programs, each once: a program that does not join is not waited for again."""

    def __init__(self) -> None:
        self._asked: set[int] = set()

    async def load(
        self,
        windows: Sequence[XWindow],
        joined: Collection[int],
        members: Callable[[], Awaitable[Collection[int]]],
    ) -> None:
        """Make the waiting programs join the bus, and wait until they have, for `JOIN_TIMEOUT_S` at most.

        Args:
            windows: Top-level windows.
            joined: Processes that are on the bus already.
            members: Returns the processes that are on the bus now.
        """
        waiting: dict[int, int] = {}
        for window in windows:
            if window.pid is None or window.pid in joined or window.pid in self._asked:
                continue
            path = rc_file(window.own_pid) if window.own_pid is not None else None
            if path is None:
                continue
            with contextlib.suppress(OSError):  # a folder that is gone: the program stays without a tree
                write(path)
                waiting.setdefault(window.pid, window.id)
        if not waiting:
            return
        self._asked.update(waiting)
        with contextlib.suppress(XError, asyncio.TimeoutError):
            await asyncio.wait_for(self._tell_and_wait(waiting, members), JOIN_TIMEOUT_S)

    async def _tell_and_wait(
        self, waiting: dict[int, int], members: Callable[[], Awaitable[Collection[int]]]
    ) -> None:
        x = await x_windows.connect()
        try:
            for window in waiting.values():
                await x.tell_client(window, "_GTK_READ_RCFILES")
        finally:
            x.close()
        while not set(waiting) <= set(await members()):  # noqa: ASYNC110 - the bus tells of nobody who joins
            await asyncio.sleep(POLL_S)
