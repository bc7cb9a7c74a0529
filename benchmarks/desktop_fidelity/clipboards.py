"""Cells of clipboards: text, files and large contents between real programs, and their owners.

CLIPBOARD is used by Ctrl+C and Ctrl+V, PRIMARY by selecting and the middle button.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from benchmarks.desktop_fidelity.stage import FOLDER, Cell, NotApplicable, Stage, Wrong

TEXT = "Grüße ☃ line one\nline two"
LARGE_BYTES = 10_000_000
LOST = "no clipboard manager runs, so the clipboard is empty once the program that was copied from is closed"
OWNER = """
from Xlib import display, Xatom
shown = display.Display()
owners = [shown.get_selection_owner(shown.get_atom(name)) for name in ("CLIPBOARD", "PRIMARY")]
print([getattr(owner, "id", 0) for owner in owners])
"""


@dataclass(frozen=True, slots=True)
class Editor:
    """A program from which text is copied and into which it is pasted.

    Attributes:
        command: Command that opens a file; `{}` is the file.
    """

    name: str
    command: str

    def open(self, stage: Stage, file: str, text: str) -> int:
        stage.write(file, text.encode())
        return stage.open(self.command.format(file), file)


EDITORS = (
    Editor("mousepad (GTK 3)", "mousepad {}"),
    Editor("featherpad (Qt 5)", "featherpad --standalone {}"),
)


def put(stage: Stage, data: bytes, target: str = "UTF8_STRING", selection: str = "clipboard") -> None:
    """Own a selection by xclip, which stays in the background."""
    stage.write("given", data)
    argv = f"xclip -selection {selection} -t {shlex.quote(target)} -i {FOLDER}/given"
    stage.shell(f"{argv} >/dev/null 2>&1")


def got(stage: Stage, target: str = "UTF8_STRING", selection: str = "clipboard") -> str:
    """Return the content of a selection; empty when it has no owner."""
    return stage.shell(
        f"timeout 5 xclip -selection {selection} -t {shlex.quote(target)} -o 2>/dev/null || true"
    )


def clear(stage: Stage) -> None:
    """End the owners of selections that a cell before started."""
    stage.shell("for one in clipboard primary; do xsel --$one --clear 2>/dev/null || true; done")


def expect(stage: Stage, what: str, wanted: str, read: Callable[[], str]) -> None:
    """Wait until a text is there.

    Raises:
        Wrong: another one is.
    """
    try:
        stage.wait(what, lambda: read() == wanted)
    except Wrong:
        raise Wrong(f"{what}: {read()[:80]!r}") from None


def copy_all(stage: Stage) -> None:
    """Copy everything in the front window."""
    stage.key("ctrl", "a")
    stage.key("ctrl", "c")


def check_copy(editor: Editor, stage: Stage) -> None:
    """What is copied in a program is what another reads."""
    clear(stage)
    pid = editor.open(stage, "from.txt", TEXT)
    try:
        copy_all(stage)
        expect(stage, "clipboard", TEXT, lambda: got(stage))
    finally:
        stage.end(pid)


def check_paste(editor: Editor, stage: Stage) -> None:
    put(stage, TEXT.encode())
    pid = editor.open(stage, "to.txt", "")
    try:
        stage.key("ctrl", "v")
        stage.key("ctrl", "s")
        expect(stage, "saved text", TEXT, lambda: stage.read("to.txt").rstrip("\n"))
    finally:
        stage.end(pid)


def check_between(source: Editor, sink: Editor, stage: Stage) -> None:
    """What is copied in a program is pasted in another while both run."""
    clear(stage)
    first = source.open(stage, "from.txt", TEXT)
    copy_all(stage)
    second = sink.open(stage, "to.txt", "")
    try:
        stage.key("ctrl", "v")
        stage.key("ctrl", "s")
        expect(stage, "saved text", TEXT, lambda: stage.read("to.txt").rstrip("\n"))
    finally:
        stage.end(first)
        stage.end(second)


def check_kept(editor: Editor, stage: Stage) -> None:
    """What was copied is still there when its program was closed, if a clipboard manager runs."""
    clear(stage)
    pid = editor.open(stage, "from.txt", TEXT)
    copy_all(stage)
    expect(stage, "clipboard", TEXT, lambda: got(stage))
    stage.osworld("/setup/close_window", window_name="from.txt")
    stage.wait("end of the program", lambda: not stage.window("from.txt"))
    stage.end(pid)
    if not (kept := got(stage)):
        raise NotApplicable(LOST)
    if kept != TEXT:
        raise Wrong(f"after its program was closed the clipboard holds {kept!r}")


def check_large_paste(editor: Editor, stage: Stage) -> None:
    make = f"head -c {LARGE_BYTES} /dev/zero | tr '\\0' x | fold -w 99 >{FOLDER}/large"
    stage.shell(f"{make}; xclip -selection clipboard -i {FOLDER}/large >/dev/null 2>&1")
    digest = stage.shell(f"sha256sum <{FOLDER}/large")
    pid = editor.open(stage, "to.txt", "")
    try:
        stage.key("ctrl", "v")
        stage.key("ctrl", "s")
        size = f"stat -c %s {FOLDER}/to.txt"
        stage.wait("ten megabytes", lambda: int(stage.shell(size)) >= LARGE_BYTES, 40)
        found = stage.shell(f"head -c $(stat -c %s {FOLDER}/large) {FOLDER}/to.txt | sha256sum")
        if found != digest:
            raise Wrong("another text was saved than was offered")
    finally:
        stage.end(pid)


def check_large_copy(stage: Stage) -> None:
    """Ten megabytes go from one program to another, in pieces."""
    data = b"0123456789abcdef" * (LARGE_BYTES // 16)
    stage.shell(f"yes 0123456789abcdef | tr -d '\\n' | head -c {len(data)} >{FOLDER}/large")
    stage.shell(f"xclip -selection clipboard -i {FOLDER}/large >/dev/null 2>&1")
    found = stage.shell("xclip -selection clipboard -o | sha256sum").split()[0]
    if found != hashlib.sha256(data).hexdigest():
        raise Wrong("another content came than was offered")


def check_selections(stage: Stage) -> None:
    """Selecting sets PRIMARY and leaves CLIPBOARD; the middle button pastes what is selected."""
    put(stage, b"copied")
    pid = EDITORS[0].open(stage, "from.txt", "selected")
    try:
        stage.key("ctrl", "a")
        expect(stage, "PRIMARY", "selected", lambda: got(stage, selection="primary"))
        expect(stage, "CLIPBOARD", "copied", lambda: got(stage))
    finally:
        stage.end(pid)


def check_typing(stage: Stage) -> None:
    """Typing beyond the layout's characters leaves both selections with their owners."""
    pid = EDITORS[0].open(stage, "to.txt", "")
    try:
        put(stage, b"copied")
        put(stage, b"selected", selection="primary")
        stage.write("owner.py", OWNER.encode())
        owners = stage.shell(f"/usr/bin/python3 {FOLDER}/owner.py")
        stage.type("Grüße ☃ 世界 мир")
        stage.key("ctrl", "s")
        expect(stage, "saved text", "Grüße ☃ 世界 мир", lambda: stage.read("to.txt").rstrip("\n"))
        if (now := stage.shell(f"/usr/bin/python3 {FOLDER}/owner.py")) != owners:
            raise Wrong(f"owners were {owners.strip()}, and are {now.strip()}")
        expect(stage, "CLIPBOARD", "copied", lambda: got(stage))
        expect(stage, "PRIMARY", "selected", lambda: got(stage, selection="primary"))
    finally:
        stage.end(pid)


