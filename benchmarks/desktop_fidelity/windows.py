"""Cells of windows: each kind is listed, found, activated, clicked into, typed into and closed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.desktop_fidelity.stage import FOLDER, Cell, NotApplicable, Stage, Wrong

PROGRAM = Path(__file__).with_name("special_window.py")
LOG = "windows.jsonl"
TYPED = "ok"
ASIDE = {"op": "move", "x": 1800, "y": 900}
"""Place of the pointer that covers the middle of no window."""
COLOR = 0x2060C0
"""Colour of the special window, which identifies it in a screenshot."""
Box = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of window.

    Attributes:
        name: Name in special_window.py.
        state: Fields of its row in the list, besides those of an ordinary window.
        refused: Columns that such a window cannot have, with the reason.
        workspaces: Number of workspaces of the desktop meanwhile.
        title: Suffix of its title after its name.
    """

    name: str
    about: str
    state: Mapping[str, bool]
    refused: Mapping[str, str]
    workspaces: int = 1
    title: str = ""


NOT_LISTED = "a menu belongs to no window manager, so no list has it; the screenshot shows it"
KINDS = (
    Kind("normal", "an ordinary window", {}, {}),
    Kind("modal", "a modal dialog of another window", {"modal": True}, {}),
    Kind("transient", "a dialog that is not modal", {}, {}),
    Kind("utility", "a palette of tools", {}, {}),
    Kind("undecorated", "a window without a frame", {}, {}),
    Kind("other-workspace", "a window on another workspace", {"visible": False}, {}, 2),
    # openbox leaves an edge of it on the screen: no window can be quite beside it
    Kind("off-screen", "a window that asks for a place beside the screen", {}, {}),
    Kind("partly-off-screen", "a window that the screen's edge cuts", {}, {}),
    Kind("above", "a window that is always on top", {"above": True}, {}),
    Kind("full-screen", "a window that fills the screen", {"fullscreen": True}, {}),
    Kind("maximized", "a window as large as the desktop", {"maximized": True}, {}),
    Kind("minimised", "a window that shows only in the panel", {"minimized": True, "visible": False}, {}),
    Kind("shaded", "a window of which only the title bar shows", {"visible": False}, {}),
    Kind("no-taskbar", "a window that the panel does not show", {}, {}),
    Kind("unicode-title", "a title beyond Latin", {}, {}, title=" Grüße ☃"),
    Kind("old-title", "a title in Latin-1, of a program of before UTF-8", {}, {}, title=" Grüße"),
    Kind("utf8-wm-name", "a title in UTF-8 in the old property alone", {}, {}, title=" Grüße ☃"),
    Kind(
        *("takes-no-keyboard", "a window that does not want the keyboard", {}),
        {"activate": "it refuses the keyboard; it is raised", "type": "it refuses the keyboard"},
    ),
    Kind(
        *("menu", "a menu, or another window past the window manager", {}),
        dict.fromkeys(("listed", "geometry", "state", "activate", "type", "close"), NOT_LISTED),
    ),
)
COLUMNS = ("listed", "geometry", "state", "activate", "click", "type", "close")


class SpecialWindow:
    """The window of a kind and the plain one, while they are shown."""

    def __init__(self, stage: Stage, kind: Kind) -> None:
        self._stage = stage
        self._kind = kind
        self._pid = 0
        self.id = 0
        self.title = f"special {kind.name}{kind.title}"

    def __enter__(self) -> SpecialWindow:
        stage = self._stage
        stage.write(PROGRAM.name, PROGRAM.read_bytes())
        stage.shell(f"wmctrl -n {self._kind.workspaces}; rm -f {FOLDER}/{LOG}")
        command = f"/usr/bin/python3 {PROGRAM.name} {LOG} {self._kind.name} '{self.title}' {COLOR:x}"
        self._pid = int(
            stage.shell(f"cd {FOLDER}; setsid {command} >{LOG}.out 2>&1 </dev/null & echo $!").strip()
        )
        self.id = stage.wait("the window", lambda: self.events("ready"))[0]["id"]
        stage.step(ASIDE)
        return self

    def __exit__(self, *_: object) -> None:
        self._stage.end(self._pid)
        self._stage.shell("wmctrl -s 0; wmctrl -n 1")

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return what the special window received; of "ready" what both did."""
        return [
            event
            for event in self._stage.events(LOG)
            if event["event"] == name and event.get("window", "special") == "special"
        ]

    def listed(self) -> dict[str, Any]:
        """Return its row in the list of windows.

        Raises:
            Wrong: it has none.
        """
        for window in self._stage.windows():
            if window["id"] == self.id:
                return window
        raise Wrong("it is not in the list")

    def real_box(self) -> Box:
        """Return its place by the X server's account: x, y, width, height."""
        text = self._stage.shell(f"xwininfo -id {self.id}")
        names = ("Absolute upper-left X", "Absolute upper-left Y", "Width", "Height")
        found = [re.search(rf"{name}:\s+(-?\d+)", text) for name in names]
        left, top, width, height = (int(match.group(1)) if match else 0 for match in found)
        return left, top, width, height

    def middle(self) -> tuple[int, int]:
        """Return the middle of its visible part."""
        left, top, width, height = self.real_box()
        return (max(left, 0) + min(left + width, 1920)) // 2, (max(top, 0) + min(top + height, 1040)) // 2

    def in_front(self) -> bool:
        """Whether the screen shows its colour in its middle."""
        return self._stage.pixel(*self.middle()) == (COLOR >> 16, COLOR >> 8 & 255, COLOR & 255)

    def active(self) -> bool:
        """Whether the window manager says that it has the keyboard."""
        return f"{self.id:#x}" in self._stage.shell("xprop -root _NET_ACTIVE_WINDOW")


