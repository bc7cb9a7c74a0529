"""OSWorld's endpoints in a real replica: windows, terminals, the accessibility tree."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import requests
from benchmarks.harness import harness_processes
from tests.support.osworld_replica import served_replica

from osgym_guest.osworld.a11y.render import NAMESPACES

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]

SHOWING = f"{{{NAMESPACES['st']}}}showing"


class Guest:
    """OSWorld's endpoints as plain HTTP."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._http = requests.Session()

    def get(self, path: str) -> requests.Response:
        return self._http.get(self._url + path, timeout=60)

    def post(self, endpoint: str, /, **body: Any) -> requests.Response:
        return self._http.post(self._url + endpoint, json=body, timeout=130)

    def form(self, path: str, **fields: str) -> requests.Response:
        return self._http.post(self._url + path, data=fields, timeout=60)

    def upload(self, path: str, content: bytes) -> None:
        form = {"file_path": (None, path), "file_data": ("x", content)}
        self._http.post(self._url + "/setup/upload", files=form, timeout=60).raise_for_status()

    def shell(self, script: str) -> str:
        answer = self.post("/execute", command=script, shell=True)
        answer.raise_for_status()
        return str(answer.json()["output"])

    def titles(self) -> str:
        return self.shell("wmctrl -l")

    def tree(self) -> ElementTree.Element:
        answer = self.get("/accessibility")
        answer.raise_for_status()
        return ElementTree.fromstring(answer.json()["AT"])

    def close(self) -> None:
        self._http.close()


def eventually(condition: Callable[[], Any], timeout_s: float = 20.0) -> Any:
    """The first true value of a condition."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)
    return value


@pytest.fixture(scope="module")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("small")


@pytest.fixture(scope="module")
def small_port(small_folder: Path) -> Iterator[int]:
    with served_replica("small", small_folder) as port:
        yield port


def helpers(small_folder: Path) -> list[int]:
    """Processes of the accessibility helper, which nothing in the desktop sees."""
    noted = json.loads((small_folder / "run/osworld/replicas/osworld/replica.json").read_text())
    return harness_processes(noted["pid"], "osgym_guest.osworld.a11y")


def end_helpers(small_folder: Path) -> None:
    """Kill the accessibility helper, if there is one, and wait until it is gone."""
    for pid in helpers(small_folder):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not helpers(small_folder))


@pytest.fixture(scope="module")
def full_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with served_replica("full", tmp_path_factory.mktemp("full")) as port:
        yield port


@pytest.fixture
def guest(small_port: int) -> Iterator[Guest]:
    """A guest whose windows are closed again after the test."""
    guest = Guest(small_port)
    yield guest
    guest.shell("pkill -x mousepad; pkill -x xterm; pkill -x xfce4-terminal; rm -rf ~/Documents/*")
    eventually(lambda: not any(name in guest.titles() for name in ("Mousepad", "Terminal", "xterm")))
    guest.close()


@pytest.fixture
def full_guest(full_port: int) -> Iterator[Guest]:
    guest = Guest(full_port)
    yield guest
    guest.close()


def open_text(guest: Guest, name: str) -> None:
    guest.upload(f"~/Documents/{name}", b"some words\n")
    answer = guest.post("/setup/open_file", path=f"~/Documents/{name}")
    assert (answer.status_code, answer.text) == (200, "File opened and window activated successfully")


def test_the_screen_the_pointer_and_the_machine(guest: Guest) -> None:
    """The small questions are answered by the real desktop."""
    screenshot = guest.get("/screenshot")
    assert screenshot.headers["Content-Type"] == "image/png"
    assert screenshot.content.startswith(b"\x89PNG")
    assert guest.post("/screen_size").json() == {"width": 1920, "height": 1080}
    x, y = guest.get("/cursor_position").json()
    assert 0 <= x < 1920
    assert 0 <= y < 1080
    assert guest.get("/platform").text == "Linux"
    assert guest.form("/desktop_path").json() == {"desktop_path": "/home/user/Desktop"}


def test_commands_run_in_the_users_desktop_session(guest: Guest) -> None:
    """What tasks rely on: user, home, display, session bus, and no secret of the agent."""
    script = (
        'id -un; pwd; echo "$HOME $DISPLAY"; test -S "${DBUS_SESSION_BUS_ADDRESS#unix:path=}" && echo bus'
    )
    assert guest.shell(script).splitlines() == ["user", "/home/user", "/home/user :0", "bus"]
    assert "OSGYM_" not in guest.shell("env")
    assert "LISTEN_FDS" not in guest.shell("env")


def test_open_file_waits_for_the_window_of_the_file(guest: Guest) -> None:
    """When the answer comes, the file's window is there and has the keyboard."""
    open_text(guest, "first.txt")
    assert "first.txt" in guest.titles()
    active = guest.shell("xprop -root _NET_ACTIVE_WINDOW | grep -o '0x[0-9a-f]*'").strip()
    assert "first.txt" in guest.shell(f"xprop -id {active} _NET_WM_NAME")


