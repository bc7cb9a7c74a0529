"""Show a document of LibreOffice and write down what is typed: `libreoffice.py LOG --mode writer|calc`.

The office tells of its document over UNO. Automatic corrections are off: they would change what was typed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uno
from com.sun.star.uno import Exception as UnoException
from recorder import Recorder
from xwindow import WindowFinder

START_S = 90
POLL_S = 0.05
CELLS = {"A1": (0, 0), "A2": (1, 0), "A3": (2, 0), "B1": (0, 1), "B2": (1, 1), "C3": (2, 2)}
"""Rows and columns of the cells that are targets of their own."""
CORRECTIONS = {
    "/org.openoffice.Office.Common/AutoCorrect": (
        *("UseReplacementTable", "TwoCapitalsAtStart", "CapitalAtStartSentence", "ChangeUnderlineWeight"),
        *("SetInetAttr", "ChangeOrdinalNumber", "AddNonBreakingSpace", "ChangeDash", "RemoveDoubleSpaces"),
        *("ReplaceSingleQuote", "ReplaceDoubleQuote", "CorrectAccidentalCapsLock", "TransliterateRTL"),
    ),
    "/org.openoffice.Office.Writer/AutoFunction/Completion": ("Enable",),
    "/org.openoffice.Office.Writer/AutoFunction/Format/ByInput": ("Enable",),
    "/org.openoffice.Office.Calc/Input": ("AutoInput",),
    "/org.openoffice.Office.Common/Misc": ("ShowTipOfTheDay", "FirstRun"),
}
"""Settings of the office that are turned off; names of its configuration schema."""


def write_profile(folder: Path) -> None:
    """Make a user profile in which nothing changes what is typed and no dialog comes at the start."""
    items = [
        f'<item oor:path="{path}"><prop oor:name="{name}" oor:op="fuse"><value>false</value></prop></item>'
        for path, names in CORRECTIONS.items()
        for name in names
    ]
    head = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<oor:items xmlns:oor="http://openoffice.org/2001/registry" '
    )
    kinds = (
        'xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
    )
    folder.joinpath("user").mkdir(parents=True)
    text = "\n".join([head + kinds, *items, "</oor:items>\n"])
    folder.joinpath("user", "registrymodifications.xcu").write_text(text)


def connect(pipe: str, process: subprocess.Popen[bytes]) -> Any:
    """Return the desktop object of the office, once it answers.

    Raises:
        TimeoutError: it did not within START_S.
        RuntimeError: it ended.
    """
    local = uno.getComponentContext()
    resolver = local.ServiceManager.createInstanceWithContext("com.sun.star.bridge.UnoUrlResolver", local)
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        try:
            context = resolver.resolve(f"uno:pipe,name={pipe};urp;StarOffice.ComponentContext")
            desktop = context.ServiceManager.createInstanceWithContext("com.sun.star.frame.Desktop", context)
            if desktop.getCurrentComponent() is not None:
                return desktop
        except UnoException as error:
            if process.poll() is not None:
                raise RuntimeError(f"the office ended with {process.returncode}") from error
        time.sleep(POLL_S)
    raise TimeoutError(f"the office did not answer within {START_S} s")


def screen_box(part: Any, shift: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return where an accessible part is on the screen: x, y, width and height in pixels."""
    corner, size = part.getLocationOnScreen(), part.getSize()
    return (corner.X + shift[0], corner.Y + shift[1], size.Width, size.Height)


def find_accessible(part: Any, role: int, depth: int = 12) -> Any:
    """Return the first part of an accessible tree that has a role; None without one."""
    context = part.getAccessibleContext()
    if context.getAccessibleRole() == role:
        return context
    for at in range(min(context.getAccessibleChildCount(), 40) if depth else 0):
        found = find_accessible(context.getAccessibleChild(at), role, depth - 1)
        if found is not None:
            return found
    return None


def document_targets(document: Any, mode: str) -> dict[str, tuple[int, int, int, int]]:
    """Return where the text, or the sheet and some of its cells, lie on the screen."""
    frame = document.CurrentController.Frame
    # the office counts neither the frame of the window manager nor, with GTK, its own menu bar
    left, top, _, height = WindowFinder().place("LibreOffice")
    own = frame.ContainerWindow.getAccessibleContext()
    corner = own.getLocationOnScreen()
    shift = (left - corner.X, top - corner.Y + height - own.getSize().Height)
    kind = {"writer": "DOCUMENT_TEXT", "calc": "TABLE"}[mode]
    role = uno.getConstantByName(f"com.sun.star.accessibility.AccessibleRole.{kind}")
    part = find_accessible(frame.ComponentWindow, role)
    if part is None:
        return {}
    if mode == "writer":
        return dict.fromkeys(("document", "multiline"), screen_box(part, shift))
    cells = {name: part.getAccessibleCellAt(*at).getAccessibleContext() for name, at in CELLS.items()}
    boxes = {name: screen_box(cell, shift) for name, cell in cells.items()}
    return {"document": boxes["A1"], **boxes}


def contents(document: Any, mode: str) -> dict[str, str]:
    if mode == "writer":
        return {"multiline": document.Text.String}
    sheet = document.Sheets.getByIndex(0)
    return {name: sheet.getCellByPosition(column, row).Formula for name, (row, column) in CELLS.items()}


def wait_for(read: Callable[[], Any], timeout_s: float = START_S) -> Any:
    """Return what `read` returns, once it returns the same true value three times."""
    until = time.monotonic() + timeout_s
    seen: list[Any] = []
    while time.monotonic() < until:
        seen = [*seen[-2:], read()]
        if len(seen) == 3 and seen[-1] and seen[0] == seen[1] == seen[2]:
            return seen[-1]
        time.sleep(POLL_S)
    raise TimeoutError(f"the document was not laid out within {timeout_s} s")


def follow(recorder: Recorder, document: Any, mode: str, process: subprocess.Popen[bytes]) -> None:
    """Write down the contents after each change, until the document is closed."""
    last = contents(document, mode)
    while process.poll() is None:
        try:
            now = contents(document, mode)
        except UnoException:
            break  # it was closed
        for name, value in now.items():
            if value != last[name]:
                recorder.write("text", target=name, value=value)
        last = now
        time.sleep(POLL_S)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("log", help="file that the events are appended to")
    parser.add_argument(
        "--mode", choices=["writer", "calc"], default="writer", help="kind of document (writer)"
    )
    given = parser.parse_args()
    recorder = Recorder(given.log)
    pipe = f"witness-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="witness-libreoffice-", ignore_cleanup_errors=True) as folder:
        write_profile(Path(folder))
        office = shutil.which("soffice") or "/usr/lib/libreoffice/program/soffice"
        argv = [office, f"-env:UserInstallation=file://{folder}", f"--accept=pipe,name={pipe};urp;"]
        argv += ["--norestore", "--nologo", "--nofirststartwizard", f"--{given.mode}"]
        process = subprocess.Popen(argv, start_new_session=True)
        signal.signal(signal.SIGTERM, lambda *_: os.killpg(process.pid, signal.SIGTERM))
        document = connect(pipe, process).getCurrentComponent()
        recorder.write("ready", targets=wait_for(lambda: document_targets(document, given.mode)))
        follow(recorder, document, given.mode, process)
        recorder.write("exit")
        process.wait()


if __name__ == "__main__":
    main()
