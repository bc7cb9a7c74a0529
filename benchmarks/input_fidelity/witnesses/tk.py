"""Witness of Tk: `python3 tk.py LOG` shows a window and appends what it received to LOG."""

from __future__ import annotations

import sys
import tkinter as tk
from functools import partial
from pathlib import Path
from tkinter import filedialog, ttk
from typing import Any

from recorder import HEIGHT, LATE_MS, PLACES, ROWS, WIDTH, Recorder, Stroke, key_name

TARGETS = tuple(name for name in PLACES if name not in ("mask", "source", "drop"))
"""Tk has no drag and drop of its own."""
SHIFT, CONTROL, ALT = 1, 4, 8
WHEEL = {4: (0, -1), 5: (0, 1), 6: (-1, 0), 7: (1, 0)}


class Window(tk.Tk):
    """All targets at fixed places."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(className="witness")
        self.title("witness tk")
        self.geometry(f"{WIDTH}x{HEIGHT}")
        self.resizable(False, False)
        self._recorder = recorder
        self._stroke: Stroke | None = None
        self._seen: list[tuple[int, int]] = []
        self._searched = ""
        # Tk's own Control-a goes to the beginning of the line
        self.bind_class("Entry", "<Control-a>", lambda event: event.widget.select_range(0, "end"))
        self._add_texts()
        self._add_search()
        self._add_pointer_targets()
        self._add_buttons()
        self.protocol("WM_DELETE_WINDOW", self._closed)
        self.bind("<Control-Shift-S>", self._shortcut)
        self.after(30, self._settle)

    def _place(self, name: str, widget: tk.Widget) -> None:
        x, y, width, height = PLACES[name]
        widget.place(x=x, y=y, width=width, height=height)

    def _text(self, target: str, value: str) -> None:
        self._recorder.write("text", target=target, value=value)

    def _entry(self, target: str, parent: tk.Misc, **options: Any) -> tk.Entry:
        value = tk.StringVar(self)
        value.trace_add("write", lambda *_: self._text(target, value.get()))
        entry = tk.Entry(parent, textvariable=value, insertofftime=0, **options)
        entry.bind("<Return>", lambda _: self._recorder.write("activate", target=target))
        return entry

    def _add_texts(self) -> None:
        self._place("entry", self._entry("entry", self))
        self._place("password", self._entry("password", self, show="*"))
        number = tk.StringVar(self, "0")
        spin = tk.Spinbox(self, from_=0, to=99999, textvariable=number, insertofftime=0)
        number.trace_add("write", lambda *_: self._text("spin", number.get()))
        spin.bind("<Control-a>", lambda _: (spin.selection("range", 0, "end"), "break")[1])
        self._place("spin", spin)
        multiline = tk.Text(self, insertofftime=0)

        def modified(_: tk.Event[Any]) -> None:
            if multiline.edit_modified():
                self._text("multiline", multiline.get("1.0", "end-1c"))
                multiline.edit_modified(False)

        multiline.bind("<<Modified>>", modified)
        self._place("multiline", multiline)

    def _add_search(self) -> None:
        """Add a list that is searched by what is typed: Tk's own lists leave that to programs."""
        rows = ttk.Treeview(self, show="tree")
        for row in ROWS:
            rows.insert("", "end", row, text=row)

        def typed(event: tk.Event[Any]) -> None:
            if event.char and event.char.isprintable():
                self._searched += event.char
                found = [row for row in ROWS if row.startswith(self._searched)]
                rows.selection_set(found[:1])

        def selected(_: tk.Event[Any]) -> None:
            for row in rows.selection():
                self._recorder.write("select", target="search", value=row)

        rows.bind("<Key>", typed)
        rows.bind("<Return>", lambda _: self._recorder.write("activate", target="search"))
        rows.bind("<<TreeviewSelect>>", selected)
        self._place("search", rows)

    def _add_pointer_targets(self) -> None:
        area, scroll, self._keys = (
            tk.Frame(self, relief="solid", borderwidth=1, takefocus=focus) for focus in (False, False, True)
        )
        for count, press in ((1, "Button"), (2, "Double-Button"), (3, "Triple-Button")):
            for button in (1, 2, 3):  # without its number, presses of different buttons count together
                area.bind(f"<{press}-{button}>", partial(self._pressed, count))
        area.bind("<Motion>", self._moved)
        area.bind("<ButtonRelease>", self._released)
        # Tk 8.6 takes buttons 6 and 7 away and sends them as wheel clicks with Shift
        for button, (dx, dy) in WHEEL.items():
            if button < 6:
                self._on_wheel(scroll, f"<Button-{button}>", dx, dy)
                self._on_wheel(scroll, f"<Shift-Button-{button}>", dy, dx)
        self._keys.bind("<Button>", lambda _: self._keys.focus_set())
        self._keys.bind("<KeyPress>", lambda event: self._key(event, True))
        self._keys.bind("<KeyRelease>", lambda event: self._key(event, False))
        for name, widget in (("area", area), ("scroll", scroll), ("keys", self._keys)):
            self._place(name, widget)

    def _on_wheel(self, scroll: tk.Widget, event: str, dx: int, dy: int) -> None:
        scroll.bind(event, lambda _: self._recorder.write("scroll", dx=dx, dy=dy))

    def _pressed(self, count: int, event: tk.Event[Any]) -> None:
        x, y, button = event.x_root, event.y_root, int(event.num)
        self._stroke = Stroke(x, y)
        self._recorder.write("click", target="area", button=button, count=count, x=x, y=y)

    def _moved(self, event: tk.Event[Any]) -> None:
        if self._stroke is not None:
            self._stroke.move(event.x_root, event.y_root)

    def _released(self, event: tk.Event[Any]) -> None:
        if self._stroke is not None:
            self._stroke.end(self._recorder, event.x_root, event.y_root)
            self._stroke = None

    def _key(self, event: tk.Event[Any], down: bool) -> str:
        state = int(event.state)
        symbol = str(event.keysym)
        char = symbol if len(symbol) == 1 else event.char
        name = key_name(
            symbol, char, ctrl=bool(state & CONTROL), alt=bool(state & ALT), shift=bool(state & SHIFT)
        )
        self._recorder.write("key", name=name, down=down)
        return "break"

    def _add_buttons(self) -> None:
        self._place("save", tk.Button(self, text="save", command=self._save))
        opens = tk.Button(self, text="open", command=lambda: self.after(LATE_MS, self._open_late))
        self._place("open", opens)

    def _shortcut(self, _: tk.Event[Any]) -> None:
        if self.focus_get() is not self._keys:
            self._save()

    def _save(self) -> None:
        path = filedialog.asksaveasfilename(parent=self, initialdir=str(Path.home()))
        self._recorder.write("dialog", name="save", path=path or "")

    def _open_late(self) -> None:
        window = tk.Toplevel(self)
        window.title("late")
        window.geometry("400x120")
        entry = self._entry("late", window)
        entry.pack(fill="x")
        entry.focus_set()

    def _settle(self) -> None:
        """Tell of the targets once the window manager has left the window where it is."""
        where = (self.winfo_rootx(), self.winfo_rooty())
        active = self.winfo_viewable() and self.focus_get() is not None
        self._seen = [*self._seen[-2:], where] if active else []
        if len(self._seen) < 3 or len(set(self._seen)) > 1:
            self.after(30, self._settle)
        else:
            self._recorder.ready(where, TARGETS)

    def _closed(self) -> None:
        self._recorder.write("exit")
        self.destroy()


if __name__ == "__main__":
    Window(Recorder(sys.argv[1])).mainloop()