def test_open_file_starts_an_application_by_name(guest: Guest) -> None:
    """A path that is no file is a program; its window is recognised by its class as well."""
    assert guest.post("/setup/open_file", path="mousepad").status_code == 200
    assert "Mousepad" in guest.titles()


def test_open_file_tells_a_crash_from_a_time_out(guest: Guest) -> None:
    """A program that dies is reported at once and by name; one without a window when the time is up."""
    guest.upload("~/Documents/crash", b"#!/bin/sh\necho it hurts >&2\nkill -SEGV $$\n")
    guest.shell("chmod +x ~/Documents/crash; sudo -n cp ~/Documents/crash /usr/local/bin/crashing-app")
    begin = time.monotonic()
    crashed = guest.post("/setup/open_file", path="crashing-app", timeout=60)
    assert time.monotonic() - begin < 10
    assert crashed.status_code == 500
    assert "crashing-app" in crashed.text
    assert "signal 11" in crashed.text
    assert "it hurts" in crashed.text
    late = guest.post("/setup/open_file", path="cat", timeout=1)
    assert late.status_code == 500
    assert "no window within 1 seconds" in late.text


def test_windows_are_activated_and_closed_by_title_and_class(guest: Guest) -> None:
    """Windows are found as wmctrl finds them; one that is not there is no error."""
    open_text(guest, "one.txt")
    guest.post("/setup/launch", command=["xterm", "-T", "Other window", "-e", "sleep", "1000"])
    eventually(lambda: "Other window" in guest.titles())
    for name, by_class, title in (("one.txt", False, "one.txt"), ("xterm.XTERM", True, "Other window")):
        assert guest.post("/setup/activate_window", window_name=name, by_class=by_class).status_code == 200
        active = guest.shell("xprop -root _NET_ACTIVE_WINDOW | grep -o '0x[0-9a-f]*'").strip()
        assert title in guest.shell(f"xprop -id {active} WM_NAME")
    assert guest.post("/setup/close_window", window_name="other WINDOW").text == "Window closed successfully."
    eventually(lambda: "Other window" not in guest.titles())
    assert guest.post("/setup/close_window", window_name="ONE.TXT", strict=True).status_code == 200
    assert "one.txt" in guest.titles()
    assert guest.post("/setup/activate_window", window_name="nothing like it").status_code == 200


def test_window_size_is_that_of_the_class(guest: Guest) -> None:
    """The size is the one that X reports; an unknown class is an error."""
    open_text(guest, "size.txt")
    size = guest.form("/window_size", app_class_name="MOUSEPAD").json()
    info = guest.shell("xwininfo -id $(wmctrl -l | grep size.txt | cut -d' ' -f1)")
    assert f"Width: {size['width']}\n" in info
    assert f"Height: {size['height']}\n" in info
    assert guest.form("/window_size", app_class_name="nothing").status_code == 404


def test_verification_sees_windows(guest: Guest) -> None:
    """A step that opens a window can be verified by its title, whatever its case."""
    body = {
        "command": "setsid mousepad >/dev/null 2>&1 &",
        "shell": True,
        "verification": {"window_exists": "MOUSEPAD"},
        "max_wait_time": 20,
        "check_interval": 0.1,
    }
    assert guest.post("/setup/execute_with_verification", **body).json()["verification"] == "passed"
    body |= {"command": "true", "verification": {"window_exists": "no such window"}, "max_wait_time": 0.3}
    assert guest.post("/execute_with_verification", **body).status_code == 500


def test_the_terminal_in_front_is_read(guest: Guest) -> None:
    """The focused terminal's text, and null when another window has the keyboard."""
    assert guest.get("/terminal").json() == {"output": None, "status": "success"}
    assert guest.post("/setup/open_file", path="xfce4-terminal").status_code == 200
    guest.shell("xdotool type --delay 20 'echo mark-$((40+2))'; xdotool key Return")
    text = eventually(lambda: (t := guest.get("/terminal").json()["output"] or "") and "mark-42" in t and t)
    assert text == text.rstrip()
    open_text(guest, "front.txt")
    assert guest.get("/terminal").json()["output"] is None


def test_the_health_probe_starts_no_helper(guest: Guest, small_folder: Path) -> None:
    """Without a terminal in front `/terminal` is answered by the agent alone, in milliseconds."""
    end_helpers(small_folder)
    begin = time.monotonic()
    for _ in range(20):
        assert guest.get("/terminal").json()["output"] is None
    assert (time.monotonic() - begin) / 20 < 0.1
    assert not helpers(small_folder)


