"""Witness of GTK 4: `python3 gtk4.py LOG` shows a window and appends what it received to LOG."""

from __future__ import annotations

import sys
from pathlib import Path

import gi

gi.require_version("Gtk", "4.0")
gi.require_version("Gdk", "4.0")
gi.require_version("GdkX11", "4.0")
from gi.repository import Gdk, GdkX11, Gio, GLib, GObject, Gtk  # noqa: E402 - versions are chosen first
from recorder import HEIGHT, LATE_MS, PLACES, ROWS, WIDTH, Recorder, Stroke, key_name  # noqa: E402
from Xlib import display as xdisplay  # noqa: E402

TARGETS = tuple(name for name in PLACES if name not in ("mask",))


class Window(Gtk.Window):
    """All targets at fixed places."""

    def __init__(self, recorder: Recorder, ended: GLib.MainLoop) -> None:
        GLib.set_prgname("witness-gtk4")
        super().__init__(title="witness gtk4", resizable=False)
        self._recorder = recorder
        self._ended = ended
        self._stroke: Stroke | None = None
        self._origin = (0, 0)
        self._origins: list[tuple[int, int]] = []
        self._x = xdisplay.Display()
        self._fixed = Gtk.Fixed()
        self._fixed.set_size_request(WIDTH, HEIGHT)
        self.set_child(self._fixed)
        self._add_texts()
        self._add_search()
        self._add_pointer_targets()
        self._add_drag_and_drop()
        self._add_buttons()
        self.connect("close-request", self._closed)
        self.connect("map", lambda _: GLib.timeout_add(30, self._settle) and None)
        shortcut = Gtk.EventControllerKey()
        shortcut.set_propagation_phase(Gtk.PropagationPhase.CAPTURE)
        shortcut.connect("key-pressed", self._shortcut)
        self.add_controller(shortcut)

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
        password = Gtk.PasswordEntry()
        password.connect("changed", lambda e: self._text("password", e.get_text()))
        self._place("password", password)
        spin = Gtk.SpinButton.new_with_range(0, 99999, 1)
        spin.connect("value-changed", lambda s: self._text("spin", str(s.get_value_as_int())))
        self._place("spin", spin)
        view = Gtk.TextView()
        view.get_buffer().connect("changed", lambda b: self._text("multiline", b.get_property("text")))
        scrolled = Gtk.ScrolledWindow()
        scrolled.set_child(view)
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
        scrolled.set_child(tree)
        self._place("search", scrolled)

    def _add_pointer_targets(self) -> None:
        area, scroll, self._keys = Gtk.Frame(), Gtk.Frame(), Gtk.DrawingArea()
        presses = Gtk.GestureClick(button=0)
        presses.connect("pressed", self._pressed, area)
        presses.connect("released", self._released, area)
        presses.connect("unpaired-release", lambda g, x, y, *_: self._released(g, 1, x, y, area))
        area.add_controller(presses)
        motion = Gtk.EventControllerMotion()
        motion.connect("motion", self._moved, area)
        area.add_controller(motion)
        wheel = Gtk.EventControllerScroll(flags=Gtk.EventControllerScrollFlags.BOTH_AXES)
        wheel.connect("scroll", self._scrolled)
        scroll.add_controller(wheel)
        self._keys.set_focusable(True)
        focus = Gtk.GestureClick()
        focus.connect("pressed", lambda *_: self._keys.grab_focus())
        self._keys.add_controller(focus)
        keyboard = Gtk.EventControllerKey()
        keyboard.connect("key-pressed", self._key, True)
        keyboard.connect("key-released", self._key, False)
        self._keys.add_controller(keyboard)
        for name, widget in (("area", area), ("scroll", scroll), ("keys", self._keys)):
            self._place(name, widget)

    def _on_screen(self, widget: Gtk.Widget, x: float, y: float) -> tuple[int, int]:
        inside_x, inside_y = widget.translate_coordinates(self._fixed, x, y)
        return round(self._origin[0] + inside_x), round(self._origin[1] + inside_y)

    def _pressed(self, gesture: Gtk.GestureClick, count: int, x: float, y: float, area: Gtk.Widget) -> None:
        where = self._on_screen(area, x, y)
        self._stroke = Stroke(*where)
        button, told = gesture.get_current_button(), (count - 1) % 3 + 1
        self._recorder.write("click", target="area", button=button, count=told, x=where[0], y=where[1])

    def _moved(self, _: Gtk.EventControllerMotion, x: float, y: float, area: Gtk.Widget) -> None:
        if self._stroke is not None:
            self._stroke.move(*self._on_screen(area, x, y))

    def _released(self, _: Gtk.Gesture, __: int, x: float, y: float, area: Gtk.Widget) -> None:
        if self._stroke is not None:
            self._stroke.end(self._recorder, *self._on_screen(area, x, y))
            self._stroke = None

    def _scrolled(self, _: Gtk.EventControllerScroll, dx: float, dy: float) -> bool:
        self._recorder.write("scroll", dx=dx, dy=dy)
        return True

    def _key(
        self, _: Gtk.EventControllerKey, keyval: int, __: int, state: Gdk.ModifierType, down: bool
    ) -> bool:
        kind = Gdk.ModifierType
        code = Gdk.keyval_to_unicode(keyval)
        name = key_name(
            Gdk.keyval_name(keyval) or "",
            chr(code) if code else "",
            ctrl=bool(state & kind.CONTROL_MASK),
            alt=bool(state & kind.ALT_MASK),
            shift=bool(state & kind.SHIFT_MASK),
        )
        self._recorder.write("key", name=name, down=down)
        return True

    def _add_drag_and_drop(self) -> None:
        source, drop = Gtk.Frame(label="source"), Gtk.Frame(label="drop")
        dragged = Gtk.DragSource(actions=Gdk.DragAction.COPY)
        value = GObject.Value(str, "payload-gtk4")
        dragged.connect("prepare", lambda *_: Gdk.ContentProvider.new_for_value(value))
        source.add_controller(dragged)
        target = Gtk.DropTarget.new(GObject.TYPE_NONE, Gdk.DragAction.COPY | Gdk.DragAction.MOVE)
        target.set_gtypes([Gdk.FileList, str])
        target.connect("drop", self._dropped)
        drop.add_controller(target)
        self._place("source", source)
        self._place("drop", drop)

    def _dropped(self, _: Gtk.DropTarget, value: str | Gdk.FileList, __: float, ___: float) -> bool:
        uris = [] if isinstance(value, str) else [file.get_uri() for file in value.get_files()]
        self._recorder.write("drop", target="drop", data=value if isinstance(value, str) else "\n".join(uris))
        return True

    def _add_buttons(self) -> None:
        save, opens = Gtk.Button(label="save"), Gtk.Button(label="open")
        save.connect("clicked", lambda _: self._save())
        opens.connect("clicked", lambda _: GLib.timeout_add(LATE_MS, self._open_late) and None)
        self._place("save", save)
        self._place("open", opens)

    def _shortcut(self, _: object, keyval: int, __: int, state: Gdk.ModifierType) -> bool:
        both = Gdk.ModifierType.CONTROL_MASK | Gdk.ModifierType.SHIFT_MASK
        if state & both == both and keyval == Gdk.KEY_S and not self._keys.has_focus():
            self._save()
            return True
        return False

    def _save(self) -> None:
        dialog = Gtk.FileChooserDialog(
            title="Save as", transient_for=self, modal=True, action=Gtk.FileChooserAction.SAVE
        )
        dialog.add_button("Cancel", Gtk.ResponseType.CANCEL)
        dialog.add_button("Save", Gtk.ResponseType.OK)
        dialog.set_default_response(Gtk.ResponseType.OK)
        dialog.set_current_folder(Gio.File.new_for_path(str(Path.home())))

        def ended(_: Gtk.Dialog, response: int) -> None:
            file = dialog.get_file() if response == Gtk.ResponseType.OK else None
            dialog.destroy()
            self._recorder.write("dialog", name="save", path=file.get_path() if file else "")

        dialog.connect("response", ended)
        dialog.present()

    def _open_late(self) -> bool:
        window = Gtk.Window(title="late", default_width=400, default_height=120)
        window.set_child(self._entry("late"))
        window.present()
        return False

    def _settle(self) -> bool:
        """Tell of the targets once the window manager has left the window where it is."""
        surface = self.get_surface()
        window = self._x.create_resource_object("window", GdkX11.X11Surface.get_xid(surface))
        root = window.translate_coords(self._x.screen().root, 0, 0)
        shadow_x, shadow_y = self.get_surface_transform()
        inside_x, inside_y = self._fixed.translate_coordinates(self, 0, 0)
        x, y = round(-root.x + shadow_x + inside_x), round(-root.y + shadow_y + inside_y)
        self._origins = [*self._origins[-2:], (x, y)] if self.is_active() else []
        if len(self._origins) < 3 or len(set(self._origins)) > 1:
            return True
        self._origin = (x, y)
        self._recorder.ready(self._origin, TARGETS)
        return False

    def _closed(self, _: Gtk.Window) -> bool:
        self._recorder.write("exit")
        self._ended.quit()
        return False


if __name__ == "__main__":
    loop = GLib.MainLoop()
    Gtk.init()
    Window(Recorder(sys.argv[1]), loop).present()
    loop.run()