def check_target(target: str, data: str, stage: Stage) -> None:
    """A content of a kind arrives as that kind."""
    put(stage, data.encode("latin-1"), target)
    offered = got(stage, "TARGETS").split()
    if target not in offered:
        raise Wrong(f"offered are {', '.join(offered)}")
    pasted = f"xclip -selection clipboard -t {shlex.quote(target)} -o | cmp - {FOLDER}/given && echo same"
    expect(stage, target, "same", lambda: stage.shell(pasted).strip())


def check_files(stage: Stage) -> None:
    """Files copied in the file manager are offered as a list of addresses, and pasted into another folder."""
    stage.shell(f"rm -rf {FOLDER}/one {FOLDER}/two; mkdir {FOLDER}/one {FOLDER}/two")
    stage.write("one/a file.txt", b"content")
    clear(stage)
    stage.open("pcmanfm one", "one")
    try:
        copy_all(stage)
        expect(
            *(stage, "text/uri-list", f"file://{FOLDER}/one/a%20file.txt"),
            lambda: got(stage, "text/uri-list").strip("\r\n\0"),  # libfm ends the list with a zero byte
        )
        listed = got(stage, "x-special/gnome-copied-files")
        if listed.split("\n")[0] != "copy":
            raise Wrong(f"x-special/gnome-copied-files: {listed!r}")
        stage.open("pcmanfm two", "two")
        stage.key("ctrl", "v")
        expect(stage, "file", "content", lambda: stage.read("two/a file.txt"))
    finally:
        for title in ("two", "one"):  # the process is the desktop's own
            stage.osworld("/setup/close_window", window_name=title, strict=True)
            stage.wait(
                "end of a window", lambda title=title: all(one["title"] != title for one in stage.windows())
            )


def check_command(stage: Stage) -> None:
    """What a command puts into the clipboard stays when the command has returned."""
    put(stage, TEXT.encode())
    expect(stage, "clipboard", TEXT, lambda: got(stage))


PNG = "\x89PNG\r\n\x1a\n" + "".join(map(chr, range(256))) * 64
TARGETS = {
    "HTML": ("text/html", "<b>bold</b> text"),
    "image": ("image/png", PNG),
    "file list": ("text/uri-list", "file:///tmp/a%20file.txt\r\n"),
    "copied files": ("x-special/gnome-copied-files", "copy\nfile:///tmp/a%20file.txt"),
}


def cells() -> Iterator[Cell]:
    for editor in EDITORS:
        yield Cell(editor.name, "copy", partial(check_copy, editor))
        yield Cell(editor.name, "paste", partial(check_paste, editor))
        for sink in EDITORS:
            if sink is not editor:
                yield Cell(editor.name, "into another", partial(check_between, editor, sink))
        yield Cell(editor.name, "kept when closed", partial(check_kept, editor))
    yield Cell(EDITORS[0].name, "10 MB paste", partial(check_large_paste, EDITORS[0]))
    yield Cell("pcmanfm (GTK 2), files", "copy", check_files)
    for name, (target, data) in TARGETS.items():
        yield Cell(f"{name} by xclip", "copy", partial(check_target, target, data))
    yield Cell("10 MB between commands", "copy", check_large_copy)
    yield Cell("a command's text", "kept when closed", check_command)
    yield Cell("CLIPBOARD and PRIMARY", "apart", check_selections)
    yield Cell("typing Unicode", "apart", check_typing)
