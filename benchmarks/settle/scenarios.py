"""Single strokes: eleven applications, each opened on its own document, about 28 actions in each. Pure.

Points are those of a maximized window of the golden image. The random source only chooses among
harmless places (which cell, which word), so two runs with one seed do the same.
"""

from __future__ import annotations

from random import Random

from benchmarks.settle.actions import (
    WORDS,
    Action,
    Application,
    Kind,
    click,
    drag,
    key,
    move,
    nothing,
    scroll,
    write,
)
from benchmarks.settle.documents import FOLDER
from benchmarks.settle.flows import FLOWS
from benchmarks.settle.own_flows import OWN_FLOWS


def calc(rng: Random) -> list[Action]:
    """Cells, formulas, menus, the find bar, dialogs."""

    def cell() -> tuple[int, int]:
        return rng.randint(80, 900), rng.randint(280, 900)

    return [
        click("cell", cell()), click("cell", cell()), click("cell", cell()),
        write(rng.choice(WORDS)), key("Return"), write(str(rng.randint(10, 9999))), key("Tab"),
        key("Down"), key("Right"), key("Page_Down"), key("ctrl+Home"),
        click("cell", cell()), write("=SUM(A1:A9)"), key("Return"),
        click("cell", cell()), key("ctrl+b"), key("ctrl+z"),
        scroll((500, 600), 3), scroll((500, 600), -3),
        drag("select cells", (120, 340), (400, 460)),
        click("menu", (18, 42), Kind.MENU), key("Escape", Kind.MENU),
        key("ctrl+a"), click("cell", cell()),
        key("ctrl+1", Kind.DIALOG), key("Escape", Kind.DIALOG),
        key("ctrl+f", Kind.DIALOG), write(str(rng.randint(100, 900))), key("Return"), key("Escape"),
        click("edit cell", cell(), count=2), key("Escape"),
        click("context menu", cell(), Kind.MENU, button="right"), key("Escape", Kind.MENU),
        key("Delete"), nothing(),
        key("ctrl+shift+s", Kind.DIALOG), key("Escape", Kind.DIALOG),
    ]  # fmt: skip


def writer(rng: Random) -> list[Action]:
    def text() -> tuple[int, int]:
        return rng.randint(680, 1180), rng.randint(330, 900)

    return [
        click("text", text()), click("text", text()),
        write(rng.choice(WORDS) + " "), write(rng.choice(WORDS)), key("Return"), key("BackSpace"),
        key("Left"), key("Down"), key("Page_Down"), key("Page_Up"), key("ctrl+Home"),
        click("word", text(), count=2), key("ctrl+b"), key("ctrl+i"), key("ctrl+z"),
        key("ctrl+a"), click("text", text()), key("ctrl+e", label="centre"), key("ctrl+z"),
        scroll((900, 600), 3), scroll((900, 600), -5),
        click("menu", (18, 42), Kind.MENU), key("Escape", Kind.MENU),
        key("ctrl+f", Kind.DIALOG), write("lorem"), key("Return"), key("Escape"),
        key("ctrl+h", Kind.DIALOG), key("Escape", Kind.DIALOG),
        click("context menu", text(), Kind.MENU, button="right"), key("Escape", Kind.MENU), nothing(),
    ]  # fmt: skip


def impress(rng: Random) -> list[Action]:
    return [
        key("Escape", Kind.DIALOG, "close the template dialog"), click("empty slide", (240, 900)),
        click("title", (850, 315), count=2),
        write(rng.choice(WORDS) + " " + rng.choice(WORDS)), key("Escape"), key("Escape"),
        key("ctrl+m", label="new slide"), click("title", (850, 315), count=2), write(rng.choice(WORDS)),
        key("ctrl+a"), key("ctrl+b"), key("Escape"), key("Escape"),
        click("first slide", (90, 215)), key("Down"), key("Up"), key("ctrl+z"), key("ctrl+y"),
        click("menu", (18, 42), Kind.MENU), key("Escape", Kind.MENU),
        click("title", (850, 315)), key("Right"), key("Delete"), key("ctrl+z"), nothing(),
    ]  # fmt: skip


