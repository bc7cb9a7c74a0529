"""Show a window of Qt and write down what it received: `qt5.py LOG`.

`qt6.py` is the same with the other binding.
"""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path
from typing import Any

from recorder import HEIGHT, LATE_MS, PLACES, ROWS, WIDTH, Recorder, key_name

TOOLKIT = "qt6" if Path(sys.argv[0]).stem == "qt6" else "qt5"
BINDING = "PyQt6" if TOOLKIT == "qt6" else "PyQt5"
core, gui, widgets = (importlib.import_module(f"{BINDING}.Qt{part}") for part in ("Core", "Gui", "Widgets"))
qt = core.Qt
log = Recorder(sys.argv[1])
payload = f"payload-{TOOLKIT}"

EIGHTHS_OF_A_DEGREE_PER_CLICK = 120
"""What Qt says for one click of a wheel: https://doc.qt.io/qt-5/qwheelevent.html#angleDelta"""
NAMED_KEYSYMS = {
    0x20: "space",
    0xFF08: "BackSpace",
    0xFF09: "Tab",
    0xFF0D: "Return",
    0xFF1B: "Escape",
    0xFF50: "Home",
    0xFF51: "Left",
    0xFF52: "Up",
    0xFF53: "Right",
    0xFF54: "Down",
    0xFF55: "Prior",
    0xFF56: "Next",
    0xFF57: "End",
    0xFF63: "Insert",
    0xFF8D: "KP_Enter",
    0xFFE1: "Shift_L",
    0xFFE2: "Shift_R",
    0xFFE3: "Control_L",
    0xFFE4: "Control_R",
    0xFFE5: "Caps_Lock",
    0xFFE9: "Alt_L",
    0xFFEA: "Alt_R",
    0xFFEB: "Super_L",
    0xFFEC: "Super_R",
    0xFFFF: "Delete",
    **{0xFFBE + at: f"F{at + 1}" for at in range(12)},
}
"""Names in X.Org's keysymdef.h of the keys that type no character."""

modifiers = {
    "ctrl": qt.KeyboardModifier.ControlModifier,
    "alt": qt.KeyboardModifier.AltModifier,
    "shift": qt.KeyboardModifier.ShiftModifier,
}
buttons = {qt.MouseButton.LeftButton: 1, qt.MouseButton.MiddleButton: 2, qt.MouseButton.RightButton: 3}


def position(event: Any) -> tuple[int, int]:
    """Return where on the screen an event of the mouse happened, in either binding."""
    point = event.globalPosition().toPoint() if hasattr(event, "globalPosition") else event.globalPos()
    return point.x(), point.y()


def keysym_name(keysym: int) -> str:
    """Return the character that a keysym types, or its name in X.Org's header.

    >>> keysym_name(0x61), keysym_name(0x1002603), keysym_name(0xFF0D)
    ('a', '☃', 'Return')
    """
    if keysym in NAMED_KEYSYMS:
        return NAMED_KEYSYMS[keysym]
    if keysym > 0x1000000:
        return chr(keysym - 0x1000000)
    return chr(keysym) if 0x20 < keysym < 0x100 else hex(keysym)


def watch_entry(name: str, entry: Any) -> None:
    """Write down the content of an entry after each change, and Enter in it."""
    entry.textChanged.connect(lambda value: log.write("text", target=name, value=value))
    entry.returnPressed.connect(lambda: log.write("activate", target=name))


class Keys(widgets.QLabel):
    """Records keys as they come; Tab too, which would move the focus on."""

    def event(self, event: Any) -> bool:
        if event.type() == core.QEvent.Type.ShortcutOverride:
            event.accept()  # no shortcut of the window takes a key away
            return True
        if event.type() in (core.QEvent.Type.KeyPress, core.QEvent.Type.KeyRelease):
            held = {name: bool(event.modifiers() & flag) for name, flag in modifiers.items()}
            name = key_name(keysym_name(event.nativeVirtualKey()), event.text(), **held)
            down = event.type() == core.QEvent.Type.KeyPress
            log.write("key", name=name, down=down)
            return True
        return bool(super().event(event))


