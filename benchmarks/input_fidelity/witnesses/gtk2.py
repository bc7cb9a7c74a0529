"""Witness of GTK 2: `python3 gtk2.py LOG` shows a window and appends what it received to LOG.

GTK 2 has no bindings for Python 3, so its C functions are called directly.
"""

from __future__ import annotations

import ctypes as c
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recorder import HEIGHT, LATE_MS, PLACES, ROWS, WIDTH, Recorder, Stroke, key_name

TARGETS = tuple(name for name in PLACES if name != "mask")
PRESSES = {4: 1, 5: 2, 6: 3}
"""Numbers of GDK_BUTTON_PRESS, GDK_2BUTTON_PRESS and GDK_3BUTTON_PRESS."""
WHEEL = ((0, -1), (0, 1), (-1, 0), (1, 0))
SHIFT, CONTROL, ALT = 1, 4, 8
MOTION, PRESS, RELEASE, KEYS, SCROLL = 1 << 5, 1 << 8, 1 << 9, 3 << 10, 1 << 21
"""Bits of GdkEventMask."""
ACTION_SAVE, OK, CANCEL = 1, -5, -6
G_TYPE_STRING = 16 << 2
COPY_OR_MOVE = 6

gtk = c.CDLL("libgtk-x11-2.0.so.0")
gdk = c.CDLL("libgdk-x11-2.0.so.0")
gobject = c.CDLL("libgobject-2.0.so.0")
glib = c.CDLL("libglib-2.0.so.0")
Pointer = c.c_void_p
for library, kind, names in (
    (
        gtk,
        Pointer,
        "gtk_window_new gtk_fixed_new gtk_entry_new gtk_spin_button_new_with_range gtk_text_view_new "
        "gtk_text_view_get_buffer gtk_scrolled_window_new gtk_list_store_new gtk_tree_view_new_with_model "
        "gtk_cell_renderer_text_new gtk_tree_view_get_selection gtk_drawing_area_new gtk_event_box_new "
        "gtk_label_new gtk_button_new_with_label gtk_file_chooser_dialog_new gtk_file_chooser_get_filename "
        "gtk_widget_get_window gtk_selection_data_get_text gtk_selection_data_get_uris",
    ),
    (gtk, c.c_char_p, "gtk_entry_get_text"),
    (gdk, c.c_char_p, "gdk_keyval_name"),
    (gdk, c.c_uint32, "gdk_keyval_to_unicode"),
):
    for function in names.split():
        getattr(library, function).restype = kind
gtk.gtk_spin_button_new_with_range.argtypes = [c.c_double] * 3
gtk.gtk_spin_button_get_value_as_int.argtypes = [Pointer]
gobject.g_signal_connect_data.argtypes = [Pointer, c.c_char_p, Pointer, Pointer, Pointer, c.c_int]
Handler = c.CFUNCTYPE(c.c_int, Pointer, Pointer, Pointer, Pointer, Pointer, c.c_uint, c.c_uint, Pointer)
"""As many arguments as the longest signal has; a handler of a shorter one finds nothing in the rest."""
Task = c.CFUNCTYPE(c.c_int, Pointer)
_kept: list[Any] = []
"""What C calls later and Python must not collect."""


class ButtonEvent(c.Structure):
    """GdkEventButton, and the part of GdkEventMotion that is like it."""

    _fields_ = (
        ("type", c.c_int), ("window", Pointer), ("send_event", c.c_int8), ("time", c.c_uint32),
        ("x", c.c_double), ("y", c.c_double), ("axes", Pointer), ("state", c.c_uint),
        ("button", c.c_uint), ("device", Pointer), ("x_root", c.c_double), ("y_root", c.c_double),
    )  # fmt: skip


class MotionEvent(c.Structure):
    _fields_ = (
        *ButtonEvent._fields_[:8], ("is_hint", c.c_int16), ("device", Pointer),
        ("x_root", c.c_double), ("y_root", c.c_double),
    )  # fmt: skip


class ScrollEvent(c.Structure):
    _fields_ = (*ButtonEvent._fields_[:6], ("state", c.c_uint), ("direction", c.c_int))


