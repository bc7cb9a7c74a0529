"""Show a window of Qt and write down what it received: `qt5.py LOG`.

`qt6.py` is the same with the other binding.
"""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path
from typing import Any

from witness_log import WitnessLog, chord_name, keysym_name

TOOLKIT = "qt6" if Path(sys.argv[0]).stem == "qt6" else "qt5"
BINDING = "PyQt6" if TOOLKIT == "qt6" else "PyQt5"
core, gui, widgets = (importlib.import_module(f"{BINDING}.Qt{part}") for part in ("Core", "Gui", "Widgets"))
qt = core.Qt
log = WitnessLog(sys.argv[1])
payload = f"payload-{TOOLKIT}"

SIZE = (900, 600)
OPENS_AFTER_MS = 300
EIGHTHS_OF_A_DEGREE_PER_CLICK = 120
"""What Qt says for one click of a wheel: https://doc.qt.io/qt-5/qwheelevent.html#angleDelta"""
WORDS = [f"{letter}-{number:02}" for letter in "abcdefghijklmnopqrstuvwxyz" for number in range(4)]
DRAG_THRESHOLD_PX = 4

modifiers = {
    "ctrl": qt.KeyboardModifier.ControlModifier,
    "alt": qt.KeyboardModifier.AltModifier,
    "shift": qt.KeyboardModifier.ShiftModifier,
    "super": qt.KeyboardModifier.MetaModifier,
}
buttons = {qt.MouseButton.LeftButton: 1, qt.MouseButton.MiddleButton: 2, qt.MouseButton.RightButton: 3}


def position(event: Any) -> tuple[int, int]:
    """Return where in its widget an event of the mouse happened, in either binding."""
    point = event.position().toPoint() if hasattr(event, "position") else event.pos()
    return point.x(), point.y()


def watch_entry(name: str, entry: Any) -> None:
    """Write down the content of an entry after each change, and Enter in it."""
    entry.textChanged.connect(lambda value: log.write("text", target=name, value=value))
    entry.returnPressed.connect(lambda: log.write("activate", target=name))


class Keys(widgets.QLabel):
    """Records keys as they come; Tab too, which would move the focus on."""

    def event(self, event: Any) -> bool:
        if event.type() in (core.QEvent.Type.KeyPress, core.QEvent.Type.KeyRelease):
            held = [name for name, flag in modifiers.items() if event.modifiers() & flag]
            name = chord_name(keysym_name(event.nativeVirtualKey()), held)
            down = event.type() == core.QEvent.Type.KeyPress
            log.write("key", name=name, down=down, repeat=event.isAutoRepeat())
            return True
        return bool(super().event(event))


class Area(widgets.QLabel):
    """Records clicks, by Qt's own notion of a double click, and plain drags."""

    path: list[tuple[int, int]]
    doubled: int | None = None

    def mousePressEvent(self, event: Any) -> None:
        self._pressed(event, 1)

    def mouseDoubleClickEvent(self, event: Any) -> None:
        self.doubled = event.timestamp()
        self._pressed(event, 2)

    def _pressed(self, event: Any, count: int) -> None:
        # Qt has no triple click of its own: its text fields take a press that follows a double click
        # within the double click interval for one, and so does this
        interval = widgets.QApplication.doubleClickInterval()
        if count == 1 and self.doubled is not None and event.timestamp() - self.doubled < interval:
            count = 3
        if count != 2:
            self.doubled = None
        x, y = position(event)
        self.path = [(x, y)]
        log.write("click", target="area", button=buttons[event.button()], count=count, x=x, y=y)

    def mouseMoveEvent(self, event: Any) -> None:
        self.path.append(position(event))

    def mouseReleaseEvent(self, event: Any) -> None:
        first, last = self.path[0], position(event)
        if max(abs(first[0] - last[0]), abs(first[1] - last[1])) > DRAG_THRESHOLD_PX:
            points = [list(point) for point in self.path]
            log.write("drag", points=len(points), path=points, **{"from": list(first), "to": list(last)})


class Source(widgets.QLabel):
    """A drag that begins here carries the payload."""

    def mousePressEvent(self, event: Any) -> None:
        self.start = position(event)

    def mouseMoveEvent(self, event: Any) -> None:
        x, y = position(event)
        if abs(x - self.start[0]) + abs(y - self.start[1]) < widgets.QApplication.startDragDistance():
            return
        data = core.QMimeData()
        data.setText(payload)
        drag = gui.QDrag(self)
        drag.setMimeData(data)
        execute = getattr(drag, "exec", None) or drag.exec_
        execute(qt.DropAction.CopyAction)


class Drop(widgets.QLabel):
    """Takes texts and files."""

    def dragEnterEvent(self, event: Any) -> None:
        if event.mimeData().hasText() or event.mimeData().hasUrls():
            event.acceptProposedAction()

    def dropEvent(self, event: Any) -> None:
        urls = [url.toString() for url in event.mimeData().urls()]
        log.write("drop", target="drop", data="\n".join(urls) or event.mimeData().text())
        event.acceptProposedAction()


