"""Typing any Unicode exactly into real applications."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import late_reader
from tests.support.guest_rig import Desktop, desktop, until

from osgym_guest._native import Display

# no line begins with a space: an editor would carry the indentation on
ASCII = "".join(chr(code) for code in range(0x21, 0x7F)) + " "
TEXTS = {
    "ascii": ASCII * 2 + '<tag attr="x">a && b || c</tag>\nsecond line\tafter tab\n',
    "german": "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. «ÄÖÜ» „ß“ €\n",
    "cyrillic": "Съешь же ещё этих мягких французских булок, да выпей чаю. ЭЮЯ ЪЫЬ\n",
    "cjk": "天地玄黃宇宙洪荒日月盈昃辰宿列張寒來暑往秋收冬藏 いろはにほへと 한국어\n",
    "emoji": "😀🎉👩‍💻🇩🇪 é ∀x∈ℝ\n",
    "many": "".join(chr(code) for code in range(0x4E00, 0x4E00 + 150)) + "\n",
}


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desktop]:
    """One desktop for all."""
    with desktop(tmp_path_factory.mktemp("typing")) as made:
        yield made


@pytest.mark.parametrize("name", TEXTS)
def test_a_terminal_gets_exactly_the_text(screen: Desktop, name: str) -> None:
    """What is typed into xterm arrives in the program that reads it, byte for byte."""
    out = screen.home / f"xterm-{name}.txt"
    terminal = screen.open("xterm", "-u8", "-e", "sh", "-c", f"stty -echo -icanon; exec cat > {out}")
    until(out.exists)
    screen.guest.step({"op": "type", "text": TEXTS[name]})
    expected = TEXTS[name].encode()
    until(lambda: len(out.read_bytes()) >= len(expected))
    terminal.kill()
    assert out.read_bytes() == expected


@pytest.mark.parametrize("argv", [["mousepad"], ["featherpad", "--standalone"]], ids=["gtk", "qt"])
@pytest.mark.parametrize("name", TEXTS)
def test_an_editor_gets_exactly_the_text(screen: Desktop, argv: list[str], name: str) -> None:
    """What is typed into an editor is what it saves."""
    file = screen.home / f"{argv[0]}-{name}.txt"
    file.write_text("")
    editor = screen.open(*argv, str(file))
    screen.guest.step({"op": "type", "text": TEXTS[name]})
    screen.guest.step({"op": "key", "keys": ["ctrl", "s"]})
    until(lambda: file.read_bytes())
    editor.kill()
    screen.guest.step({"op": "screenshot"})
    saved = file.read_text(encoding="utf-8")
    # editors end the last line of a file themselves
    assert saved.rstrip("\n") == TEXTS[name].rstrip("\n")


ANIMATED_DIALOG = """
import ctypes, itertools, select
x11 = ctypes.CDLL("libX11.so.6")
x11.XOpenDisplay.restype = ctypes.c_void_p
display = ctypes.c_void_p(x11.XOpenDisplay(None))
root = ctypes.c_ulong(x11.XDefaultRootWindow(display))
window = ctypes.c_ulong(x11.XCreateSimpleWindow(display, root, 0, 0, 1000, 600, 0, 0, 0xFFFFFF))
x11.XSetTransientForHint(display, window, root)
keys_buttons_motions = 0x4F
x11.XSelectInput(display, window, ctypes.c_long(keys_buttons_motions))
x11.XMapWindow(display, window)
event = ctypes.create_string_buffer(256)
for frame in itertools.count():
    x11.XSetWindowBackground(display, window, ctypes.c_ulong(0xFF0000 if frame % 2 else 0xFF))
    x11.XClearWindow(display, window)
    x11.XSync(display, 0)
    while x11.XPending(display):
        x11.XNextEvent(display, event)
    select.select([x11.XConnectionNumber(display)], [], [], 0.04)
"""

ENTERS = {
    "in the text": [{"op": "type", "text": "{path}\n"}],
    "with a carriage return": [{"op": "type", "text": "{path}\r\n"}],
    "as the next action": [{"op": "type", "text": "{path}"}, {"op": "key", "keys": ["Return"]}],
}


@pytest.mark.parametrize("load", [0, 20], ids=["idle", "load 20"])
@pytest.mark.parametrize("form", ENTERS)
def test_a_name_with_an_enter_behind_it_saves_the_file(screen: Desktop, form: str, load: int) -> None:
    """GTK's file dialog completes the name by a timer, and loses an Enter that comes before."""
    for at in range(40):
        (screen.home / f"other{at}.txt").touch()
    target = screen.home / f"saved-{list(ENTERS).index(form)}-{load}.txt"
    actions = [
        {**action, "text": action["text"].format(path=target)} if "text" in action else action
        for action in ENTERS[form]
    ]
    with closed(screen, "mousepad"):
        screen.guest.step({"op": "type", "text": "words"})
        screen.guest.step({"op": "key", "keys": ["ctrl", "shift", "s"]}, settle={"policy": "certain"})
        with busy(load):
            screen.guest.step(*actions, settle={"policy": "certain"})
            until(target.exists, timeout_s=5 if not load else 30)
    assert target.read_text().strip() == "words"


