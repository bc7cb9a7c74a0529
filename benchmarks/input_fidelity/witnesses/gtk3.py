"""Witness of GTK 3: `python3 gtk3.py LOG` shows a window and appends what it received to LOG."""

from __future__ import annotations

import sys
from pathlib import Path

import gi

gi.require_version("Gtk", "3.0")
gi.require_version("Gdk", "3.0")
from gi.repository import Gdk, GLib, Gtk  # noqa: E402 - the version is chosen first
from recorder import HEIGHT, LATE_MS, PLACES, ROWS, WIDTH, Recorder, Stroke, key_name  # noqa: E402

TARGETS = tuple(name for name in PLACES if name != "mask")
PRESSES = {
    Gdk.EventType.BUTTON_PRESS: 1,
    Gdk.EventType.DOUBLE_BUTTON_PRESS: 2,
    Gdk.EventType.TRIPLE_BUTTON_PRESS: 3,
}
WHEEL = {
    Gdk.ScrollDirection.UP: (0, -1),
    Gdk.ScrollDirection.DOWN: (0, 1),
    Gdk.ScrollDirection.LEFT: (-1, 0),
    Gdk.ScrollDirection.RIGHT: (1, 0),
}


class Window(Gtk.Window):
    """All targets at fixed places."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(title="witness gtk3")
        self._recorder = recorder
        self._stroke: Stroke | None = None
        self._press: tuple[int, int, int, int] | None = None
        self._origins: list[tuple[int, int]] = []
        self.set_default_size(WIDTH, HEIGHT)
        self.set_resizable(False)
        self._fixed = Gtk.Fixed()
        self._fixed.set_size_request(WIDTH, HEIGHT)
        self.add(self._fixed)
        self._add_texts()
        self._add_search()
        self._add_pointer_targets()
        self._add_drag_and_drop()
        self._add_buttons()
        self.connect("delete-event", self._closed)
        self.connect("key-press-event", self._shortcut)
        self.connect("map-event", lambda *_: GLib.timeout_add(30, self._settle) and False)

    def _place(self, name: str, widget: Gtk.Widget) -> None:
        x, y, width, height = PLACES[name]
        widget.set_size_request(width, height)
        self._fixed.put(widget, x, y)

    def _text(self, target: str, value: str) -> None:
        self._recorder.write("text", target=target, value=value)

    def _entry(self, target: str) -> Gtk.Entry:
        entry = Gtk.Entry()
        entry.connect("changed", lambda e: self._text(target, e.get_text()))
        entry.connect("activate", lambda _: self._recorder.write("activate", target=target))
        return entry

    def _add_texts(self) -> None:
        self._place("entry", self._entry("entry"))
        password = self._entry("password")
        password.set_visibility(False)
        self._place("password", password)
        spin = Gtk.SpinButton.new_with_range(0, 99999, 1)
        spin.connect("value-changed", lambda s: self._text("spin", str(s.get_value_as_int())))
        self._place("spin", spin)
        view = Gtk.TextView()
        buffer = view.get_buffer()
        buffer.connect(
            "changed",
            lambda b: self._text("multiline", b.get_text(b.get_start_iter(), b.get_end_iter(), True)),
        )
        scrolled = Gtk.ScrolledWindow()
        scrolled.add(view)
        self._place("multiline", scrolled)

    def _add_search(self) -> None:
        store = Gtk.ListStore(str)
        for row in ROWS:
            store.append([row])
        tree = Gtk.TreeView(model=store, headers_visible=False)
        tree.append_column(Gtk.TreeViewColumn("", Gtk.CellRendererText(), text=0))
        tree.set_search_column(0)

        def selected(selection: Gtk.TreeSelection) -> None:
            model, at = selection.get_selected()
            if at is not None:
                self._recorder.write("select", target="search", value=model[at][0])

        tree.get_selection().connect("changed", selected)
        tree.connect("row-activated", lambda *_: self._recorder.write("activate", target="search"))
        scrolled = Gtk.ScrolledWindow()
        scrolled.add(tree)
        self._place("search", scrolled)

    def _add_pointer_targets(self) -> None:
        area, scroll, self._keys = Gtk.DrawingArea(), Gtk.DrawingArea(), Gtk.DrawingArea()
        mask = Gdk.EventMask
        area.add_events(mask.BUTTON_PRESS_MASK | mask.BUTTON_RELEASE_MASK | mask.BUTTON_MOTION_MASK)
        area.connect("button-press-event", self._pressed)
        area.connect("motion-notify-event", self._moved)
        area.connect("button-release-event", self._released)
        scroll.add_events(mask.SCROLL_MASK)
        scroll.connect("scroll-event", self._scrolled)
        self._keys.set_can_focus(True)
        self._keys.add_events(mask.KEY_PRESS_MASK | mask.KEY_RELEASE_MASK | mask.BUTTON_PRESS_MASK)
        self._keys.connect("button-press-event", lambda widget, _: widget.grab_focus())
        self._keys.connect("key-press-event", self._key, True)
        self._keys.connect("key-release-event", self._key, False)
        for name, widget in (("area", area), ("scroll", scroll), ("keys", self._keys)):
            widget.connect("draw", _outline)
            self._place(name, widget)

    def _pressed(self, _: Gtk.Widget, event: Gdk.EventButton) -> bool:
        count = PRESSES[event.type]
        if count == 1:
            self._write_press()
            self._stroke = Stroke(int(event.x_root), int(event.y_root))
            # GTK tells of a double click by a second event right after that of the press
            GLib.idle_add(self._write_press)
        self._press = (event.button, count, int(event.x_root), int(event.y_root))
        return True

    def _write_press(self) -> bool:
        if self._press is not None:
            button, count, x, y = self._press
            self._recorder.write("click", target="area", button=button, count=count, x=x, y=y)
            self._press = None
        return False

    def _moved(self, _: Gtk.Widget, event: Gdk.EventMotion) -> bool:
        if self._stroke is not None:
            self._stroke.move(int(event.x_root), int(event.y_root))
        return True

    def _released(self, _: Gtk.Widget, event: Gdk.EventButton) -> bool:
        self._write_press()
        if self._stroke is not None:
            self._stroke.end(self._recorder, int(event.x_root), int(event.y_root))
            self._stroke = None
        return True

    def _scrolled(self, _: Gtk.Widget, event: Gdk.EventScroll) -> bool:
        dx, dy = WHEEL.get(event.direction, (event.delta_x, event.delta_y))
        self._recorder.write("scroll", dx=dx, dy=dy)
        return True

    def _key(self, _: Gtk.Widget, event: Gdk.EventKey, down: bool) -> bool:
        state, kind = event.state, Gdk.ModifierType
        code = Gdk.keyval_to_unicode(event.keyval)
        name = key_name(
            Gdk.keyval_name(event.keyval) or "",
            chr(code) if code else "",
            ctrl=bool(state & kind.CONTROL_MASK),
            alt=bool(state & kind.MOD1_MASK),
            shift=bool(state & kind.SHIFT_MASK),
        )
        self._recorder.write("key", name=name, down=down)
        return True

    def _add_drag_and_drop(self) -> None:
        source, drop = Gtk.EventBox(), Gtk.EventBox()
        source.add(Gtk.Label(label="source"))
        drop.add(Gtk.Label(label="drop"))
        source.drag_source_set(Gdk.ModifierType.BUTTON1_MASK, [], Gdk.DragAction.COPY)
        source.drag_source_add_text_targets()
        source.connect("drag-data-get", lambda _w, _c, data, *_: data.set_text("payload-gtk3", -1))
        drop.drag_dest_set(Gtk.DestDefaults.ALL, [], Gdk.DragAction.COPY | Gdk.DragAction.MOVE)
        drop.drag_dest_add_uri_targets()
        drop.drag_dest_add_text_targets()
        drop.connect("drag-data-received", self._dropped)
        self._place("source", source)
        self._place("drop", drop)

    def _dropped(
        self, _w: Gtk.Widget, _c: object, _x: int, _y: int, data: Gtk.SelectionData, *_: object
    ) -> None:
        text = "\n".join(data.get_uris()) or data.get_text() or ""
        self._recorder.write("drop", target="drop", data=text)

    def _add_buttons(self) -> None:
        save, opens = Gtk.Button(label="save"), Gtk.Button(label="open")
        save.connect("clicked", lambda _: self._save())
        opens.connect("clicked", lambda _: GLib.timeout_add(LATE_MS, self._open_late))
        self._place("save", save)
        self._place("open", opens)

    def _shortcut(self, _: Gtk.Widget, event: Gdk.EventKey) -> bool:
        both = Gdk.ModifierType.CONTROL_MASK | Gdk.ModifierType.SHIFT_MASK
        if event.state & both == both and event.keyval == Gdk.KEY_S and not self._keys.has_focus():
            self._save()
            return True
        return False

    def _save(self) -> None:
        dialog = Gtk.FileChooserDialog(title="Save as", parent=self, action=Gtk.FileChooserAction.SAVE)
        dialog.add_buttons("Cancel", Gtk.ResponseType.CANCEL, "Save", Gtk.ResponseType.OK)
        dialog.set_default_response(Gtk.ResponseType.OK)
        dialog.set_current_folder(str(Path.home()))
        path = dialog.get_filename() if dialog.run() == Gtk.ResponseType.OK else ""
        dialog.destroy()
        self._recorder.write("dialog", name="save", path=path)

    def _open_late(self) -> bool:
        window = Gtk.Window(title="late", default_width=400, default_height=120)
        window.add(self._entry("late"))
        window.show_all()
        window.present()
        return False

    def _settle(self) -> bool:
        """Tell of the targets once the window manager has left the window where it is."""
        _, x, y = self.get_window().get_origin()
        self._origins = [*self._origins[-2:], (x, y)] if self.is_active() else []
        if len(self._origins) < 3 or len(set(self._origins)) > 1:
            return True
        self._recorder.ready((x, y), TARGETS)
        return False

    def _closed(self, *_: object) -> bool:
        self._recorder.write("exit")
        Gtk.main_quit()
        return False


def _outline(widget: Gtk.Widget, context: object) -> bool:
    context.set_source_rgb(0.4, 0.4, 0.4)  # type: ignore[attr-defined]
    context.rectangle(0.5, 0.5, widget.get_allocated_width() - 1, widget.get_allocated_height() - 1)  # type: ignore[attr-defined]
    context.stroke()  # type: ignore[attr-defined]
    return False


if __name__ == "__main__":
    Window(Recorder(sys.argv[1])).show_all()
    Gtk.main()
