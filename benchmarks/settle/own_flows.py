"""Flows in the applications that only the benchmark's image has; three of them are kept for the end. Pure."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from benchmarks.settle.actions import (
    SAVED,
    WORDS,
    Action,
    Application,
    Kind,
    click,
    drag,
    key,
    keys,
    look_at,
    nothing,
    open_file,
    save_as,
    scroll,
    walk_menus,
    write,
)
from benchmarks.settle.documents import FOLDER


def xournalpp(rng: Random) -> list[Action]:
    """GTK 3 with a canvas: draw, save, open, print."""

    def paper() -> tuple[int, int]:
        return rng.randint(700, 1200), rng.randint(300, 800)

    return [
        drag("stroke", paper(), paper()), drag("stroke", paper(), paper()), key("ctrl+z"), key("ctrl+y"),
        *save_as("ctrl+s", f"{SAVED}/notes.xopp"), key("ctrl+d", label="new page"),
        drag("stroke", paper(), paper()), key("ctrl+s", Kind.COMMIT, "save again"), scroll((960, 600), 5),
        *look_at("ctrl+o", "ctrl+p"), *walk_menus(), key("ctrl+plus"), key("ctrl+0"), nothing(),
    ]  # fmt: skip


def gnumeric(rng: Random) -> list[Action]:
    """GTK 3 with a canvas of its own: cells, save as, overwrite, format, print."""
    path = f"{SAVED}/gnumeric.gnumeric"
    return [
        write(str(rng.randint(10, 999))), key("Return"), write("=sum(A1:A9)"), key("Return"),
        *save_as("ctrl+shift+s", path), write("7"), key("Tab"), key("ctrl+s", Kind.COMMIT, "save again"),
        *save_as("ctrl+shift+s", path, "overwrite"), key("ctrl+1", Kind.OPEN, "format cells"),
        key("Escape", Kind.DIALOG), *look_at("ctrl+p", "ctrl+f", "ctrl+o"), *walk_menus(),
        key("Page_Down"), key("ctrl+Home"), nothing(),
    ]  # fmt: skip


def geany(rng: Random) -> list[Action]:
    """GTK 3 with Scintilla: new file, save, open, preferences, find."""
    return [
        key("ctrl+End"), write(rng.choice(WORDS)), key("ctrl+n", Kind.OPEN, "new file"),
        write(rng.choice(WORDS)), *save_as("ctrl+s", f"{SAVED}/geany.txt"),
        *open_file(f"{FOLDER}/doc.txt"), key("ctrl+Page_Up", Kind.TAB),
        *look_at("ctrl+f", "ctrl+alt+p", "ctrl+h"), *walk_menus(), key("ctrl+g", Kind.OPEN),
        key("Escape", Kind.DIALOG), key("ctrl+w", Kind.OPEN, "close a file"), nothing(),
    ]  # fmt: skip


def speedcrunch(rng: Random) -> list[Action]:
    """Qt: results, save the session, overwrite, menus."""
    path = f"{SAVED}/sums.json"
    return [
        write(f"{rng.randint(2, 99)}*3"), key("Return", Kind.COMMIT, "evaluate"), write("sqrt(2)"),
        key("Return", Kind.COMMIT, "evaluate"), *save_as("ctrl+s", path), write("1+1"),
        key("Return", Kind.COMMIT, "evaluate"), *save_as("ctrl+s", path, "overwrite"),
        key("alt+s", Kind.MENU), *keys("Down", "Down", "Right", "Down", kind=Kind.MENU),
        key("Escape", Kind.MENU), key("Escape", Kind.MENU), key("Escape", Kind.MENU),
        key("ctrl+2", Kind.OPEN), key("ctrl+2", Kind.OPEN), key("Up"), nothing(),
    ]  # fmt: skip


def idle(rng: Random) -> list[Action]:
    """Tk: a shell, a window of its own, save, run."""
    return [
        write(f"print({rng.randint(2, 99)})"), key("Return"), key("ctrl+n", Kind.OPEN, "new window"),
        write("print(1 + 1)"), key("Return"), *save_as("ctrl+s", f"{SAVED}/program.py"),
        key("F5", Kind.COMMIT, "run it"), write("1+1"), key("Return"), key("alt+f", Kind.MENU),
        *keys("Down", "Down", kind=Kind.MENU), key("Escape", Kind.MENU), *look_at("ctrl+f"),
        key("ctrl+a"), key("Right"), nothing(),
    ]  # fmt: skip


def xpaint(rng: Random) -> list[Action]:
    """Athena widgets: a picture of its own window, strokes."""

    def canvas() -> tuple[int, int]:
        return rng.randint(300, 600), rng.randint(250, 500)

    return [
        click("tool", (40, 120)), click("tool", (100, 200)), drag("stroke", canvas(), canvas()),
        click("paint", canvas()), key("ctrl+n", Kind.OPEN, "new picture"), drag("stroke", canvas(), canvas()),
        key("ctrl+z"), click("menu", (30, 40), Kind.MENU), key("Escape", Kind.MENU), nothing(),
    ]  # fmt: skip


def bluefish(rng: Random) -> list[Action]:
    """GTK 3, kept for the end: new file, save, overwrite, open, find, menus."""
    path = f"{SAVED}/bluefish.txt"
    return [
        key("ctrl+End"), write(rng.choice(WORDS)), key("ctrl+n", Kind.OPEN, "new file"),
        write(rng.choice(WORDS)), *save_as("ctrl+shift+s", path), write("more"),
        key("ctrl+s", Kind.COMMIT, "save again"), *open_file(f"{FOLDER}/doc.txt"),
        *look_at("ctrl+h"), *walk_menus(), key("ctrl+Page_Up", Kind.TAB), nothing(),
    ]  # fmt: skip


def juffed(rng: Random) -> list[Action]:
    """Qt, kept for the end: new file, save, open, print, menus."""
    return [
        key("ctrl+End"), write(rng.choice(WORDS)), key("ctrl+n", Kind.OPEN, "new file"),
        write(rng.choice(WORDS)), *save_as("ctrl+s", f"{SAVED}/juffed.txt"), write("more"),
        key("ctrl+s", Kind.COMMIT, "save again"), *open_file(f"{FOLDER}/doc.txt"), *look_at("ctrl+p"),
        key("alt+f", Kind.MENU), *keys("Down", "Down", "Right", kind=Kind.MENU), key("Escape", Kind.MENU),
        key("Escape", Kind.MENU), nothing(),
    ]  # fmt: skip


def xfig(rng: Random) -> list[Action]:
    """Athena widgets, kept for the end: boxes and circles, menus."""

    def canvas() -> tuple[int, int]:
        return rng.randint(500, 1200), rng.randint(300, 800)

    return [
        click("tool", (40, 160)), click("start", canvas()), click("end", canvas()), click("tool", (40, 250)),
        click("start", canvas()), click("end", canvas()), key("alt+z", label="zoom"), scroll((900, 500), 3),
        click("menu", (30, 40), Kind.MENU), key("Escape", Kind.MENU), key("alt+o", Kind.OPEN, "open"),
        key("Escape", Kind.DIALOG), nothing(),
    ]  # fmt: skip


NO_BLINKING = r"mkdir -p ~/.idlerc; printf '[EditorWindow]\ncursor-blink = 0\n' > ~/.idlerc/config-main.cfg"


def _own(
    name: str,
    command: str,
    window: str,
    actions: Callable[[Random], list[Action]],
    *saves: str,
    kept: bool = False,
) -> Application:
    paths = tuple(f"{SAVED}/{each}" for each in saves)
    return Application(name, command, window, actions, paths, kept, own_image=True, mix="flows")


OWN_FLOWS: tuple[Application, ...] = (
    _own("xournalpp", "xournalpp", "Xournal++", xournalpp, "notes.xopp"),
    _own("gnumeric", f"gnumeric {FOLDER}/data.csv", "Gnumeric", gnumeric, "gnumeric.gnumeric"),
    _own("geany", f"geany {FOLDER}/text.txt", "Geany", geany, "geany.txt"),
    _own("speedcrunch", "speedcrunch", "SpeedCrunch", speedcrunch, "sums.json"),
    _own("idle", f"{NO_BLINKING}; idle", "Shell", idle, "program.py"),
    _own("xpaint", "xpaint", "XPaint", xpaint),
    _own("bluefish", f"bluefish {FOLDER}/text.txt", "luefish", bluefish, "bluefish.txt", kept=True),
    _own("juffed", f"juffed {FOLDER}/text.txt", "JuffEd", juffed, "juffed.txt", kept=True),
    _own("xfig", "xfig", "Xfig", xfig, kept=True),
)