def chromium(rng: Random) -> list[Action]:
    """A form, links, tabs, find, zoom, menus."""
    page = f"file://{FOLDER}/long.html"
    top = 88
    empty = (1500, top + 700)
    return [
        click("field", (170, top + 193)), write(rng.choice(WORDS)), click("tick", (34, top + 253)),
        click("send", (80, top + 380)), click("text area", (950, top + 280)),
        write(f"{rng.choice(WORDS)} {rng.choice(WORDS)}"), key("Return"), key("ctrl+a"),
        click("nothing", empty, Kind.NOTHING), click("list", (90, top + 314), Kind.MENU),
        key("Down"), key("Return"), click("table", (260, top + 380)),
        scroll((900, 800), 3), scroll((900, 800), -5),
        click("alert", (440, top + 380), Kind.DIALOG), key("Return", Kind.DIALOG),
        move("over a link", (260, top + 130)), move("off the link", empty),
        click("long page", (260, top + 130), Kind.LINK), key("Page_Down"), scroll((900, 700), 3),
        key("space"), key("End"), key("Home"), key("ctrl+f"), write("dolor"), key("Return"), key("Escape"),
        key("alt+Left", Kind.LINK), click("page two", (60, top + 130), Kind.LINK), key("ctrl+a"),
        click("text", (1500, top + 850)), key("alt+Left", Kind.LINK),
        key("ctrl+t", Kind.TAB), key("ctrl+l"), write(page), key("Return", Kind.LINK),
        key("ctrl+Tab", Kind.TAB), key("ctrl+Tab", Kind.TAB), key("ctrl+w", Kind.TAB),
        click("context menu", empty, Kind.MENU, button="right"), key("Escape", Kind.MENU),
        key("ctrl+minus", label="zoom out"), key("ctrl+0", label="zoom back"),
        key("F5", Kind.LINK), nothing(),
    ]  # fmt: skip


def editor(rng: Random, menu: tuple[int, int], *, new: str, close: str) -> list[Action]:
    """What one does in any text editor."""

    def text() -> tuple[int, int]:
        return rng.randint(80, 700), rng.randint(160, 900)

    return [
        click("text", text()), click("text", text()), write(rng.choice(WORDS) + " "),
        write(rng.choice(WORDS)), key("Return"), key("BackSpace"), key("Left"), key("Down"),
        key("Page_Down"), key("Page_Up"), key("ctrl+End"), key("ctrl+Home"),
        click("word", text(), count=2), key("ctrl+a"), click("text", text()), key("ctrl+z"),
        scroll((600, 500), 3), scroll((600, 500), -3),
        click("menu", menu, Kind.MENU), key("Escape", Kind.MENU),
        key("ctrl+f", Kind.DIALOG), write("lorem"), key("Return"), key("Escape", Kind.DIALOG),
        key("ctrl+o", Kind.DIALOG), key("Escape", Kind.DIALOG),
        click("context menu", text(), Kind.MENU, button="right"), key("Escape", Kind.MENU),
        key(new, Kind.OPEN), key(close, Kind.OPEN), nothing(),
    ]  # fmt: skip


def mousepad(rng: Random) -> list[Action]:
    return editor(rng, (19, 42), new="ctrl+n", close="ctrl+w")


def featherpad(rng: Random) -> list[Action]:
    return editor(rng, (19, 42), new="ctrl+n", close="ctrl+w")


def pcmanfm(rng: Random) -> list[Action]:
    def folder(index: int) -> tuple[int, int]:
        return 224 + 94 * index, 127

    first, second, third = rng.sample(range(8), 3)
    empty = (1300, 700)
    return [
        click("folder", folder(first)), click("folder", folder(second)), click("empty", empty),
        click("empty", empty, Kind.NOTHING), click("open folder", folder(first), Kind.OPEN, count=2),
        key("alt+Up", Kind.OPEN), click("open folder", folder(third), Kind.OPEN, count=2),
        click("file", folder(1)), key("alt+Left", Kind.OPEN), key("ctrl+a"), click("empty", empty),
        click("menu", (18, 42), Kind.MENU), key("Escape", Kind.MENU),
        click("context menu", empty, Kind.MENU, button="right"), key("Escape", Kind.MENU),
        click("context menu", folder(second), Kind.MENU, button="right"), key("Escape", Kind.MENU),
        click("folder", folder(second)), key("F2", Kind.DIALOG), key("Escape", Kind.DIALOG),
        key("ctrl+t", Kind.TAB), key("ctrl+w", Kind.TAB), key("Right"), key("ctrl+h", Kind.OPEN),
        key("ctrl+h", Kind.OPEN), move("over a folder", folder(first)),
    ]  # fmt: skip