def test_the_accessibility_tree_is_osworlds(guest: Guest) -> None:
    """Applications, roles, states, places, text and actions, under the names that OSWorld uses."""
    open_text(guest, "tree.txt")
    root = guest.tree()
    assert root.tag == "desktop-frame"
    mousepad = next(app for app in root if app.get("name") == "mousepad")
    assert mousepad.tag == "application"
    frame = mousepad[0]
    assert frame.tag == "frame"
    assert "tree.txt" in frame.get("name", "")
    assert frame.get(SHOWING) == "true"
    x, y = frame.get(f"{{{NAMESPACES['cp']}}}screencoord", "").strip("()").split(", ")
    width, height = frame.get(f"{{{NAMESPACES['cp']}}}size", "").strip("()").split(", ")
    assert int(x) >= 0 <= int(y)
    assert int(width) > 100 < int(height)
    text = next(node for node in frame.iter("text") if node.text)
    assert text.text == "some words\n"
    menus = {menu.get("name"): menu for menu in frame.iter("menu")}
    assert {"File", "Edit"} <= set(menus)
    assert menus["File"].get(f"{{{NAMESPACES['act']}}}click_desc")
    assert not list(frame.iter("menu-item")), "what does not show is left out"


def test_a_hung_application_does_not_hang_the_tree(guest: Guest) -> None:
    """One application that is stopped leaves its own part partial, and the answer in time."""
    open_text(guest, "hung.txt")
    assert guest.post("/setup/open_file", path="xfce4-terminal").status_code == 200
    guest.shell("pkill -STOP -x mousepad")
    try:
        begin = time.monotonic()
        answer = guest.get("/accessibility?deadline_s=1")
        assert time.monotonic() - begin < 8
    finally:
        guest.shell("pkill -CONT -x mousepad")
    assert answer.json()["partial"] is True
    root = ElementTree.fromstring(answer.json()["AT"])
    assert root.get("partial") == "true"
    parts = {app.get("name"): app.get("partial") for app in root}
    assert parts["xfce4-terminal"] is None
    assert "true" in parts.values()


def test_a_killed_helper_comes_back(guest: Guest, small_folder: Path) -> None:
    """The next request after the helper died gets its tree."""
    open_text(guest, "again.txt")
    guest.tree()
    assert helpers(small_folder)
    assert guest.shell("pgrep -f osgym_guest.osworld.a11[y]") == ""
    end_helpers(small_folder)
    assert any(app.get("name") == "mousepad" for app in guest.tree())


def test_the_wallpaper_is_given_and_changed(guest: Guest) -> None:
    """The picture behind the desktop can be read, replaced, and read again."""
    before = guest.form("/wallpaper")
    assert before.status_code == 200
    picture = guest.get("/screenshot").content
    guest.upload("~/Pictures/other.png", picture)
    assert guest.post("/setup/change_wallpaper", path="~/Pictures/other.png").status_code == 200
    assert eventually(lambda: guest.form("/wallpaper").content == picture)


@pytest.mark.full_image
def test_a_sheets_visible_cells_are_in_the_tree(full_guest: Guest) -> None:
    """Of the 17 billion cells of a sheet exactly those that show, with their text, within seconds."""
    full_guest.upload("~/Documents/sheet.csv", b"alpha,beta\n1,22\n")
    full_guest.shell("cd ~/Documents && soffice --headless --convert-to xlsx sheet.csv >/dev/null 2>&1")
    answer = full_guest.post("/setup/open_file", path="~/Documents/sheet.xlsx")
    assert answer.status_code == 200, answer.text

    def cells() -> dict[str, ElementTree.Element]:
        return {cell.get("name", ""): cell for cell in full_guest.tree().iter("table-cell")}

    found = eventually(lambda: (c := cells()) and "B2" in c and c, 30)
    assert (found["A1"].text, found["B2"].text) == ("alpha", "22")
    assert 200 < len(found) < 3000
    assert all(cell.get(SHOWING) == "true" for cell in found.values())
    begin = time.monotonic()
    assert set(cells()) == set(found)
    assert time.monotonic() - begin < 6


@pytest.mark.full_image
def test_a_page_in_the_browser_is_in_the_tree(full_guest: Guest) -> None:
    """Chromium joins the accessibility bus, and its page is found by role and name.

    It lives through being read: a number without a least value has none to give.
    """
    page = "<title>A page</title><h1>Heading one</h1><button>Push me</button><input type=number value=7>"
    full_guest.upload("~/Documents/page.html", page.encode())
    answer = full_guest.post("/setup/open_file", path="~/Documents/page.html")
    assert answer.status_code == 200, answer.text

    def found() -> bool:
        root = full_guest.tree()
        names = {(node.tag, node.get("name")) for node in root.iter()}
        return {("document-web", "A page"), ("heading", "Heading one"), ("push-button", "Push me")} <= names

    assert eventually(found, 30)
    assert found(), "Chromium is there after it was read"
    numbers = [node.attrib for node in full_guest.tree().iter("spin-button")]
    assert any("7.0" in attributes.values() for attributes in numbers), numbers


@pytest.mark.full_image
def test_an_application_of_gtk_2_is_in_the_tree(full_guest: Guest) -> None:
    """GIMP shows its tools, since the image loads GTK 2's accessibility modules."""
    answer = full_guest.post("/setup/open_file", path="gimp")
    assert answer.status_code == 200, answer.text

    def found() -> bool:
        gimp = [app for app in full_guest.tree() if app.get("name") == "gimp"]
        return bool(gimp) and len(list(gimp[0].iter("toggle-button"))) > 5

    assert eventually(found, 30)
