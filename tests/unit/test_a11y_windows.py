"""Windows of the screen and of the accessibility tree, brought together."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_guest.osworld.a11y import late_bridge
from osgym_guest.osworld.a11y.render import NAMESPACES, render
from osgym_guest.osworld.a11y.tree import Box, Node
from osgym_guest.osworld.a11y.window_match import ACTIVE, ONLY, STACKING, WINDOW_ID, add_windows
from osgym_guest.osworld.a11y.x_windows import WindowKind, XWindow

SQUARE = Box(0, 0, 100, 100)
ATTR = f"{{{NAMESPACES['attr']}}}"


def frame(name: str, box: Box | None, role: str = "frame") -> Node:
    """A window as its program tells of it."""
    node = Node(role, {"name": name, "st:showing": "true"})
    if box is not None:
        node.attributes["cp:screencoord"] = f"({box.x}, {box.y})"
        node.attributes["cp:size"] = f"({box.width}, {box.height})"
    return node


def application(name: str, *windows: Node) -> Node:
    return Node("application", {"name": name}, children=list(windows))


def window(number: int, title: str, pid: int | None, box: Box = SQUARE, *, managed: bool = True) -> XWindow:
    """A window as the X server tells of it."""
    kind = WindowKind.FRAME if managed else WindowKind.WINDOW
    return XWindow(number, title, "prog", pid, box, kind, number, is_active=number == 0, is_managed=managed)


def test_a_window_without_a_tree_becomes_a_node_that_says_where_it_comes_from() -> None:
    """OSWorld's shape holds: an application with a frame, its title, place and states."""
    root = Node("desktop-frame")
    add_windows(root, [], [window(0, "a & b", 7, Box(10, 20, 300, 200)), window(1, "more", 7)])
    parsed = ElementTree.fromstring(render(root))
    assert [(app.tag, app.get("name")) for app in parsed] == [("application", "prog")]
    first, second = parsed[0]
    assert (first.tag, first.get("name"), second.get("name")) in (
        ("frame", "a & b", "more"),
        ("frame", "more", "a & b"),
    )
    node = first if first.get("name") == "a & b" else second
    component, state = NAMESPACES["cp"], NAMESPACES["st"]
    assert node.get(f"{{{component}}}screencoord") == "(10, 20)"
    assert node.get(f"{{{component}}}size") == "(300, 200)"
    assert node.get(f"{{{state}}}active") == node.get(f"{{{state}}}showing") == "true"
    assert node.get(f"{ATTR}x11-only") == node.get(f"{ATTR}x11-active") == "true"
    assert (node.get(f"{ATTR}x11-window"), node.get(f"{ATTR}x11-stacking")) == ("0x0", "0")


def test_a_window_with_a_tree_is_marked_and_not_listed_twice() -> None:
    """By title, by place, or as the one that is left; each in the same process."""
    titled = frame("Untitled", None)
    placed = frame("another name", Box(0, 0, 640, 480))
    odd = frame("no title, no place", None)
    root = Node("desktop-frame", children=[application("a", titled, placed), application("b", odd)])
    windows = [
        window(0, "Untitled", 7, Box(900, 900, 10, 10)),
        window(1, "in the bar", 7, Box(2, 20, 636, 460)),
        window(2, "else", 8),
    ]
    add_windows(root, [7, 8], windows)
    assert [node.attributes[WINDOW_ID] for node in (titled, placed, odd)] == ["0x0", "0x1", "0x2"]
    assert (ACTIVE in titled.attributes, ACTIVE in placed.attributes) == (True, False)
    assert [len(app.children) for app in root.children] == [2, 1]


def test_a_window_of_an_unknown_process_is_matched_by_title_and_place_together() -> None:
    """One of both is not enough to call a stranger's window its own."""
    node = frame("Untitled", SQUARE)
    root = Node("desktop-frame", children=[application("a", node)])
    add_windows(root, [None], [window(0, "Untitled", 7, Box(0, 20, 100, 80))])
    assert node.attributes[STACKING] == "0" and len(root.children) == 1
    for title, box in (("Untitled", Box(500, 500, 9, 9)), ("other", SQUARE)):
        node = frame("Untitled", SQUARE)
        root = Node("desktop-frame", children=[application("a", node)])
        add_windows(root, [None], [window(0, title, 7, box)])
        assert STACKING not in node.attributes and len(root.children) == 2


def test_an_application_that_did_not_answer_gets_its_name_and_its_windows() -> None:
    """A stopped program is listed as what a user sees of it, and stays partial."""
    stopped = Node("application", {"name": ""}, partial=True)
    root = Node("desktop-frame", children=[stopped])
    add_windows(root, [7], [window(0, "Untitled", 7)])
    assert stopped.attributes["name"] == "prog" and stopped.partial
    assert [(node.tag, node.attributes["name"], ONLY in node.attributes) for node in stopped.children] == [
        ("frame", "Untitled", True)
    ]