def terminal(rng: Random) -> list[Action]:
    """Commands short and long; one that answers late."""
    rows = rng.randint(20, 400)
    return [
        write("ls"), key("Return"), write("ls -la /usr/bin"), key("Return"), nothing(),
        write(f"seq {rows}"), key("Return"), write("clear"), key("Return"),
        write("find /usr/share -name 'a_none*'"), key("Return"), write("seq 20000"), key("Return"),
        write("python3 -c 'print(3)'"), key("Return"), write("sleep 0.1; ls"), key("Return", label="late ls"),
        key("Up"), key("ctrl+c"), click("text", (400, 400)), click("word", (60, 400), count=2),
    ]  # fmt: skip


def gimp(rng: Random) -> list[Action]:
    def canvas() -> tuple[int, int]:
        return rng.randint(700, 1200), rng.randint(350, 650)

    return [
        key("ctrl+n", Kind.DIALOG), key("Return", Kind.DIALOG), key("p", label="brush"),
        click("paint", canvas()), click("paint", canvas()), key("ctrl+z"),
        drag("stroke", canvas(), canvas()), key("ctrl+z"), key("ctrl+a"), key("ctrl+shift+a"),
        click("menu", (18, 42), Kind.MENU), key("Down", Kind.MENU), key("Escape", Kind.MENU),
        key("1", label="zoom 1:1"), key("minus", label="zoom out"), key("n", label="pencil"),
        click("paint", canvas()), move("over the canvas", canvas()),
        key("slash", Kind.DIALOG), write("invert"), key("Return"), key("ctrl+z"), nothing(),
    ]  # fmt: skip


def calculator(rng: Random) -> list[Action]:
    """A small GTK window; not maximized for long."""
    return [
        *(write(str(rng.randint(1, 999))) for _ in range(2)), key("plus"), write("7"), key("Return"),
        key("asterisk"), write("3"), key("equal"), key("Escape"), key("BackSpace"), nothing(),
    ]  # fmt: skip


STROKES: tuple[Application, ...] = (
    Application("calc", f"libreoffice --calc --infilter=CSV:44,34,76,1 {FOLDER}/data.csv", "data.csv", calc),
    Application("writer", f"libreoffice --writer {FOLDER}/doc.txt", "doc.txt", writer),
    Application("impress", "libreoffice --impress", "Impress", impress),
    Application("chromium", f"chromium file://{FOLDER}/form.html", "Form", chromium),
    Application("mousepad", f"mousepad {FOLDER}/text.txt", "text.txt", mousepad),
    Application("featherpad", f"featherpad {FOLDER}/text.txt", "text.txt", featherpad),
    Application("pcmanfm", f"pcmanfm {FOLDER}/files", "files", pcmanfm),
    Application("xterm", "xterm", "user@", terminal),
    Application("xfce4-terminal", "xfce4-terminal", "Terminal", terminal),
    Application("gimp", "gimp --no-splash", "GNU Image Manipulation Program", gimp),
    Application("galculator", "galculator", "galculator", calculator),
)


APPLICATIONS = (*STROKES, *FLOWS, *OWN_FLOWS)
MIXES = ("flows", "strokes", "all")


def application(name: str) -> Application:
    """Look an application up by name.

    Raises:
        KeyError: there is none of that name.
    """
    return {app.name: app for app in APPLICATIONS}[name]


def chosen(mix: str, *, own_image: bool) -> list[Application]:
    """The applications of a mix, without those of the benchmark's own image where that is not there."""
    return [app for app in APPLICATIONS if mix in (app.mix, "all") and (own_image or not app.own_image)]