def check_listed(stage: Stage, shown: SpecialWindow, kind: Kind) -> None:
    """The list has its title and its class."""
    row = shown.listed()
    if (row["title"], row["app"], row["instance"]) != (shown.title, "Special", "special"):
        raise Wrong(f"listed as {row['title']!r}, {row['app']!r}, {row['instance']!r}")


def check_geometry(stage: Stage, shown: SpecialWindow, kind: Kind) -> None:
    """The list has the place that the X server says."""
    row, real = shown.listed(), shown.real_box()
    told = (row["x_px"], row["y_px"], row["width_px"], row["height_px"])
    if told != real:
        raise Wrong(f"at {told}, not {real}")


def check_state(stage: Stage, shown: SpecialWindow, kind: Kind) -> None:
    row = shown.listed()
    usual = {"modal": False, "above": False, "fullscreen": False, "maximized": False, "minimized": False}
    expected = {**usual, "visible": True, "ordinary": True, **kind.state}
    told = {name: row.get(name) for name in expected}
    if told != expected:
        raise Wrong(", ".join(f"{name} is {told[name]}" for name in expected if told[name] != expected[name]))


def activate(stage: Stage, shown: SpecialWindow) -> None:
    """Bring another window to the front, then this one."""
    stage.osworld("/setup/activate_window", window_name="plain")
    stage.osworld("/setup/activate_window", window_name=shown.title)


def check_activate(stage: Stage, shown: SpecialWindow, kind: Kind) -> None:
    """Once activated it has the keyboard and nothing is before it."""
    activate(stage, shown)
    stage.wait("keyboard", shown.active, 3)
    stage.wait("its colour on the screen", shown.in_front, 3)


def check_click(stage: Stage, shown: SpecialWindow, kind: Kind) -> None:
    """A click into its middle reaches it."""
    if kind.name != "menu":
        activate(stage, shown)
        stage.wait("its colour on the screen", shown.in_front, 3)
    stage.click(*shown.middle())
    stage.wait("click", lambda: shown.events("click"), 3)


def check_type(stage: Stage, shown: SpecialWindow, kind: Kind) -> None:
    activate(stage, shown)
    stage.type(TYPED)
    stage.wait("text", lambda: "".join(event["value"] for event in shown.events("text")) == TYPED, 3)


def check_close(stage: Stage, shown: SpecialWindow, kind: Kind) -> None:
    """A window that is asked to close leaves the list of windows."""
    stage.osworld("/setup/close_window", window_name=shown.title)
    stage.wait("request to close", lambda: shown.events("exit"), 3)
    stage.wait("end of its row", lambda: all(one["id"] != shown.id for one in stage.windows()), 3)


CHECKS: Mapping[str, Callable[[Stage, SpecialWindow, Kind], None]] = {
    "listed": check_listed,
    "geometry": check_geometry,
    "state": check_state,
    "activate": check_activate,
    "click": check_click,
    "type": check_type,
    "close": check_close,
}


def cells() -> Iterator[Cell]:
    for kind in KINDS:
        for column in COLUMNS:
            yield Cell(kind.name, column, _runner(kind, column))


def _runner(kind: Kind, column: str) -> Callable[[Stage], None]:
    def run(stage: Stage) -> None:
        with SpecialWindow(stage, kind) as shown:
            if reason := kind.refused.get(column):
                raise NotApplicable(reason)
            CHECKS[column](stage, shown, kind)

    return run