def test_places_told_from_the_corner_of_a_window_become_places_on_the_screen() -> None:
    """GTK 4 knows no other; a window that tells where X sees it, with or without its frame, stays."""
    button = frame("Save", Box(5, 7, 60, 20), "push-button")
    inside = frame("Untitled", Box(0, 0, 300, 200))
    inside.children = [button]
    framed = frame("Other", Box(0, 0, 302, 231))
    root = Node("desktop-frame", children=[application("a", inside), application("b", framed)])
    real = window(0, "Untitled", 7, Box(100, 50, 300, 200))
    add_windows(root, [7, 8], [real, window(1, "Other", 8, Box(1, 30, 300, 200))])
    places = [node.attributes["cp:screencoord"] for node in (inside, button, framed)]
    assert places == ["(100, 50)", "(105, 57)", "(0, 0)"]


def test_a_window_that_does_not_say_where_it_is_lies_where_the_x_server_sees_it() -> None:
    """Java tells (-1, -1) for the place and the size of its frames; hidden windows stay without a place."""
    java, hidden = frame("Java", Box(-1, -1, -1, -1)), frame("Hidden", None)
    del hidden.attributes["st:showing"]
    root = Node("desktop-frame", children=[application("a", java, hidden)])
    add_windows(root, [7], [window(0, "Java", 7, Box(1, 30, 460, 216)), window(1, "Hidden", 7)])
    assert (java.attributes["cp:screencoord"], java.attributes["cp:size"]) == ("(1, 30)", "(460, 216)")
    assert WINDOW_ID in hidden.attributes and "cp:size" not in hidden.attributes


def test_a_menu_is_a_window_of_its_own_only_where_its_program_has_no_tree() -> None:
    """The menus of a program that has a tree lie in its tree, wherever its toolkit puts them."""
    menu = Box(50, 50, 200, 300)
    root = Node("desktop-frame", children=[application("a", frame("Untitled", Box(0, 0, 640, 480)))])
    windows = [window(0, "Untitled", 7), window(1, "", 7, menu, managed=False)]
    add_windows(root, [7], windows)
    assert len(root.children[0].children) == 1
    root = Node("desktop-frame")
    add_windows(root, [], windows)
    assert [node.tag for node in root.children[0].children] == ["window", "frame"]


BOXES = st.builds(Box, *[st.integers(-50, 200)] * 2, *[st.integers(0, 200)] * 2)
TITLES = st.sampled_from(["", "a", "b", "c"])
PIDS = st.one_of(st.none(), st.integers(1, 3))
FRAMES = st.builds(frame, TITLES, st.one_of(st.none(), BOXES))


@given(
    st.lists(st.tuples(st.lists(FRAMES, max_size=4), PIDS), max_size=4),
    st.lists(st.tuples(TITLES, PIDS, BOXES, st.booleans()), max_size=6),
)
def test_every_window_is_there_once_and_no_node_is_lost(
    programs: list[tuple[list[Node], int | None]], rows: list[tuple[str, int | None, Box, bool]]
) -> None:
    """Whatever programs and windows there are: each window that is managed is one node, each node stays."""
    root = Node("desktop-frame", children=[application("a", *nodes) for nodes, _ in programs])
    before = [node for app in root.children for node in app.children]
    windows = [window(at, title, pid, box, managed=m) for at, (title, pid, box, m) in enumerate(rows)]
    add_windows(root, [pid for _, pid in programs], windows)
    after = [node for app in root.children for node in app.children]
    assert all(any(node is other for other in after) for node in before)
    marked = [node.attributes[WINDOW_ID] for node in after if WINDOW_ID in node.attributes]
    assert len(marked) == len(set(marked))
    assert {f"{one.id:#x}" for one in windows if one.is_managed} <= set(marked)
    assert all(any(node is other for other in before) or ONLY in node.attributes for node in after)


def test_a_file_that_a_program_names_is_written_only_where_it_is_an_ordinary_one(tmp_path: Path) -> None:
    """A link is not followed, and nobody waits at a pipe without a reader."""
    kept, link, pipe, file = (tmp_path / name for name in ("kept", "link", "pipe", "file"))
    kept.write_text("kept")
    link.symlink_to(kept)
    os.mkfifo(pipe)
    for path in (link, pipe):
        with pytest.raises(OSError):
            late_bridge.write(path)
    assert kept.read_text() == "kept"
    file.write_text("something longer than what is written " * 3)
    late_bridge.write(file)
    assert file.read_text() == late_bridge.CONTENT
