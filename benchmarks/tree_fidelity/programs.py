"""Programs whose trees are read: applications of the images, and a window of each toolkit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
INSIDE = "/home/user/trees"
"""Place of this folder in a desktop."""
GAPS = f"{INSIDE}/gaps.txt"


@dataclass(frozen=True, slots=True)
class Program:
    """One row of the matrix.

    Attributes:
        name: Name such as `featherpad`.
        churn: Command that opens a second window; empty: keys open its menus.
        tree: It reports a tree; the others are listed as their windows.
        timer: It writes the gaps of its own timer.
    """

    name: str
    toolkit: str
    argv: tuple[str, ...]
    churn: tuple[str, ...] = ()
    image: str = "small"
    tree: bool = True
    expect: tuple[str, ...] = ()
    timer: bool = False
    start_s: float = 30.0


def _toolkit(name: str, *, tree: bool = True, image: str = "toolkits") -> Program:
    """A window of a toolkit that measures its own main loop."""
    argv = ("python3", f"{INSIDE}/benchmarks/tree_fidelity/timers.py", name)
    expect = ("Button 0", "Button 39") if tree else ()
    return Program(name, name, (*argv, GAPS), (*argv, "/dev/null"), image, tree, expect, timer=True)


# Debian leaves Java's assistive technologies off.
_JAVA = (
    "java",
    *("-cp", "/usr/share/java/java-atk-wrapper.jar"),
    "-Djavax.accessibility.assistive_technologies=org.GNOME.Accessibility.AtkWrapper",
    f"{INSIDE}/benchmarks/tree_fidelity/Timer.java",
)
PROGRAMS = (
    Program("mousepad", "gtk3", ("mousepad",), ("mousepad", "-o", "window"), expect=("File", "Help")),
    Program("galculator", "gtk3", ("galculator",), ("galculator",), expect=("File", "7")),
    Program("featherpad", "qt5", ("featherpad",), ("featherpad", "-w"), expect=("File", "Edit", "Help")),
    Program(
        "pcmanfm",
        "gtk2",
        ("pcmanfm", "-n", "/etc/xdg"),
        ("pcmanfm", "-n", "/etc"),
        expect=("File", "openbox"),
    ),
    Program(
        "xfce4-terminal",
        "gtk3",
        ("xfce4-terminal", "--disable-server"),
        ("xfce4-terminal",),
        expect=("File",),
    ),
    Program("xterm", "Xt", ("xterm",), ("xterm",), tree=False),
    _toolkit("tk", tree=False, image="small"),
    Program("gimp", "gtk2", ("gimp",), image="full", expect=("File", "Filters"), start_s=90),
    Program("vlc", "qt5", ("vlc",), image="full", expect=("Media", "Playback")),
    Program("chromium", "Chromium", ("google-chrome", "about:blank"), image="full", start_s=60),
    Program("calc", "LibreOffice", ("localc",), image="full", expect=("File", "A1"), start_s=90),
    _toolkit("gtk3"),
    _toolkit("gtk4"),
    _toolkit("qt5"),
    _toolkit("qt6"),
    _toolkit("wx"),
    _toolkit("sdl", tree=False),
    Program(
        "swing",
        "Java Swing",
        (*_JAVA, GAPS),
        (*_JAVA, "/dev/null"),
        "toolkits",
        expect=("Button 0", "Button 39"),
        timer=True,
        start_s=60,
    ),
)
_IMAGES = ("small", "full", "toolkits")


def chosen(image: str, names: str) -> list[Program]:
    """Return the programs of a list with commas; of an empty one all that an image has.

    Raises:
        ValueError: A program of this name is unknown; the message lists the known ones.
    """
    known = {program.name: program for program in PROGRAMS}
    if unknown := [name for name in names.split(",") if name and name not in known]:
        raise ValueError(f"unknown program {unknown[0]!r}; valid programs: {', '.join(known)}")
    if names:
        return [known[name] for name in names.split(",")]
    has = _IMAGES[: _IMAGES.index(image) + 1] if image in _IMAGES else _IMAGES
    return [program for program in PROGRAMS if program.image in has]