@pytest.mark.parametrize("load", [0, 20], ids=["idle", "load 20"])
def test_lines_typed_ahead_reach_the_program_that_a_line_before_started(screen: Desktop, load: int) -> None:
    """A shell changes the terminal's mode between two lines: what was sent too early would be read by it."""
    written, echoed = screen.home / f"written-{load}", screen.home / f"echoed-{load}"
    with closed(screen, "xterm", "-u8", "-e", "bash", "--norc"), busy(load):
        for _ in range(3):
            text = f"cat > {written}\nline one\nline two\n"
            screen.guest.step({"op": "type", "text": text}, {"op": "key", "keys": ["ctrl", "d"]})
            text = f'read x\nhello there\nread y\nagain\necho "$x,$y" > {echoed}\n'
            screen.guest.step({"op": "type", "text": text})
            until(lambda: echoed.exists() and echoed.read_text(), timeout_s=30)
            assert written.read_text() == "line one\nline two\n"
            assert echoed.read_text() == "hello there,again\n"
            written.unlink()
            echoed.unlink()


@pytest.mark.parametrize(("name", "is_awaited"), [("soffice.bin", True), ("editor", False)])
def test_each_enter_in_libreoffice_is_waited_for(screen: Desktop, name: str, is_awaited: bool) -> None:
    """LibreOffice, known by its name, carries out an Enter after the characters that follow it."""
    program = screen.home / name
    program.symlink_to(shutil.which("mousepad") or "")
    with closed(screen, str(program)), contextlib.closing(Display(screen.display)) as display:
        window, is_dialog, is_read_key_by_key = display.receiver()
    assert window and not is_dialog
    assert is_read_key_by_key is is_awaited


@pytest.mark.parametrize(
    ("names", "group"),
    [("us,ru", 0), ("us,ru", 1), ("us,us,ru", 2), ("us,de,gr,ru", 3), ("us(intl),de,ru", 2)],
)
def test_a_text_arrives_in_every_group_of_a_layout(screen: Desktop, names: str, group: int) -> None:
    """A path and a word of each script are typed right whichever is in use."""
    out = screen.home / f"group-{names}-{group}.txt"
    expected = "/home/мир & Hello, Привет?\na\n".encode()
    shell = f"stty -echo -icanon; exec cat > '{out}'"
    with closed(screen, "xterm", "-u8", "-e", "sh", "-c", shell):
        until(out.exists)
        with layout(screen, names, group):
            screen.guest.step({"op": "type", "text": "/home/мир & Hello, Привет?\n"})
            screen.guest.step({"op": "key", "keys": ["a"]}, {"op": "key", "keys": ["ctrl", "j"]})
        until(lambda: len(out.read_bytes()) >= len(expected))
    assert out.read_bytes() == expected


def test_an_animation_in_a_dialog_holds_no_step_up(screen: Desktop) -> None:
    """The timers of dialogs are waited for after keys only, and for a bounded time in a step."""
    drag = {"op": "drag", "path": [[400, 300], [600, 400]]}
    with closed(screen, sys.executable, "-c", ANIMATED_DIALOG):
        with contextlib.closing(Display(screen.display)) as display:
            assert display.receiver()[1], "the window is no dialog"
        began_s = time.monotonic()
        screen.guest.step(drag, drag, settle={"policy": "fixed", "pause_ms": 0})
        dragged_s = time.monotonic()
        screen.guest.step({"op": "type", "text": "x\n" * 12}, settle={"policy": "fixed", "pause_ms": 0})
        typed_s = time.monotonic()
    assert dragged_s - began_s < 10
    assert 5 < typed_s - dragged_s < 20


def test_an_enter_comes_after_the_timer_of_a_dialog_that_reads_late(screen: Desktop) -> None:
    """A busy machine lets the dialog read the name late: its timer counts from then on."""
    program = Path(late_reader.__file__)
    with closed(screen, sys.executable, str(program), "0.4", "0.15"):
        screen.guest.step({"op": "type", "text": "x"}, {"op": "key", "keys": ["Return"]})
        until(lambda: (screen.home / "accepted").exists() or (screen.home / "lost").exists())
    assert not (screen.home / "lost").exists()


@contextlib.contextmanager
def closed(screen: Desktop, *argv: str) -> Iterator[None]:
    """A program that has its window, and is gone at the end whatever happens."""
    program = screen.open(*argv)
    try:
        yield
    finally:
        windows = screen.property("_NET_CLIENT_LIST")
        program.kill()
        program.wait()
        until(lambda: screen.property("_NET_CLIENT_LIST") != windows)


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that burn the processor, of the session's own group and gone at the end."""
    hogs = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(processes)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@contextlib.contextmanager
def layout(screen: Desktop, names: str, group: int) -> Iterator[None]:
    """A keyboard layout with several groups, one of them in use; the plain one at the end."""
    subprocess.run(["setxkbmap", "-layout", names], env=screen.environment, check=True)
    lock_group(screen, group)
    try:
        yield
    finally:
        lock_group(screen, 0)
        subprocess.run(["setxkbmap", "-layout", "us"], env=screen.environment, check=True)


def lock_group(screen: Desktop, group: int) -> None:
    """Put a group of the layout into use, as its indicator in a panel does."""
    x11 = ctypes.CDLL("libX11.so.6")
    x11.XOpenDisplay.restype = ctypes.c_void_p
    display = ctypes.c_void_p(x11.XOpenDisplay(screen.display.encode()))
    use_core_keyboard = 0x100
    assert display and x11.XkbLockGroup(display, use_core_keyboard, group)
    x11.XSync(display, 0)
    x11.XCloseDisplay(display)
