"""Matching of windows on the screen with objects of the tree, and nodes for windows without one. Pure.

Windows of the tree get what only the window manager knows: id, place in the stacking order, and which one is
active. A window whose program reports nothing becomes a node of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from osgym_guest.osworld.a11y.tree import Box, Node
from osgym_guest.osworld.a11y.x_windows import WindowKind, XWindow

WINDOW_ID = "attr:x11-window"
STACKING = "attr:x11-stacking"
ACTIVE = "attr:x11-active"
MODAL = "attr:x11-modal"
ONLY = "attr:x11-only"
"""Mark of nodes that come from the window manager, because their program gives no tree."""
MIN_OVERLAP = 0.5
"""Share of common area from which two boxes are one window; frame or shadow may count to one of them only."""
_NUMBERS = re.compile(r"-?\d+")


@dataclass(slots=True)
class _Program:
    """One process, its application nodes, and those of their windows that are not matched yet."""

    applications: list[Node] = field(default_factory=list)
    free: list[Node] = field(default_factory=list)


def add_windows(root: Node, pids: Sequence[int | None], windows: Sequence[XWindow]) -> None:
    """Mark the windows below `root`, and add the windows of `windows` that are missing there.

    Args:
        root: Desktop, with one child for each application.
        pids: Processes of these children, in their order.
        windows: Top-level windows, the lowest first.
    """
    programs: dict[int, _Program] = {}
    strangers: list[Node] = []
    for application, pid in zip(root.children, pids, strict=True):
        shown = [node for node in application.children if node.tag]
        if pid is None:
            strangers.extend(shown)
        else:
            program = programs.setdefault(pid, _Program())
            program.applications.append(application)
            program.free.extend(shown)
    left = _match_sure(programs, strangers, sorted(windows, key=lambda window: -window.stacking))
    # A program may name a window otherwise than its title bar does, and not say where it is.
    for window in left:
        owner = programs.get(window.pid or 0)
        shown = [node for node in owner.free if "st:showing" in node.attributes] if owner else []
        if owner and shown and window.is_managed and window.is_shown:
            owner.free.remove(shown[0])
            _mark(shown[0], window)
        elif window.is_managed or owner is None or not owner.applications[0].children:
            _add(root, owner, programs, window)


def _match_sure(
    programs: dict[int, _Program], strangers: list[Node], windows: Iterable[XWindow]
) -> list[XWindow]:
    """Mark the nodes whose title or place identifies their window, and return the other windows."""
    left = []
    for window in windows:
        program = programs.get(window.pid or 0)
        free = program.free if program else strangers
        ranked = [(match_score(node, window, by_process=program is not None), node) for node in free]
        best = max(ranked, key=lambda pair: pair[0], default=None)
        if best is None or best[0] <= 0:
            left.append(window)
            continue
        free.remove(best[1])
        _mark(best[1], window)
    return left


def match_score(node: Node, window: XWindow, *, by_process: bool) -> float:
    """Return the score of a match between node and window: 0 for none, higher for a better one.

    Title or place is enough in the same process. Otherwise both are needed, and an empty title does not
    count.
    """
    same_title = bool(window.title) and node.attributes.get("name", "").strip() == window.title.strip()
    box = node_box(node)
    overlap = _overlap(box, window.box) if box is not None else 0.0
    if by_process and window.is_managed:
        return same_title + overlap if same_title or overlap >= MIN_OVERLAP else 0.0
    if by_process:
        return overlap if overlap >= MIN_OVERLAP else 0.0
    return 1 + overlap if same_title and overlap >= MIN_OVERLAP else 0.0


def node_box(node: Node) -> Box | None:
    """Return the box of a node on the screen, if it has one."""
    numbers = [
        int(number)
        for key in ("cp:screencoord", "cp:size")
        for number in _NUMBERS.findall(node.attributes.get(key, ""))
    ]
    return Box(*numbers) if len(numbers) == 4 else None


def _overlap(one: Box, other: Box) -> float:
    """Return the common area of two boxes as a share of the area that they cover together."""
    both = one.clip(other)
    common = both.width * both.height
    whole = one.width * one.height + other.width * other.height - common
    return common / whole if whole > 0 else 0.0


def _mark(node: Node, window: XWindow) -> None:
    box = node_box(node)
    if box is not None and window.is_managed and _tells_places_inside(box, window.box):
        _shift(node, window.box.x, window.box.y)
    if (
        window.is_shown
        and "st:showing" in node.attributes
        and (box is None or min(box.width, box.height) <= 0)
    ):
        _place(node, window.box)  # Java does not say where its windows are
    node.attributes[WINDOW_ID] = f"{window.id:#x}"
    node.attributes[STACKING] = str(window.stacking)
    if window.is_active:
        node.attributes[ACTIVE] = "true"
    if window.is_modal:
        node.attributes[MODAL] = "true"


def _tells_places_inside(told: Box, real: Box) -> bool:
    """Return whether a program reports places relative to its window, as GTK 4 does.

    Its window then lies at the origin and is as large as the content of the real one, which lies elsewhere.
    Toolkits that report places on the screen agree with the X server.
    """
    same_size = abs(told.width - real.width) <= 1 and abs(told.height - real.height) <= 1
    return same_size and (told.x, told.y) == (0, 0) != (real.x, real.y)


def _place(node: Node, box: Box) -> None:
    node.attributes["cp:screencoord"] = f"({box.x}, {box.y})"
    node.attributes["cp:size"] = f"({box.width}, {box.height})"


def _shift(node: Node, x: int, y: int) -> None:
    box = node_box(node)
    if box is not None:
        _place(node, box._replace(x=box.x + x, y=box.y + y))
    for child in node.children:
        _shift(child, x, y)


def _add(root: Node, program: _Program | None, programs: dict[int, _Program], window: XWindow) -> None:
    if program is None:
        application = Node("application", {"name": window.program, ONLY: "true"})
        root.children.append(application)
        program = _Program([application])
        if window.pid is not None:
            programs[window.pid] = program
    application = program.applications[0]
    if not application.tag or not application.attributes.get("name"):  # it did not tell in time
        application.tag = "application"
        application.attributes["name"] = window.program
    application.children.append(window_node(window))


def window_node(window: XWindow) -> Node:
    """Return a node for a window whose program reports nothing about it."""
    states = ["enabled", "sensitive"]
    if window.is_active:
        states.append("active")
    if window.is_modal:
        states.append("modal")
    if window.is_shown:
        states += ["showing", "visible"]
    elif window.kind is not WindowKind.WINDOW:
        states.append("iconified")
    node = Node(window.kind.value, {"name": window.title})
    node.attributes.update((f"st:{state}", "true") for state in states)
    if window.is_shown:
        _place(node, window.box)
    node.attributes[ONLY] = "true"
    _mark(node, window)
    return node
