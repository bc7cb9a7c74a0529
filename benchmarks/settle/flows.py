"""Flows that are carried through in the image's applications: save, overwrite, open, settings. Pure."""

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
    commit,
    drag,
    key,
    keys,
    look_at,
    move,
    nothing,
    open_file,
    save_as,
    walk_menus,
    write,
)
from benchmarks.settle.documents import FOLDER


def mousepad(rng: Random) -> list[Action]:
    """GTK 3: save as, overwrite, open, print into a file, menus, settings."""
    path = f"{SAVED}/mousepad.txt"
    return [
        key("ctrl+End"), write(rng.choice(WORDS)), key("Return"), write(rng.choice(WORDS)),
        *save_as("ctrl+shift+s", path), write("more"), *save_as("ctrl+shift+s", path, "overwrite"),
        *open_file(f"{FOLDER}/doc.txt"), key("ctrl+Page_Up", Kind.TAB), *walk_menus(),
        key("ctrl+f", Kind.OPEN), write("lorem"), key("Return"), key("Escape", Kind.DIALOG),
        *look_at("ctrl+p", "ctrl+h"), key("ctrl+n", Kind.OPEN), key("ctrl+w", Kind.OPEN), nothing(),
    ]  # fmt: skip


def featherpad(rng: Random) -> list[Action]:
    """Qt: save as, overwrite, open, print, settings."""
    path = f"{SAVED}/featherpad.txt"
    return [
        key("ctrl+End"), write(rng.choice(WORDS)), key("Return"), write(rng.choice(WORDS)),
        *save_as("ctrl+shift+s", path), write("more"), key("ctrl+s", Kind.COMMIT, "save again"),
        *open_file(f"{FOLDER}/doc.txt"), key("alt+f", Kind.MENU), *keys("Down", "Down", kind=Kind.MENU),
        key("Right", Kind.MENU), key("Escape", Kind.MENU), key("Escape", Kind.MENU),
        *look_at("ctrl+p", "ctrl+shift+p"), key("ctrl+n", Kind.OPEN), key("ctrl+w", Kind.OPEN), nothing(),
    ]  # fmt: skip


def calc(rng: Random) -> list[Action]:
    """Save as, keep the format, export options, overwrite, format cells, function wizard, print."""
    path = f"{SAVED}/calc.csv"
    return [
        write(str(rng.randint(10, 9999))), key("Return"), write("=SUM(A1:A9)"), key("Return"),
        *save_as("ctrl+shift+s", path, "keep the format", "export options"),
        write("7"), key("Return"), key("ctrl+s", Kind.OPEN, "save"), commit("keep the format"),
        key("ctrl+1", Kind.OPEN, "format cells"), key("ctrl+Page_Down", Kind.TAB), commit("accept it"),
        *save_as("ctrl+shift+s", path, "overwrite", "keep the format", "export options"),
        *look_at("ctrl+F2", "ctrl+p", "ctrl+F3"), *walk_menus(),
        key("ctrl+h", Kind.OPEN), key("Escape", Kind.DIALOG), key("ctrl+Home"), nothing(),
    ]  # fmt: skip


def writer(rng: Random) -> list[Action]:
    """Insert a table, paragraph dialog, save as, keep the format, overwrite, print."""
    path = f"{SAVED}/writer.txt"
    return [
        write(rng.choice(WORDS)), key("Return"), key("ctrl+F12", Kind.OPEN, "insert table"),
        commit("insert the table"), write("cell"), key("Tab"), write("cell"), key("ctrl+z"),
        *save_as("ctrl+shift+s", path, "keep the format"), write("more"),
        key("ctrl+s", Kind.OPEN, "save"), commit("keep the format"),
        *save_as("ctrl+shift+s", path, "overwrite", "keep the format"),
        *look_at("ctrl+p", "ctrl+F3", "F5"), *walk_menus(), key("ctrl+End"), key("ctrl+Home"), nothing(),
    ]  # fmt: skip


