"""Witness of wxWidgets: `python3 wxwidgets.py LOG` shows a window and appends what it received to LOG."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import wx
from recorder import HEIGHT, LATE_MS, PLACES, ROWS, WIDTH, Recorder, Stroke, key_name

TARGETS = tuple(name for name in PLACES if name != "mask")
PRESSES = {
    wx.EVT_LEFT_DOWN: (1, 1),
    wx.EVT_LEFT_DCLICK: (1, 2),
    wx.EVT_MIDDLE_DOWN: (2, 1),
    wx.EVT_MIDDLE_DCLICK: (2, 2),
    wx.EVT_RIGHT_DOWN: (3, 1),
    wx.EVT_RIGHT_DCLICK: (3, 2),
}
NAMES = {
    wx.WXK_RETURN: "Return", wx.WXK_TAB: "Tab", wx.WXK_BACK: "BackSpace", wx.WXK_ESCAPE: "Escape",
    wx.WXK_SPACE: "space", wx.WXK_DELETE: "Delete", wx.WXK_LEFT: "Left", wx.WXK_RIGHT: "Right",
    wx.WXK_UP: "Up", wx.WXK_DOWN: "Down", wx.WXK_HOME: "Home", wx.WXK_END: "End",
    wx.WXK_SHIFT: "Shift_L", wx.WXK_CONTROL: "Control_L", wx.WXK_ALT: "Alt_L",
}  # fmt: skip


class Frame(wx.Frame):  # type: ignore[misc]
    """All targets at fixed places."""

    def __init__(self, recorder: Recorder) -> None:
        style = wx.DEFAULT_FRAME_STYLE & ~(wx.RESIZE_BORDER | wx.MAXIMIZE_BOX)
        super().__init__(None, title="witness wx", style=style)
        self.SetClientSize((WIDTH, HEIGHT))
        self._recorder = recorder
        self._stroke: Stroke | None = None
        self._origins: list[tuple[int, int]] = []
        self._panel = wx.Panel(self, style=wx.TAB_TRAVERSAL)
        self._add_texts()
        self._add_search()
        self._add_pointer_targets()
        self._add_drag_and_drop()
        self._add_buttons()
        self.Bind(wx.EVT_CLOSE, self._closed)
        self.Bind(wx.EVT_CHAR_HOOK, self._shortcut)
        self._timer = wx.CallLater(30, self._settle)

    def _placed(self, name: str) -> dict[str, Any]:
        x, y, width, height = PLACES[name]
        return {"parent": self._panel, "pos": (x, y), "size": (width, height)}

    def _watch(self, target: str, field: wx.TextCtrl) -> None:
        def changed(event: wx.CommandEvent) -> None:
            self._recorder.write("text", target=target, value=field.GetValue())
            event.Skip()

        field.Bind(wx.EVT_TEXT, changed)
        if field.HasFlag(wx.TE_PROCESS_ENTER):
            field.Bind(wx.EVT_TEXT_ENTER, lambda _: self._recorder.write("activate", target=target))

    def _add_texts(self) -> None:
        enter = wx.TE_PROCESS_ENTER
        self._watch("entry", wx.TextCtrl(**self._placed("entry"), style=enter))
        self._watch("password", wx.TextCtrl(**self._placed("password"), style=enter | wx.TE_PASSWORD))
        spin = wx.SpinCtrl(**self._placed("spin"), min=0, max=99999)
        spin.Bind(wx.EVT_SPINCTRL, lambda _: self._number(spin))
        self._watch("multiline", wx.TextCtrl(**self._placed("multiline"), style=wx.TE_MULTILINE))

    def _number(self, spin: wx.SpinCtrl) -> None:
        self._text("spin", str(spin.GetValue()))

    def _text(self, target: str, value: str) -> None:
        self._recorder.write("text", target=target, value=value)

    def _add_search(self) -> None:
        rows = wx.ListCtrl(**self._placed("search"), style=wx.LC_LIST | wx.LC_SINGLE_SEL)
        for number, row in enumerate(ROWS):
            rows.InsertItem(number, row)

        def selected(event: wx.ListEvent) -> None:
            self._recorder.write("select", target="search", value=event.GetText())

        rows.Bind(wx.EVT_LIST_ITEM_SELECTED, selected)
        rows.Bind(wx.EVT_LIST_ITEM_ACTIVATED, lambda _: self._recorder.write("activate", target="search"))

    def _add_pointer_targets(self) -> None:
        area, scroll = (wx.Panel(**self._placed(name), style=wx.BORDER_SIMPLE) for name in ("area", "scroll"))
        keys = wx.Panel(**self._placed("keys"), style=wx.BORDER_SIMPLE | wx.WANTS_CHARS)
        for kind, (button, count) in PRESSES.items():
            area.Bind(kind, lambda event, b=button, c=count: self._pressed(area, event, b, c))
        area.Bind(wx.EVT_MOTION, lambda event: self._moved(area, event))
        for kind in (wx.EVT_LEFT_UP, wx.EVT_MIDDLE_UP, wx.EVT_RIGHT_UP):
            area.Bind(kind, lambda event: self._released(area, event))
        scroll.Bind(wx.EVT_MOUSEWHEEL, self._scrolled)
        keys.Bind(wx.EVT_LEFT_DOWN, lambda _: keys.SetFocus())
        keys.Bind(wx.EVT_KEY_DOWN, lambda event: self._key(event, True))
        keys.Bind(wx.EVT_KEY_UP, lambda event: self._key(event, False))
        self._keys = keys

    def _pressed(self, area: wx.Window, event: wx.MouseEvent, button: int, count: int) -> None:
        x, y = area.ClientToScreen(event.GetPosition())
        self._stroke = Stroke(x, y)
        self._recorder.write("click", target="area", button=button, count=count, x=x, y=y)

    def _moved(self, area: wx.Window, event: wx.MouseEvent) -> None:
        if self._stroke is not None and event.Dragging():
            self._stroke.move(*area.ClientToScreen(event.GetPosition()))

    def _released(self, area: wx.Window, event: wx.MouseEvent) -> None:
        if self._stroke is not None:
            self._stroke.end(self._recorder, *area.ClientToScreen(event.GetPosition()))
            self._stroke = None

    def _scrolled(self, event: wx.MouseEvent) -> None:
        clicks = event.GetWheelRotation() / event.GetWheelDelta()
        sideways = event.GetWheelAxis() == wx.MOUSE_WHEEL_HORIZONTAL
        self._recorder.write("scroll", dx=clicks if sideways else 0, dy=0 if sideways else -clicks)

    def _key(self, event: wx.KeyEvent, down: bool) -> None:
        code = event.GetKeyCode()
        char = chr(event.GetUnicodeKey()) if event.GetUnicodeKey() > 0x20 else ""
        shift = event.ShiftDown()
        symbol = NAMES.get(code, char)
        if symbol in NAMES.values():
            char = ""
        # wx tells of letters as capitals, whatever Shift is
        name = key_name(
            symbol,
            char if shift else char.lower(),
            ctrl=event.ControlDown(),
            alt=event.AltDown(),
            shift=shift,
        )
        self._recorder.write("key", name=name, down=down)

    def _add_drag_and_drop(self) -> None:
        source = wx.StaticText(**self._placed("source"), label="source", style=wx.BORDER_SIMPLE)
        drop = wx.Panel(**self._placed("drop"), style=wx.BORDER_SIMPLE)

        def begin(_: wx.MouseEvent) -> None:
            data = wx.TextDataObject("payload-wx")
            dragged = wx.DropSource(source)
            dragged.SetData(data)
            dragged.DoDragDrop(wx.Drag_CopyOnly)

        def moved(event: wx.MouseEvent) -> None:
            if event.Dragging() and event.LeftIsDown():
                begin(event)

        source.Bind(wx.EVT_MOTION, moved)
        drop.SetDropTarget(DropTarget(self._recorder))

    def _add_buttons(self) -> None:
        save = wx.Button(**self._placed("save"), label="save")
        opens = wx.Button(**self._placed("open"), label="open")
        save.Bind(wx.EVT_BUTTON, lambda _: self._save())
        opens.Bind(wx.EVT_BUTTON, lambda _: wx.CallLater(LATE_MS, self._open_late))

    def _shortcut(self, event: wx.KeyEvent) -> None:
        both = event.ControlDown() and event.ShiftDown()
        if both and event.GetKeyCode() == ord("S") and not self._keys.HasFocus():
            self._save()
        else:
            event.Skip()

    def _save(self) -> None:
        with wx.FileDialog(self, "Save as", defaultDir=str(Path.home()), style=wx.FD_SAVE) as dialog:
            path = dialog.GetPath() if dialog.ShowModal() == wx.ID_OK else ""
        self._recorder.write("dialog", name="save", path=path)

    def _open_late(self) -> None:
        window = wx.Frame(self, title="late", size=(400, 120))
        field = wx.TextCtrl(window, style=wx.TE_PROCESS_ENTER)
        self._watch("late", field)
        window.Show()
        field.SetFocus()

    def _settle(self) -> None:
        """Tell of the targets once the window manager has left the window where it is."""
        x, y = self._panel.ClientToScreen((0, 0))
        self._origins = [*self._origins[-2:], (x, y)] if self.IsActive() else []
        if len(self._origins) < 3 or len(set(self._origins)) > 1:
            self._timer = wx.CallLater(30, self._settle)
        else:
            self._recorder.ready((x, y), TARGETS)

    def _closed(self, event: wx.CloseEvent) -> None:
        self._recorder.write("exit")
        event.Skip()


class DropTarget(wx.DropTarget):  # type: ignore[misc]
    """Takes texts and files."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self._text, self._files = wx.TextDataObject(), wx.FileDataObject()
        both = wx.DataObjectComposite()
        both.Add(self._files)
        both.Add(self._text, True)
        self.SetDataObject(both)
        self._both = both

    def OnData(self, x: int, y: int, result: int) -> int:
        if self.GetData():
            files = self._both.GetReceivedFormat().GetType() == wx.DF_FILENAME
            paths = "\n".join(Path(path).as_uri() for path in self._files.GetFilenames())
            self._recorder.write("drop", target="drop", data=paths if files else self._text.GetText())
        return result


if __name__ == "__main__":
    app = wx.App()
    Frame(Recorder(sys.argv[1])).Show()
    app.MainLoop()
