"""``/setup/open_file``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from osgym_guest.http import Request, Response
from osgym_guest.osworld import fields
from osgym_guest.osworld.context import OsworldContext
from osgym_guest.osworld.process import ChildProcess, CommandTimeoutError, PipeSink, open_sink, start
from osgym_guest.osworld.windows import DesktopWindow, DesktopWindows
from osgym_guest.osworld.x11 import XError

TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 600.0
POLL_S = 0.1
# A new window that is not named after the file (a browser shows the page's title) counts after this.
UNNAMED_S = 3.0
STDERR_BYTES = 4096
# These name each window after its document: an unnamed one is their splash screen.
ALWAYS_NAMED = ("soffice", "libreoffice")


WindowIdentity = tuple[int, str, str]


@dataclass(frozen=True)
class OpenTarget:
    """Program or file to open: its command, and the names by which its window is known."""

    argv: list[str]
    file: Path | None
    names: tuple[str, ...]

    def names_window(self, window: DesktopWindow) -> bool:
        """Return whether a window is named after it: a file by title, an application also by class."""
        if self.file is not None:
            return any(has_word(window.title, name) for name in self.names)
        text = f"{window.title}\n{window.instance}\n{window.class_name}".lower()
        return any(name.lower() in text for name in self.names)


def has_word(text: str, word: str) -> bool:
    """Return whether `word` stands in `text` and is no part of a longer word."""
    at = text.find(word)
    while at >= 0:
        before, after = text[:at][-1:], text[at + len(word) :][:1]
        if not (before.isalnum() or after.isalnum()):
            return True
        at = text.find(word, at + 1)
    return False


async def open_file(context: OsworldContext, request: Request) -> Response:
    """Open a file with its application, or start an application, and wait for its window."""
    data = request.json_object()
    if not data.get("path"):
        return Response.text("Path not supplied!", status=400)
    wanted = fields.text(data, "path")
    timeout_s = fields.number(data, "timeout", TIMEOUT_S, low=0.1, high=MAX_TIMEOUT_S)
    target = _target(context, wanted)
    if target is None:
        return Response.text(f"Application/file not found: {wanted}", status=404)
    try:
        failure = await _open(context, target, timeout_s)
    except (OSError, XError) as exc:
        return Response.text(f"Failed to open {wanted}. Error: {exc}", status=500)
    if failure is not None:
        application = await _application(context, target)
        return Response.text(f"Failed to open {wanted} with {application}: {failure}", status=500)
    return Response.text("File opened and window activated successfully")


def _target(context: OsworldContext, wanted: str) -> OpenTarget | None:
    path = context.session.path(wanted)
    if context.session.file(path).exists():
        return OpenTarget(["xdg-open", str(path)], path, (path.name, path.stem))
    program = context.session.program(wanted)
    return OpenTarget([program], None, (Path(wanted).name,)) if program else None


async def _open(context: OsworldContext, target: OpenTarget, timeout_s: float) -> str | None:
    """Start the target and bring its window to the front; return the error, or None."""
    before = {window.identity for window in await context.windows.list()}
    write_end, said = await open_sink(STDERR_BYTES)
    try:
        child = await start(target.argv, context.session, stderr=write_end)
    finally:
        os.close(write_end)
    found = await wait_for_window(context.windows, target, lambda: child.returncode, before, timeout_s)
    if found is not None:
        await context.windows.activate(found)
        said.take()
        return None
    return await _why(child, said, timeout_s)


async def wait_for_window(
    desktop: DesktopWindows,
    target: OpenTarget,
    returncode: Callable[[], int | None],
    before: set[WindowIdentity],
    timeout_s: float,
) -> DesktopWindow | None:
    """Wait for the window of a started program.

    Args:
        desktop: Windows of the session.
        target: Program or file that was started.
        returncode: Returns the exit status of the program, None while it runs.
        before: Identities of the windows that existed before the start.
        timeout_s: Deadline.

    Returns:
        The window, or None after the deadline or when the program failed without showing one.
    """
    clock = asyncio.get_running_loop().time
    begin = clock()
    first_seen: dict[tuple[int, str], float] = {}
    while clock() - begin < timeout_s:
        ended = returncode()  # read before the windows: what it showed before it ended counts
        windows = await desktop.list()
        before &= {window.identity for window in windows}
        shown = [window for window in windows if window.identity not in before]
        new = [window for window in shown if await desktop.is_ordinary(window)]
        for window in new:
            if target.names_window(window):
                return window
        # an application that runs already may show the file in a window that it has
        for window in windows:
            patient = ended == 0 or clock() - begin > UNNAMED_S
            if patient and window.identity in before and target.names_window(window):
                return window
        for window in new:
            since = first_seen.setdefault((window.id, window.title), clock())
            if clock() - since > UNNAMED_S and window.instance and window.instance not in ALWAYS_NAMED:
                return window
        if ended is not None and ended != 0 and not new:
            return None
        await asyncio.sleep(POLL_S)
    return None


async def _why(child: ChildProcess, said: PipeSink, timeout_s: float) -> str:
    text = said.take().strip()
    tail = f"; its output: {text[-1000:]}" if text else ""
    if child.returncode is None:
        return f"no window within {timeout_s:g} seconds, and it is still running{tail}"
    if child.returncode == 0:
        return f"no window within {timeout_s:g} seconds; the command that opens it ended without error{tail}"
    how = f"exit status {child.returncode}" if child.returncode > 0 else f"signal {-child.returncode}"
    return f"it ended with {how} before it showed a window{tail}"


async def _application(context: OsworldContext, target: OpenTarget) -> str:
    if target.file is None:
        return Path(target.argv[0]).name
    script = 'xdg-mime query default "$(xdg-mime query filetype "$0")"'
    argv = ["/bin/sh", "-c", script, str(target.file)]
    try:
        result = await context.runner.run(argv, timeout_s=5.0)
    except (CommandTimeoutError, OSError):
        return "its application"
    return result.output.strip() or "no application (none is registered for its type)"