class KeyEvent(c.Structure):
    _fields_ = (*ButtonEvent._fields_[:4], ("state", c.c_uint), ("keyval", c.c_uint))


class TreeIter(c.Structure):
    _fields_ = (("stamp", c.c_int), ("a", Pointer), ("b", Pointer), ("c", Pointer))


def connect(widget: int, signal: str, handler: Callable[..., Any]) -> None:
    """Call `handler` with the pointers of a signal; what is true of its answer stops other handlers."""
    wrapped = Handler(lambda *given: int(handler(*given) is True))
    _kept.append(wrapped)
    gobject.g_signal_connect_data(widget, signal.encode(), c.cast(wrapped, Pointer), None, None, 0)


def later(ms: int, task: Callable[[], bool]) -> None:
    """Call a function after a time, and again while it gives True."""
    wrapped = Task(lambda _: int(task()))
    _kept.append(wrapped)
    glib.g_timeout_add(c.c_uint(ms), wrapped, None)


def pointer(address: int | None) -> Pointer:
    """An argument that C takes as a pointer; a bare number would be cut to 32 bits."""
    return Pointer(address)


class Window:
    """All targets at fixed places."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._stroke: Stroke | None = None
        self._press: tuple[int, int, int, int] | None = None
        self._origins: list[tuple[int, int]] = []
        self._window = gtk.gtk_window_new(0)
        gtk.gtk_window_set_title(pointer(self._window), b"witness gtk2")
        gtk.gtk_window_set_resizable(pointer(self._window), 0)
        self._fixed = gtk.gtk_fixed_new()
        gtk.gtk_widget_set_size_request(pointer(self._fixed), WIDTH, HEIGHT)
        gtk.gtk_container_add(pointer(self._window), pointer(self._fixed))
        self._add_texts()
        self._add_search()
        self._add_pointer_targets()
        self._add_drag_and_drop()
        self._add_buttons()
        connect(self._window, "delete-event", self._closed)
        connect(self._window, "key-press-event", self._shortcut)
        gtk.gtk_widget_show_all(pointer(self._window))
        later(30, self._settle)

    def _place(self, name: str, widget: int) -> None:
        x, y, width, height = PLACES[name]
        gtk.gtk_widget_set_size_request(pointer(widget), width, height)
        gtk.gtk_fixed_put(pointer(self._fixed), pointer(widget), x, y)

    def _text(self, target: str, value: str) -> None:
        self._recorder.write("text", target=target, value=value)

    def _entry(self, target: str) -> int:
        entry = gtk.gtk_entry_new()

        def changed(*_: object) -> None:
            self._text(target, gtk.gtk_entry_get_text(pointer(entry)).decode())

        connect(entry, "changed", changed)
        connect(entry, "activate", lambda *_: self._recorder.write("activate", target=target))
        return int(entry)

    def _add_texts(self) -> None:
        self._place("entry", self._entry("entry"))
        password = self._entry("password")
        gtk.gtk_entry_set_visibility(pointer(password), 0)
        self._place("password", password)
        spin = gtk.gtk_spin_button_new_with_range(0, 99999, 1)
        number = gtk.gtk_spin_button_get_value_as_int
        connect(spin, "value-changed", lambda *_: self._text("spin", str(number(pointer(spin)))))
        self._place("spin", spin)
        view = gtk.gtk_text_view_new()
        buffer = gtk.gtk_text_view_get_buffer(pointer(view))

        def changed(*_: object) -> None:
            text = c.c_char_p()
            gobject.g_object_get(pointer(buffer), b"text", c.byref(text), None)
            self._text("multiline", (text.value or b"").decode())

        connect(buffer, "changed", changed)
        self._place("multiline", self._scrolling(view))

    def _scrolling(self, widget: int) -> int:
        scrolled = gtk.gtk_scrolled_window_new(None, None)
        gtk.gtk_container_add(pointer(scrolled), pointer(widget))
        return int(scrolled)

    def _add_search(self) -> None:
        store = gtk.gtk_list_store_new(1, c.c_size_t(G_TYPE_STRING))
        for row in ROWS:
            at = TreeIter()
            gtk.gtk_list_store_append(pointer(store), c.byref(at))
            gtk.gtk_list_store_set(pointer(store), c.byref(at), 0, row.encode(), -1)
        tree = gtk.gtk_tree_view_new_with_model(pointer(store))
        cells = pointer(gtk.gtk_cell_renderer_text_new())
        gtk.gtk_tree_view_insert_column_with_attributes(pointer(tree), -1, b"", cells, b"text", 0, None)
        gtk.gtk_tree_view_set_headers_visible(pointer(tree), 0)
        gtk.gtk_tree_view_set_search_column(pointer(tree), 0)
        selection = gtk.gtk_tree_view_get_selection(pointer(tree))

        def selected(*_: object) -> None:
            at, text = TreeIter(), c.c_char_p()
            if gtk.gtk_tree_selection_get_selected(pointer(selection), None, c.byref(at)):
                gtk.gtk_tree_model_get(pointer(store), c.byref(at), 0, c.byref(text), -1)
                self._recorder.write("select", target="search", value=(text.value or b"").decode())

        connect(selection, "changed", selected)
        connect(tree, "row-activated", lambda *_: self._recorder.write("activate", target="search"))
        self._place("search", self._scrolling(tree))

    def _add_pointer_targets(self) -> None:
        area, scroll, self._keys = (gtk.gtk_drawing_area_new() for _ in range(3))
        gtk.gtk_widget_add_events(pointer(area), MOTION | PRESS | RELEASE)
        connect(area, "button-press-event", self._pressed)
        connect(area, "motion-notify-event", self._moved)
        connect(area, "button-release-event", self._released)
        gtk.gtk_widget_add_events(pointer(scroll), SCROLL | PRESS)
        connect(scroll, "scroll-event", self._scrolled)
        gtk.gtk_widget_set_can_focus(pointer(self._keys), 1)
        gtk.gtk_widget_add_events(pointer(self._keys), KEYS | PRESS)
        connect(self._keys, "button-press-event", lambda *_: gtk.gtk_widget_grab_focus(pointer(self._keys)))
        connect(self._keys, "key-press-event", lambda _, event, *__: self._key(event, True))
        connect(self._keys, "key-release-event", lambda _, event, *__: self._key(event, False))
        for name, widget in (("area", area), ("scroll", scroll), ("keys", self._keys)):
            self._place(name, widget)

    def _pressed(self, _: int, address: int, *__: object) -> bool:
        event = ButtonEvent.from_address(address)
        count, x, y = PRESSES[event.type], int(event.x_root), int(event.y_root)
        if count == 1:
            self._write_press()
            self._stroke = Stroke(x, y)
            # GTK tells of a double click by a second event right after that of the press
            later(0, self._write_press)
        self._press = (event.button, count, x, y)
        return True

    def _write_press(self) -> bool:
        if self._press is not None:
            button, count, x, y = self._press
            self._recorder.write("click", target="area", button=button, count=count, x=x, y=y)
            self._press = None
        return False

    def _moved(self, _: int, address: int, *__: object) -> bool:
        event = MotionEvent.from_address(address)
        if self._stroke is not None:
            self._stroke.move(int(event.x_root), int(event.y_root))
        return True

    def _released(self, _: int, address: int, *__: object) -> bool:
        event = ButtonEvent.from_address(address)
        self._write_press()
        if self._stroke is not None:
            self._stroke.end(self._recorder, int(event.x_root), int(event.y_root))
            self._stroke = None
        return True

    def _scrolled(self, _: int, address: int, *__: object) -> bool:
        dx, dy = WHEEL[ScrollEvent.from_address(address).direction]
        self._recorder.write("scroll", dx=dx, dy=dy)
        return True

    def _key(self, address: int, down: bool) -> bool:
        event = KeyEvent.from_address(address)
        code = gdk.gdk_keyval_to_unicode(event.keyval)
        state = event.state
        name = key_name(
            (gdk.gdk_keyval_name(event.keyval) or b"").decode(),
            chr(code) if code else "",
            ctrl=bool(state & CONTROL),
            alt=bool(state & ALT),
            shift=bool(state & SHIFT),
        )
        self._recorder.write("key", name=name, down=down)
        return True

    def _add_drag_and_drop(self) -> None:
        source, drop = gtk.gtk_event_box_new(), gtk.gtk_event_box_new()
        for box, label in ((source, b"source"), (drop, b"drop")):
            gtk.gtk_container_add(pointer(box), pointer(gtk.gtk_label_new(label)))
        gtk.gtk_drag_source_set(pointer(source), PRESS, None, 0, 2)
        gtk.gtk_drag_source_add_text_targets(pointer(source))
        set_text = gtk.gtk_selection_data_set_text
        connect(
            source, "drag-data-get", lambda _w, _c, data, *_: set_text(pointer(data), b"payload-gtk2", -1)
        )
        gtk.gtk_drag_dest_set(pointer(drop), 7, None, 0, COPY_OR_MOVE)
        gtk.gtk_drag_dest_add_uri_targets(pointer(drop))
        gtk.gtk_drag_dest_add_text_targets(pointer(drop))
        connect(drop, "drag-data-received", self._dropped)
        self._place("source", source)
        self._place("drop", drop)

    def _dropped(self, _w: int, _c: int, _x: int, _y: int, data: int, *_: object) -> None:
        uris = gtk.gtk_selection_data_get_uris(pointer(data))
        text = gtk.gtk_selection_data_get_text(pointer(data))
        value = ""
        if uris:
            value = (c.cast(uris, c.POINTER(c.c_char_p))[0] or b"").decode()
        elif text:
            value = (c.cast(text, c.c_char_p).value or b"").decode()
        self._recorder.write("drop", target="drop", data=value)

    def _add_buttons(self) -> None:
        save, opens = (gtk.gtk_button_new_with_label(label) for label in (b"save", b"open"))
        connect(save, "clicked", lambda *_: self._save())
        connect(opens, "clicked", lambda *_: later(LATE_MS, self._open_late))
        self._place("save", save)
        self._place("open", opens)

    def _shortcut(self, _: int, address: int, *__: object) -> bool:
        event = KeyEvent.from_address(address)
        both = SHIFT | CONTROL
        has_focus = gtk.gtk_widget_has_focus(pointer(self._keys))
        if event.state & both == both and event.keyval == ord("S") and not has_focus:
            self._save()
            return True
        return False

    def _save(self) -> None:
        buttons = (b"Cancel", CANCEL, b"Save", OK, None)
        parent = pointer(self._window)
        made = gtk.gtk_file_chooser_dialog_new(b"Save as", parent, ACTION_SAVE, *buttons)
        dialog = pointer(made)
        gtk.gtk_dialog_set_default_response(dialog, OK)
        gtk.gtk_file_chooser_set_current_folder(dialog, str(Path.home()).encode())
        path = b""
        if gtk.gtk_dialog_run(dialog) == OK:
            path = c.cast(gtk.gtk_file_chooser_get_filename(dialog), c.c_char_p).value or b""
        gtk.gtk_widget_destroy(dialog)
        self._recorder.write("dialog", name="save", path=path.decode())

    def _open_late(self) -> bool:
        window = pointer(gtk.gtk_window_new(0))
        gtk.gtk_window_set_title(window, b"late")
        gtk.gtk_window_set_default_size(window, 400, 120)
        gtk.gtk_container_add(window, pointer(self._entry("late")))
        gtk.gtk_widget_show_all(window)
        return False

    def _settle(self) -> bool:
        """Tell of the targets once the window manager has left the window where it is."""
        x, y = c.c_int(), c.c_int()
        inner = gtk.gtk_widget_get_window(pointer(self._window))
        gdk.gdk_window_get_origin(pointer(inner), c.byref(x), c.byref(y))
        active = gtk.gtk_window_is_active(pointer(self._window))
        self._origins = [*self._origins[-2:], (x.value, y.value)] if active else []
        if len(self._origins) < 3 or len(set(self._origins)) > 1:
            return True
        self._recorder.ready((x.value, y.value), TARGETS)
        return False

    def _closed(self, *_: object) -> bool:
        self._recorder.write("exit")
        gtk.gtk_main_quit()
        return False


if __name__ == "__main__":
    gtk.gtk_init(None, None)
    Window(Recorder(sys.argv[1]))
    gtk.gtk_main()
