"""Window of one toolkit with forty buttons, whose main loop writes how long it stood still.

``timers.py TOOLKIT FILE``: a timer of 5 ms. Each 50 ms the largest time between two of its calls becomes a
line of the file, beside the largest CPU time that the main thread took between two calls, both in ms.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

PERIOD_MS = 5
LINE_S = 0.05
BUTTONS = [f"Button {number}" for number in range(40)]
COLUMNS = 5


class Gaps:
    """Gaps between the calls of a timer."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "a", buffering=1)  # noqa: SIM115  (open as long as the program)
        self._last = self._line = time.monotonic()
        self._busy = time.thread_time()
        self._largest = self._busiest = 0.0

    def tick(self) -> bool:
        """Record one call of the timer; return true, so that GTK calls again."""
        now, busy = time.monotonic(), time.thread_time()
        self._largest = max(self._largest, now - self._last)
        self._busiest = max(self._busiest, busy - self._busy)
        self._last, self._busy = now, busy
        if now - self._line >= LINE_S:
            self._file.write(f"{self._largest * 1000:.3f} {self._busiest * 1000:.3f}\n")
            self._largest = self._busiest = 0.0
            self._line = now
        return True


def gtk(version: str, gaps: Gaps) -> None:
    importlib.import_module("gi").require_version("Gtk", version)
    GLib, Gtk = (importlib.import_module(f"gi.repository.{name}") for name in ("GLib", "Gtk"))
    GLib.timeout_add(PERIOD_MS, gaps.tick)
    grid: Any = Gtk.Grid()
    for at, text in enumerate(BUTTONS):
        grid.attach(Gtk.Button(label=text), at % COLUMNS, at // COLUMNS, 1, 1)
    if version == "4.0":
        application = Gtk.Application(application_id=f"org.osgym.Timer{time.monotonic_ns()}")

        def show(application: Any) -> None:
            window = Gtk.ApplicationWindow(application=application, title="Timer")
            window.set_child(grid)
            window.present()

        application.connect("activate", show)
        application.run([])
        return
    window = Gtk.Window(title="Timer")
    window.add(grid)
    window.connect("destroy", Gtk.main_quit)
    window.show_all()
    Gtk.main()


def qt(module: str, gaps: Gaps) -> None:
    widgets = importlib.import_module(f"{module}.QtWidgets")
    core = importlib.import_module(f"{module}.QtCore")
    application = widgets.QApplication([])
    window = widgets.QWidget()
    window.setWindowTitle("Timer")
    layout = widgets.QGridLayout(window)
    for at, text in enumerate(BUTTONS):
        layout.addWidget(widgets.QPushButton(text), at // COLUMNS, at % COLUMNS)
    timer = core.QTimer()
    timer.timeout.connect(gaps.tick)
    timer.start(PERIOD_MS)
    window.show()
    application.exec()


def tk(gaps: Gaps) -> None:
    import tkinter

    window = tkinter.Tk()
    window.title("Timer")
    for at, text in enumerate(BUTTONS):
        tkinter.Button(window, text=text).grid(row=at // COLUMNS, column=at % COLUMNS)

    def again() -> None:
        gaps.tick()
        window.after(PERIOD_MS, again)

    again()
    window.mainloop()


def wx(gaps: Gaps) -> None:
    toolkit = importlib.import_module("wx")
    application = toolkit.App()
    frame = toolkit.Frame(None, title="Timer")
    grid = toolkit.GridSizer(COLUMNS)
    for text in BUTTONS:
        grid.Add(toolkit.Button(frame, label=text))
    frame.SetSizerAndFit(grid)
    timer = toolkit.Timer(frame)
    frame.Bind(toolkit.EVT_TIMER, lambda _event: gaps.tick())
    timer.Start(PERIOD_MS)
    frame.Show()
    application.MainLoop()


def sdl(gaps: Gaps) -> None:
    """Show a window of SDL 2, which has no main loop but the program's own."""
    pygame = importlib.import_module("pygame")
    pygame.display.init()
    pygame.display.set_mode((400, 300))
    pygame.display.set_caption("Timer")
    clock = pygame.time.Clock()
    while not any(event.type == pygame.QUIT for event in pygame.event.get()):
        gaps.tick()
        clock.tick(1000 // PERIOD_MS)


RUN: dict[str, Callable[[Gaps], None]] = {
    "gtk3": lambda gaps: gtk("3.0", gaps),
    "gtk4": lambda gaps: gtk("4.0", gaps),
    "qt5": lambda gaps: qt("PyQt5", gaps),
    "qt6": lambda gaps: qt("PyQt6", gaps),
    "tk": tk,
    "wx": wx,
    "sdl": sdl,
}

if __name__ == "__main__":
    RUN[sys.argv[1]](Gaps(sys.argv[2]))