def impress(rng: Random) -> list[Action]:
    """Slides, save as, overwrite, the show, print."""
    path = f"{SAVED}/impress.odp"
    return [
        key("Escape", Kind.DIALOG, "close the template dialog"), click("title", (850, 315), count=2),
        write(rng.choice(WORDS)), key("Escape"), key("Escape"), key("ctrl+m", label="new slide"),
        *save_as("ctrl+shift+s", path), click("title", (850, 315), count=2), write(rng.choice(WORDS)),
        key("Escape"), key("Escape"), *save_as("ctrl+shift+s", path, "overwrite"),
        key("F5", Kind.OPEN, "start the show"), key("Right"), key("Escape", Kind.OPEN, "end the show"),
        *look_at("ctrl+p"), *walk_menus(), nothing(),
    ]  # fmt: skip


def chromium(rng: Random) -> list[Action]:
    """Save a page, open a file, bookmark, settings pages, history, print preview, a form."""
    top = 88
    return [
        click("field", (170, top + 193)), write(rng.choice(WORDS)), commit("send the form"),
        *save_as("ctrl+s", f"{SAVED}/page.html", accept="alt+s"),
        key("ctrl+d", Kind.OPEN, "bookmark"), write(rng.choice(WORDS)), commit("keep the bookmark"),
        *open_file(f"{FOLDER}/two.html"), key("alt+Left", Kind.LINK),
        key("ctrl+t", Kind.TAB), key("ctrl+l"), write("chrome://settings/appearance"),
        commit("open the settings"), key("ctrl+f"), write("font"), key("Escape"),
        key("ctrl+l"), write("chrome://settings/privacy"), commit("open other settings"),
        key("ctrl+h", Kind.OPEN, "history"), key("ctrl+w", Kind.TAB), key("ctrl+j", Kind.OPEN, "downloads"),
        key("ctrl+w", Kind.TAB), key("ctrl+shift+o", Kind.OPEN, "bookmarks"), key("ctrl+w", Kind.TAB),
        key("ctrl+w", Kind.TAB), *look_at("ctrl+p"), key("alt+f", Kind.MENU),
        *keys("Down", "Down", "Down", kind=Kind.MENU), key("Escape", Kind.MENU), nothing(),
    ]  # fmt: skip


def pcmanfm(rng: Random) -> list[Action]:
    """New folder, rename, properties, copy, delete, context menus, another folder."""
    name = rng.choice(WORDS)
    first, empty = (224, 127), (1300, 700)
    return [
        key("ctrl+shift+n", Kind.OPEN, "new folder"), write(f"new-{name}"), commit("make the folder"),
        click("folder", first), key("F2", Kind.OPEN, "rename"), key("ctrl+a"), write(f"renamed-{name}"),
        commit("rename it"), click("folder", first), key("ctrl+c"), key("ctrl+l"),
        write(f"{SAVED}"), commit("go there"), click("empty", empty), key("ctrl+v", Kind.COMMIT, "paste"),
        key("ctrl+a"), key("alt+Return", Kind.OPEN, "properties"), key("Escape", Kind.DIALOG),
        click("context menu", empty, Kind.MENU, button="right"), *keys("Down", "Right", kind=Kind.MENU),
        key("Escape", Kind.MENU), key("Escape", Kind.MENU), key("alt+Up", Kind.OPEN), *walk_menus(),
        key("ctrl+t", Kind.TAB), key("ctrl+w", Kind.TAB), nothing(),
    ]  # fmt: skip


def terminal(rng: Random) -> list[Action]:
    return [
        write(f"seq {rng.randint(20, 400)}"), key("Return"), write("ls -la /usr/bin"), key("Return"),
        write(f"date > {SAVED}/terminal.txt"), key("Return", Kind.COMMIT, "write a file"),
        key("ctrl+shift+t", Kind.OPEN, "new tab"), write("ls"), key("Return"),
        key("ctrl+Page_Up", Kind.TAB), key("ctrl+shift+f", Kind.OPEN, "find"), write("bin"),
        key("Return"), key("Escape", Kind.DIALOG), *walk_menus(), write("clear"), key("Return"),
        write("python3 -c 'print(3)'"), key("Return"), nothing(),
    ]  # fmt: skip


