"""Accessibility trees of real programs on real desktops: whole, harmless, and with what has no tree."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from benchmarks.tree_fidelity.__main__ import look_at
from benchmarks.tree_fidelity.programs import chosen
from tests.support.host_process import HostProcess, running_host

from osgym_protocol.a11y import A11yTree
from osgym_protocol.a11y_node import A11yNode
from osgym_sdk import Client, Episode
from osgym_sdk.targets import TargetMissing

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(600)]
READS = 5
"""Reads from each of two sides; Qt 5 died of the second. `benchmarks.tree_fidelity` reads 100 times."""
WINDOW_ID = "attr:x11-window"
STACKING = "attr:x11-stacking"
ONLY = "attr:x11-only"


@pytest.fixture(scope="module")
def full_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    folder = tmp_path_factory.mktemp("full")
    with running_host(f"trees-{os.getpid()}", log_dir=folder, image="full", warm=1) as running:
        yield running


@pytest.fixture
def desktop(host: HostProcess) -> Iterator[Episode]:
    """An episode on the small image, from a client that blocks."""
    with Client(host.url) as client, client.episode() as episode:
        yield episode


def judged(host: HostProcess, name: str) -> None:
    """Read a program's tree from two sides while windows open and close; nothing may be wrong."""
    (program,) = chosen("toolkits", name)
    with Client(host.url) as client, client.episode() as episode:
        found = look_at(episode, program, READS, alone_s=0)
    assert found["faults"] == [], found
    assert len(found["read_ms"]) == 2 * READS and found["windows_opened"] > 0
    assert found["has_tree"] == program.tree


@pytest.mark.parametrize("name", ["featherpad", "pcmanfm", "mousepad", "xterm", "tk"])
def test_a_program_lives_through_being_read_from_two_sides(host: HostProcess, name: str) -> None:
    """Programs of Qt 5, GTK 2, GTK 3, Xt and Tk stay alive, complete and in place, and change no pixel."""
    judged(host, name)


@pytest.mark.full_image
@pytest.mark.parametrize("name", ["vlc", "chromium"])
def test_a_big_program_lives_through_being_read_from_two_sides(full_host: HostProcess, name: str) -> None:
    """A media player made with Qt 5 and the browser do so too."""
    judged(full_host, name)


def started(episode: Episode, command: str, title: str) -> A11yTree:
    """Start a program and return the first tree that has its window."""
    episode.execute(f"{command} >/dev/null 2>&1 &")
    return shown(episode, title)


def shown(episode: Episode, title: str, *, timeout_s: float = 30.0) -> A11yTree:
    """Return the first tree with a window whose title contains a text."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        tree = episode.a11y()
        if any(title in node.name and WINDOW_ID in node.attributes for node in tree.nodes()):
            return tree
        time.sleep(0.05)
    raise TargetMissing(f"no window {title!r} in {tree.to_text()}")


def window(tree: A11yTree, title: str) -> A11yNode:
    (found,) = (node for node in tree.nodes() if title in node.name and WINDOW_ID in node.attributes)
    return found


def test_windows_without_a_tree_are_listed_with_title_place_and_order(desktop: Episode) -> None:
    """XTerm, and a program whose bus connection stands still; each window once, as the screen has it."""
    started(desktop, "mousepad", "Mousepad")
    tree = started(desktop, "xterm -T 'a terminal' -e sleep 600", "a terminal")
    terminal, editor = window(tree, "a terminal"), window(tree, "Mousepad")
    assert ONLY in terminal.attributes and ONLY not in editor.attributes
    assert {"active", "showing"} <= set(terminal.states)
    assert int(terminal.attributes[STACKING]) > int(editor.attributes[STACKING])
    (listed,) = (one for one in desktop.windows() if one.title == "a terminal")
    assert terminal.box == (listed.x_px, listed.y_px, listed.width_px, listed.height_px)
    desktop.execute("pkill -STOP -x mousepad")
    stopped = desktop.a11y(timeout_s=1)
    assert stopped.partial
    editor = window(stopped, "Mousepad")
    assert ONLY in editor.attributes and editor.box is not None
    desktop.execute("pkill -CONT -x mousepad")
    assert ONLY not in window(desktop.a11y(), "Mousepad").attributes


def test_the_desktops_icons_and_programs_started_by_it_are_in_the_tree(desktop: Episode) -> None:
    """pcmanfm joins the bus at the first reading, and each window of it is there once."""
    bus = "pgrep -f at-spi-bus-launche[r]"
    assert desktop.execute(bus).stdout == "", "nobody has read a tree yet, so the bus does not run"
    tree = desktop.a11y()
    icons = {node.name: node for node in tree.nodes() if node.box and node.name in ("Home", "Terminal")}
    assert set(icons) == {"Home", "Terminal"}
    x, y, width, height = icons["Home"].box or (0, 0, 0, 0)
    desktop.step([{"op": "click", "x": x + width // 2, "y": y + height // 2, "count": 2}])
    tree = shown(desktop, "user")
    assert ONLY not in window(tree, "user").attributes
    assert tree.find(role="menu", name="Bookmarks")


def test_an_open_menu_is_at_the_front_of_the_text(desktop: Episode) -> None:
    """The lines begin with what covers the rest, then the active window, then what lies below."""
    started(desktop, "xterm -T below -e sleep 600", "below")
    started(desktop, "mousepad", "Mousepad")
    desktop.step([{"op": "key", "keys": ["alt", "f"]}])
    lines = desktop.a11y().to_text().splitlines()[1:]
    place = {key: next(at for at, row in enumerate(lines) if key in row) for key in ("menu-item", "below")}
    editor = next(at for at, row in enumerate(lines) if row.startswith("frame") and "Mousepad" in row)
    assert place["menu-item"] < editor < place["below"]


@pytest.mark.full_image
def test_a_question_of_the_office_comes_before_the_cells_behind_it(full_host: HostProcess) -> None:
    """Calc asks whether to save: text and buttons of that dialog are the first lines of hundreds."""
    with Client(full_host.url) as client, client.episode() as episode:
        started(episode, "soffice --calc --norestore", "Calc")
        episode.step([{"op": "type", "text": "kept?\n"}])
        episode.step([{"op": "key", "keys": ["ctrl", "w"]}])
        lines = shown(episode, "Warning").to_text().splitlines()
        assert len(lines) > 100
        question, button, behind = (
            next(at for at, row in enumerate(lines) if part in row)
            for part in ("Save changes to document", "Don’t Save", "frame\tUntitled 1")
        )
        assert question < button < behind < 20
