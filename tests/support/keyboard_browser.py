"""A browser of the least: acts on pages of a `Site` by keys and clicks on headings, as oracles do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode, urlsplit

from osgym_tasks.webapps.framework import Site

BROWSER = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"}


@dataclass
class Control:
    """A link, or a field of a form.

    Attributes:
        form: number of its form in the page, or -1.
        options: of a list; of radio buttons, the values.
        stops: how often Tab stops in it.
        caret: of a text of several lines: line and column; `marked` is how much after it is selected.
    """

    kind: str
    name: str = ""
    value: str = ""
    form: int = -1
    checked: bool = False
    options: list[str] = field(default_factory=list)
    stops: int = 1
    caret: tuple[int, int] = (0, 0)
    marked: str = ""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.controls: list[Control] = []
        self.forms: list[tuple[str, str]] = []
        self.headings: list[tuple[str, int]] = []  # and how many controls come before
        self._form, self._option, self._in = -1, "", ""
        self._selected = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        match tag:
            case "h1" | "h2" | "h3":
                self.headings.append(("", len(self.controls)))
                self._in = "heading"
            case "form":
                self.forms.append((found.get("method", "get"), found.get("action", "")))
                self._form = len(self.forms) - 1
            case "a":
                self.controls.append(Control("a", value=found["href"]))
            case "input":
                self._input(found)
            case "button":
                self.controls.append(Control("button", form=self._form))
            case "select" | "textarea":
                self.controls.append(Control(tag, found["name"], form=self._form))
                self._in = tag
            case "option":
                self._in, self._selected, self._option = "option", "selected" in found, ""

    def _input(self, found: dict[str, str]) -> None:
        kind = found["type"]
        twin = self.controls[-1] if self.controls else None
        if kind == "radio" and twin and (twin.kind, twin.name) == ("radio", found["name"]):
            made = twin
        else:
            stops = 4 if kind in ("date", "time") else 1
            made = Control(
                kind, found["name"], "" if kind == "radio" else found["value"], self._form, stops=stops
            )
            made.checked = "checked" in found
            made.options = [found["min"], found["step"]] if kind == "range" else []
            self.controls.append(made)
        if kind == "radio":
            made.options.append(found["value"])
            made.value = found["value"] if "checked" in found else made.value

    def handle_data(self, data: str) -> None:
        if self._in == "heading":
            text, before = self.headings[-1]
            self.headings[-1] = (text + data, before)
        elif self._in == "option":
            self._option += data
        elif self._in == "textarea":
            self.controls[-1].value += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "option":
            control = self.controls[-1]
            control.options.append(self._option)
            if self._selected or len(control.options) == 1:
                control.value = self._option
            self._in = ""
        elif tag == "textarea":
            self.controls[-1].value = self.controls[-1].value.removeprefix("\n")
            self._in = ""
        elif tag in ("h1", "h2", "h3"):
            self._in = ""
        elif tag == "form":
            self._form = -1


class KeyboardBrowser:
    """Acts on a site; the address bar and the page's controls are all there is."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._cookie = ""
        self._bar = False
        self.away = False
        self.go("/")

    def go(self, target: str, form: str | None = None) -> None:
        """Load a page, or send a form there, and go where that leads."""
        method = "GET" if form is None else "POST"
        sent = self._site.handle(method, target, {"Cookie": self._cookie, **BROWSER}, form or "")
        if "Set-Cookie" in sent.headers:
            self._cookie = sent.headers["Set-Cookie"].partition(";")[0]
        if sent.status == 303:
            self.go(sent.headers["Location"])
            return
        assert sent.status == 200, (target, sent.data[:300])
        reader = _Reader()
        reader.feed(sent.data.decode())
        self._forms = reader.forms
        self._controls = reader.controls
        self._headings = dict(reader.headings)
        self._stops = self._stops_of(reader.controls)
        self._at = -1

    @staticmethod
    def _stops_of(controls: list[Control]) -> list[Control]:
        return [c for c in controls if c.kind != "hidden" for _ in range(c.stops)]

    def act(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """One step; what follows a shortcut that leaves the browser is not done."""
        for action in actions:
            if self.away or action["op"] in ("wait", "done"):
                continue
            if action["op"] == "type":
                self._type(action["text"])
                if action.get("press_enter"):
                    self._key("enter")
            elif action["op"] == "click":
                assert action["at"]["role"] == "heading", action
                before = self._headings[action["at"]["name"]]  # Tab goes to the first control below it
                self._at = len(self._stops_of(self._controls[:before])) - 1
            else:
                assert action["op"] == "key", action
                for _ in range(action.get("repeat", 1)):
                    self._key("+".join(action["keys"]))

    def _type(self, text: str) -> None:
        if self._bar:
            self._typed = text
            return
        control = self._stops[self._at]
        match control.kind:
            case "select":
                control.value = next(o for o in control.options if o.lower().startswith(text.lower()))
            case "textarea":
                self._write(control, text)
            case "date":
                control.value = f"{text[4:]}-{text[:2]}-{text[2:4]}"
                self._at += 2
            case "time":
                hour = int(text[:2]) % 12 + (12 if text[4] == "P" else 0)
                control.value = f"{hour:02}:{text[2:4]}"
                self._at += 2
            case "text" | "number":
                control.value = text
            case kind:
                raise AssertionError(f"{text!r} is typed into a {kind}")

    def _write(self, control: Control, text: str) -> None:
        lines = control.value.split("\n")
        line, column = control.caret
        rest = lines[line][column:].removeprefix(control.marked)
        lines[line] = lines[line][:column] + text + rest
        control.value, control.marked = "\n".join(lines), ""
        control.caret = (line, column + len(text))

    def _key(self, keys: str) -> None:
        control = self._stops[self._at] if self._at >= 0 else Control("none")
        match keys, control.kind:
            case "ctrl+l", _:
                self._bar = True
            case "delete", _ if self._bar:
                pass  # it proposes no address
            case "ctrl+alt+t", _:
                self.away = True
            case "enter", _ if self._bar:
                self._bar = False
                parts = urlsplit(self._typed)
                self.go(parts.path + (f"?{parts.query}" if parts.query else ""))
            case "tab", _:
                self._at += 1
                assert self._at < len(self._stops), "Tab leaves the page"
            case "enter", "a":
                self.go(control.value)
            case "enter", "button" | "text" | "number":
                self._send(control)
            case "space", "checkbox":
                control.checked = not control.checked
            case "space", "radio":
                control.value = control.options[0]
            case "home", "range":
                control.value = control.options[0]
            case "right", "range":
                control.value = str(int(control.value) + int(control.options[1]))
            case (("down" | "up"), "select"):
                at = control.options.index(control.value) + (1 if keys == "down" else -1)
                control.value = control.options[at]
            case (("down" | "up"), "radio"):
                at = control.options.index(control.value) + (1 if keys == "down" else -1)
                control.value = control.options[at % len(control.options)]
            case _, "textarea":
                self._in_text(control, keys)
            case _:
                raise AssertionError(f"{keys} in a {control.kind}")

    def _in_text(self, control: Control, keys: str) -> None:
        lines = control.value.split("\n")
        line, column = control.caret
        match keys:
            case "ctrl+a":  # what is typed next takes its place
                control.value, control.caret = "", (0, 0)
            case "ctrl+home":
                control.caret = (0, 0)
            case "ctrl+end":
                control.caret = (len(lines) - 1, len(lines[-1]))
            case "down":
                control.caret = (line + 1, column) if line + 1 < len(lines) else (line, len(lines[line]))
            case "home":
                control.caret = (line, 0)
            case "shift+end":
                control.marked = lines[line][column:]
            case "enter":
                lines[line : line + 1] = [lines[line][:column], lines[line][column:]]
                control.value, control.caret = "\n".join(lines), (line + 1, 0)
            case _:
                raise AssertionError(f"{keys} in a text")

    def _send(self, control: Control) -> None:
        own = [one for one in self._controls if one.form == control.form and one.kind not in ("a", "button")]
        pairs = [(c.name, c.value) for c in own if c.kind != "checkbox" or c.checked]
        method, action = self._forms[control.form]
        assert method == "post"
        self.go(action, urlencode(pairs))