def gimp(rng: Random) -> list[Action]:
    """New picture, paint, scale by the search, export with its options, overwrite, close."""

    def canvas() -> tuple[int, int]:
        return rng.randint(700, 1200), rng.randint(350, 650)

    path = f"{SAVED}/gimp.png"
    return [
        key("ctrl+n", Kind.OPEN, "new picture"), commit("make it"), key("p", label="brush"),
        drag("stroke", canvas(), canvas()), click("paint", canvas()),
        *save_as("ctrl+shift+e", path, "export options"), key("ctrl+z"),
        key("slash", Kind.OPEN, "search"), write("invert"), commit("do it"),
        *save_as("ctrl+shift+e", path, "overwrite", "export options"), *walk_menus(),
        *look_at("ctrl+o", "alt+Return"), key("ctrl+p", Kind.OPEN), key("Escape", Kind.DIALOG), nothing(),
    ]  # fmt: skip


def ristretto(rng: Random) -> list[Action]:
    """Save a copy, overwrite it, open, settings."""
    path = f"{SAVED}/ristretto.png"
    return [
        key("Escape", Kind.DIALOG, "close a notice"), key("Escape", Kind.DIALOG, "close a notice"),
        key("ctrl+plus"), key("ctrl+plus"), key("ctrl+0"), *save_as("ctrl+s", path),
        *save_as("ctrl+s", path, "overwrite"), *open_file(f"{FOLDER}/picture.png"), *walk_menus(),
        move("over the picture", (rng.randint(800, 1000), 500)), nothing(),
    ]  # fmt: skip


def vlc(rng: Random) -> list[Action]:
    """Preferences accepted, dialogs looked at, menus walked."""
    return [
        key("ctrl+p", Kind.OPEN, "preferences"), key("Tab"), commit("save the preferences"),
        *look_at("ctrl+i", "ctrl+e", "ctrl+o", "ctrl+m"), key("alt+m", Kind.MENU),
        *keys("Down", "Right", "Down", "Right", kind=Kind.MENU), key("Escape", Kind.MENU),
        key("ctrl+l", Kind.OPEN, "playlist"), key("ctrl+l", Kind.OPEN, "back"),
        move("over the buttons", (rng.randint(40, 200), 900)), nothing(),
    ]  # fmt: skip


def desktop(rng: Random) -> list[Action]:
    """The desktop's own menus, its icons, the panel's menu, a window from it."""
    empty = (rng.randint(900, 1500), rng.randint(200, 700))
    return [
        click("context menu", empty, Kind.MENU, button="right"),
        *keys("Down", "Down", "Right", kind=Kind.MENU), key("Escape", Kind.MENU), key("Escape", Kind.MENU),
        click("desktop", empty), click("panel's menu", (25, 1060), Kind.MENU),
        *keys("Down", "Down", kind=Kind.MENU), key("Escape", Kind.MENU),
        click("panel's menu", (25, 1060), Kind.MENU), write("calc"), key("Escape", Kind.MENU), nothing(),
    ]  # fmt: skip


def _flow(
    name: str, command: str, window: str, actions: Callable[[Random], list[Action]], *saves: str
) -> Application:
    paths = tuple(f"{SAVED}/{each}" for each in saves)
    return Application(f"{name}-flow", command, window, actions, paths, mix="flows")


FLOWS: tuple[Application, ...] = (
    _flow("mousepad", f"mousepad {FOLDER}/text.txt", "text.txt", mousepad, "mousepad.txt"),
    _flow("featherpad", f"featherpad {FOLDER}/text.txt", "text.txt", featherpad, "featherpad.txt"),
    _flow(
        "calc",
        f"libreoffice --calc --infilter=CSV:44,34,76,1 {FOLDER}/data.csv",
        "data.csv",
        calc,
        "calc.csv",
    ),
    _flow("writer", f"libreoffice --writer {FOLDER}/doc.txt", "doc.txt", writer, "writer.txt"),
    _flow("impress", "libreoffice --impress", "Impress", impress, "impress.odp"),
    _flow("chromium", f"chromium file://{FOLDER}/form.html", "Form", chromium, "page.html"),
    _flow("pcmanfm", f"pcmanfm {FOLDER}/files", "files", pcmanfm),
    _flow("xfce4-terminal", "xfce4-terminal", "Terminal", terminal, "terminal.txt"),
    _flow("gimp", "gimp --no-splash", "GNU Image Manipulation Program", gimp, "gimp.png"),
    _flow("ristretto", f"ristretto {FOLDER}/picture.png", "picture.png", ristretto, "ristretto.png"),
    _flow("vlc", "vlc", "VLC media player", vlc),
    _flow("desktop", "true", "", desktop),
)