class Scroll(widgets.QLabel):
    """Records what the wheel says, in clicks; down and right are positive."""

    def wheelEvent(self, event: Any) -> None:
        delta = event.angleDelta()
        log.write(
            "scroll",
            dx=-delta.x() / EIGHTHS_OF_A_DEGREE_PER_CLICK,
            dy=-delta.y() / EIGHTHS_OF_A_DEGREE_PER_CLICK,
        )
        event.accept()


class Late(widgets.QWidget):
    """A window that takes text."""

    def __init__(self) -> None:
        super().__init__()
        self.setWindowTitle("late")
        self.setGeometry(300, 300, 400, 80)
        self.entry = widgets.QLineEdit(self)
        self.entry.setGeometry(10, 10, 380, 30)
        watch_entry("late", self.entry)


class Window(widgets.QWidget):
    """The window with all targets."""

    told = False
    late: Late | None = None

    def __init__(self) -> None:
        super().__init__()
        self.targets: dict[str, Any] = {}
        self.setWindowTitle(f"witness-{TOOLKIT}")
        self._place_texts()
        self._place_fields()
        for name, called, left in (("save", self._save, 20), ("open", self._open_soon, 160)):
            self._place(name, widgets.QPushButton(name), left, 520, 120, 40).clicked.connect(called)
        shortcut = getattr(gui, "QShortcut", None) or widgets.QShortcut
        shortcut(gui.QKeySequence("Ctrl+Shift+S"), self).activated.connect(self._save)
        self.setFixedSize(*SIZE)
        self.move(40, 40)

    def _place(self, name: str, widget: Any, *box: int) -> Any:
        widget.setParent(self)
        widget.setGeometry(*box)
        if isinstance(widget, widgets.QLabel):
            widget.setText(name)
            widget.setFrameShape(widgets.QFrame.Shape.Box)
        self.targets[name] = widget
        return widget

    def _place_texts(self) -> None:
        entries = {"entry": (20, 20, 300, 30), "password": (340, 20, 200, 30), "mask": (700, 20, 180, 30)}
        for name, box in entries.items():
            watch_entry(name, self._place(name, widgets.QLineEdit(), *box))
        self.targets["password"].setEchoMode(widgets.QLineEdit.EchoMode.Password)
        self.targets["mask"].setInputMask("99-99-9999;_")
        spin = self._place("spin", widgets.QSpinBox(), 560, 20, 120, 30)
        spin.setMaximum(10**6)
        spin.textChanged.connect(lambda value: log.write("text", target="spin", value=value))
        multiline = self._place("multiline", widgets.QPlainTextEdit(), 20, 70, 420, 160)
        multiline.textChanged.connect(
            lambda: log.write("text", target="multiline", value=multiline.toPlainText())
        )

    def _place_fields(self) -> None:
        search = self._place("search", widgets.QListWidget(), 460, 70, 200, 160)
        search.addItems(WORDS)
        search.currentTextChanged.connect(lambda value: log.write("select", target="search", value=value))
        search.itemActivated.connect(lambda _: log.write("activate", target="search"))
        self._place("keys", Keys(), 680, 70, 200, 160).setFocusPolicy(qt.FocusPolicy.ClickFocus)
        self._place("area", Area(), 20, 250, 420, 250)
        self._place("source", Source(), 460, 250, 190, 90)
        self._place("drop", Drop(), 690, 250, 190, 90).setAcceptDrops(True)
        self._place("scroll", Scroll(), 460, 360, 420, 140)

    def _save(self) -> None:
        path, _ = widgets.QFileDialog.getSaveFileName(self, "Save As", str(Path.home()))
        log.write("dialog", name="save", path=path)

    def _open_soon(self) -> None:
        core.QTimer.singleShot(OPENS_AFTER_MS, self._open)

    def _open(self) -> None:
        self.late = Late()
        self.late.show()

    def _tell(self) -> None:
        boxes = {}
        for name, widget in self.targets.items():
            corner = widget.mapToGlobal(core.QPoint(0, 0))
            boxes[name] = (corner.x(), corner.y(), widget.width(), widget.height())
        log.ready(boxes)

    def paintEvent(self, event: Any) -> None:
        super().paintEvent(event)
        if not self.told and self.isActiveWindow():
            self.told = True
            core.QTimer.singleShot(0, self._tell)

    def changeEvent(self, event: Any) -> None:
        super().changeEvent(event)
        self.update()

    def closeEvent(self, event: Any) -> None:
        log.write("exit")
        super().closeEvent(event)


def main() -> None:
    """Show the window until its window manager closes it."""
    app = widgets.QApplication(sys.argv[:1])
    window = Window()
    window.show()
    window.targets["entry"].setFocus()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    execute = getattr(app, "exec", None) or app.exec_
    sys.exit(execute())


if __name__ == "__main__":
    main()