class Area(widgets.QLabel):
    """Records clicks, by Qt's own notion of a double click, and plain drags. Qt knows no triple click."""

    path: list[tuple[int, int]]

    def mousePressEvent(self, event: Any) -> None:
        self._pressed(event, 1)

    def mouseDoubleClickEvent(self, event: Any) -> None:
        self._pressed(event, 2)

    def _pressed(self, event: Any, count: int) -> None:
        x, y = position(event)
        self.path = [(x, y)]
        log.write("click", target="area", button=buttons[event.button()], count=count, x=x, y=y)

    def mouseMoveEvent(self, event: Any) -> None:
        self.path.append(position(event))

    def mouseReleaseEvent(self, event: Any) -> None:
        first, last = self.path[0], position(event)
        if first != last:
            moves = len(self.path) - 1
            log.write("drag", points=moves, path=self.path, **{"from": list(first), "to": list(last)})


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
    told = False
    late: Late | None = None

    def __init__(self) -> None:
        super().__init__()
        self.targets: dict[str, Any] = {}
        self.setWindowTitle(f"witness-{TOOLKIT}")
        self._place_texts()
        self._place_fields()
        for name, called in (("save", self._save), ("open", self._open_soon)):
            self._place(name, widgets.QPushButton(name)).clicked.connect(called)
        shortcut = getattr(gui, "QShortcut", None) or widgets.QShortcut
        shortcut(gui.QKeySequence("Ctrl+Shift+S"), self).activated.connect(self._save)
        self.setFixedSize(WIDTH, HEIGHT)
        self.move(40, 40)

    def _place(self, name: str, widget: Any) -> Any:
        widget.setParent(self)
        widget.setGeometry(*PLACES[name])
        if isinstance(widget, widgets.QLabel):
            widget.setText(name)
            widget.setFrameShape(widgets.QFrame.Shape.Box)
        self.targets[name] = widget
        return widget

    def _place_texts(self) -> None:
        for name in ("entry", "password", "mask"):
            watch_entry(name, self._place(name, widgets.QLineEdit()))
        self.targets["password"].setEchoMode(widgets.QLineEdit.EchoMode.Password)
        self.targets["mask"].setInputMask("99-99-9999;_")
        spin = self._place("spin", widgets.QSpinBox())
        spin.setMaximum(10**6)
        spin.textChanged.connect(lambda value: log.write("text", target="spin", value=value))
        multiline = self._place("multiline", widgets.QPlainTextEdit())
        multiline.textChanged.connect(
            lambda: log.write("text", target="multiline", value=multiline.toPlainText())
        )

    def _place_fields(self) -> None:
        search = self._place("search", widgets.QListWidget())
        search.addItems(ROWS)
        search.currentTextChanged.connect(lambda value: log.write("select", target="search", value=value))
        search.itemActivated.connect(lambda _: log.write("activate", target="search"))
        self._place("keys", Keys()).setFocusPolicy(qt.FocusPolicy.ClickFocus)
        self._place("area", Area())
        self._place("source", Source())
        self._place("drop", Drop()).setAcceptDrops(True)
        self._place("scroll", Scroll())

    def _save(self) -> None:
        path, _ = widgets.QFileDialog.getSaveFileName(self, "Save As", str(Path.home()))
        log.write("dialog", name="save", path=path)

    def _open_soon(self) -> None:
        core.QTimer.singleShot(LATE_MS, self._open)

    def _open(self) -> None:
        self.late = Late()
        self.late.show()

    def _tell(self) -> None:
        corner = self.mapToGlobal(core.QPoint(0, 0))
        log.ready((corner.x(), corner.y()), tuple(self.targets))

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
    app = widgets.QApplication(sys.argv[:1])
    window = Window()
    window.show()
    window.targets["entry"].setFocus()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    execute = getattr(app, "exec", None) or app.exec_
    sys.exit(execute())


if __name__ == "__main__":
    main()
