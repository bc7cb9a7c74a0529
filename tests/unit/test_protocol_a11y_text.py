"""The order of a tree that is written as text, and what is left out of one that is too long."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from osgym_protocol.a11y import HEADER, A11yTree
from osgym_protocol.a11y_node import A11yNode
from osgym_protocol.a11y_text import ACTIVE, MAX_LEFT_OUT_LINES, MODAL, STACKING

BOX = (0, 0, 10, 10)


def node(
    role: str, name: str = "", *children: A11yNode, states: Sequence[str] = (), **attributes: str
) -> A11yNode:
    """An element that shows."""
    return A11yNode(role, name, "", BOX, tuple(states), dict(attributes), list(children))


def window(name: str, stacking: int, *children: A11yNode, role: str = "frame", **marks: str) -> A11yNode:
    """A window as guests mark it."""
    made = node(role, name, *children)
    made.attributes = {STACKING: str(stacking), **marks}
    return made


def tree(*windows: A11yNode) -> A11yTree:
    applications = [A11yNode("application", f"app {at}", children=[one]) for at, one in enumerate(windows)]
    return A11yTree(A11yNode("desktop-frame", children=applications))


def names(found: A11yTree, max_lines: int = 1000) -> list[str]:
    """Second column of each line."""
    lines = found.to_text(max_lines=max_lines).split("\n")
    assert lines[0] == HEADER and all(line.count("\t") == 4 for line in lines)
    return [line.split("\t")[1] for line in lines[1:]]


def sheet(rows: int = 1000) -> A11yNode:
    return node("table", "Sheet 1", *(node("table-cell", f"A{row}") for row in range(rows)))


def test_the_open_dialog_comes_first_and_cells_behind_it_are_left_out_first() -> None:
    """Calc asks "Save Document?": every line of the dialog and of Calc's buttons stays."""
    buttons = [node("push-button", name) for name in ("Save", "Don't Save", "Cancel")]
    dialog = window("Save Document?", 3, *buttons, role="alert", **{ACTIVE: "true"})
    calc = window("Untitled 1", 1, sheet(), node("push-button", "Sum"))
    found = names(tree(calc, dialog, window("Terminal", 2)), 20)
    assert found[:4] == ["Save Document?", "Save", "Don't Save", "Cancel"]
    assert {"Untitled 1", "Sheet 1", "Sum", "Terminal"} <= set(found)
    assert [name for name in found if name.endswith("left out")] == ["988 left out"]
    text = tree(calc, dialog).to_text(max_lines=20)
    assert "…\t987 left out\t987 table-cell in frame Untitled 1\t\t" in text.split("\n")


def test_windows_come_from_the_active_one_down_the_stack() -> None:
    """The window manager's word counts, not what programs believe of themselves."""
    low, high, active = window("low", 0), window("high", 2), window("active", 1, **{ACTIVE: "true"})
    low.states = ("active",)
    assert names(tree(low, active, high)) == ["active", "high", "low"]
    assert names(tree(low, window("high", 2))) == ["low", "high"], "nothing better is known"
    modal = window("modal", 0, **{MODAL: "true"})
    assert names(tree(active, modal)) == ["modal", "active"]
    focused = window("focused", 0, node("text", "here", states=["focused"]))
    assert names(tree(high, focused)) == ["focused", "here", "high"]


def test_open_menus_come_before_the_window_that_they_cover() -> None:
    """A closed menu stays in its bar; an open one is a surface, as is a dialog inside a page."""
    opened = node("menu", "File", node("menu-item", "New"), node("menu-item", "Quit"))
    bar = node("menu-bar", "bar", opened, node("menu", "Edit"))
    inner = node("document-web", "page", node("dialog", "Cookies?", node("push-button", "No")))
    frame = window("Editor", 0, bar, inner, **{ACTIVE: "true"})
    assert names(tree(frame)) == [
        *("File", "New", "Quit", "Cookies?", "No"),
        *("Editor", "bar", "Edit", "page"),
    ]


def test_of_a_long_table_the_rows_around_the_focus_stay() -> None:
    """What the user works on is kept, in the order of the tree."""
    table = sheet()
    table.children[600].states = ("focused",)
    found = names(tree(window("Calc", 0, table, node("push-button", "Sum"), **{ACTIVE: "true"})), 60)
    rows = [int(name[1:]) for name in found if re.fullmatch(r"A\d+", name)]
    assert rows == sorted(rows) and rows[0] > 560 and rows[-1] < 640
    assert {"Calc", "Sheet 1", "Sum"} <= set(found)


def test_many_windows_that_lose_something_share_the_last_line() -> None:
    """The lines about what is left out are bounded."""
    many = tree(*(window(f"w{at}", at, node("label")) for at in range(100)))
    lines = many.to_text(max_lines=5).split("\n")[1:]
    cut = [line for line in lines if line.startswith("…")]
    assert len(lines) - len(cut) == 5 and len(cut) == MAX_LEFT_OUT_LINES
    assert "other windows" in cut[-1] and _left_out(lines) == 195


ROLES = st.sampled_from(["push-button", "table-cell", "dialog", "menu", "menu-item", "label", "alert"])
STATES = st.sampled_from([(), ("focused",), ("active",), ("modal",)])
LEAVES = st.builds(lambda role, states: node(role, states=states), ROLES, STATES)
NODES = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        lambda role, children: node(role, "", *children), ROLES, st.lists(inner, max_size=5)
    ),
    max_leaves=12,
)
MARKS = st.sampled_from([{}, {ACTIVE: "true"}, {MODAL: "true"}, {STACKING: "x"}])
WINDOWS = st.builds(
    lambda at, children, marks: window("", at, *children, **marks),
    st.integers(0, 9),
    st.lists(NODES, max_size=4),
    MARKS,
)


def _numbered(found: A11yTree) -> dict[str, A11yNode]:
    """Give each element a name of its own."""
    nodes = list(found.nodes())
    for at, one in enumerate(nodes):
        one.name = f"n{at}"
    return {one.name: one for one in nodes if one.box is not None}


def _left_out(lines: list[str]) -> int:
    return sum(int(line.split("\t")[1].split()[0]) for line in lines if line.startswith("…"))


@given(st.lists(WINDOWS, max_size=5), st.integers(0, 60))
def test_every_element_is_written_once_or_counted(windows: list[A11yNode], most: int) -> None:
    """As many as fit are there, and the lines about the rest add up; the order is that of the whole tree."""
    found = tree(*windows)
    shown = _numbered(found)
    whole = names(found, len(shown))
    assert sorted(whole) == sorted(shown)
    lines = found.to_text(max_lines=most).split("\n")[1:]
    kept = [line.split("\t")[1] for line in lines if not line.startswith("…")]
    assert len(kept) == min(most, len(shown))
    assert _left_out(lines) == len(shown) - len(kept)
    assert [name for name in whole if name in set(kept)] == kept


@given(st.lists(WINDOWS, max_size=4), st.integers(0, 40))
def test_no_cell_behind_a_dialog_stays_where_something_of_the_dialog_is_left_out(
    behind: list[A11yNode], most: int
) -> None:
    """Whatever else is on the screen, a dialog loses nothing before the cells behind it are gone."""
    buttons = [node("push-button") for _ in range(5)]
    dialog = window("", 9, *buttons, role="dialog", **{ACTIVE: "true"})
    cells = window("", 0, sheet(10))
    found = tree(*behind, cells, dialog)
    shown = _numbered(found)
    kept = set(names(found, most)) & set(shown)
    lost = [button for button in buttons if button.name not in kept]
    assert not lost or not [cell for cell in cells.children[0].children if cell.name in kept]
