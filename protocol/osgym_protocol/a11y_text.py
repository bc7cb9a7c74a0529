"""Order in which a tree is written for models, and in which elements are left out. Pure.

A tree is divided into surfaces: windows, and the dialogs, alerts and open menus inside them. Those that ask
for an answer come first, then the active window, the one with the focus, and the others from the top of the
screen to the bottom. The cells of tables, and the items of long lists, behind them are left out first.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from osgym_protocol.a11y_node import A11yNode

STACKING = "attr:x11-stacking"
ACTIVE = "attr:x11-active"
MODAL = "attr:x11-modal"
"""Attribute by which guests mark a modal window (`window_match` of the guest agent)."""

MAX_FIELD_CHARS = 200
MAX_LEFT_OUT_LINES = 16
MANY_SIBLINGS = 40
"""Number of elements of one role in one parent from which each of them counts little."""
FOCUS_LINES = 100
"""Distance from the focused element, in lines, within which elements are its surroundings."""
FOCUS_BULK_LINES = 10
"""The same distance for cells and items of long lists."""
_DIALOGS = frozenset({"dialog", "alert", "file-chooser", "color-chooser", "font-chooser"})
_MENUS = frozenset({"menu", "popup-menu"})
_CELLS = frozenset({"table-cell", "table-row-header", "table-column-header", "row-header", "column-header"})
_SPACES = re.compile(r"\s+")


class Tier(enum.IntEnum):
    """Order of surfaces in the text: the lowest value comes first."""

    DIALOG = 0
    """A dialog, an alert or an open menu."""
    ACTIVE = 1
    FOCUSED = 2
    BEHIND = 3


class _Rank(enum.IntEnum):
    """Order in which elements are left out: the highest value goes first."""

    TITLE = 0
    DIALOG = 1
    NEAR_FOCUS = 2
    FRONT = 3
    FRONT_BULK = 4
    BEHIND = 5
    BEHIND_BULK = 6


@dataclass(slots=True)
class _Surface:
    """A window, or a part of one that lies in front of the rest of it.

    Attributes:
        root: Topmost element.
        window: Window that it is or lies in.
        lines: Visible elements, each before its children, and whether each is one of many.
    """

    root: A11yNode
    window: A11yNode
    lines: list[tuple[A11yNode, bool]] = field(default_factory=list)
    tier: Tier = Tier.BEHIND

    @property
    def stacking(self) -> int:
        """Place of its window in the stacking order; -1 where the guest does not report it."""
        text = self.window.attributes.get(STACKING, "")
        return int(text) if len(text) < 9 and text.isascii() and text.isdigit() else -1


def to_lines(desktop: A11yNode, max_lines: int) -> list[str]:
    """Return a line for each visible element, the most important surfaces first.

    Of more than `max_lines` elements the least important are left out. A line for each surface that lost some
    has their number and roles; of more than `MAX_LEFT_OUT_LINES` such lines the last is for all remaining
    surfaces.
    """
    surfaces = ordered_surfaces(desktop)
    kept = _kept(surfaces, max(max_lines, 0))
    lines: list[str] = []
    cut: list[tuple[_Surface, list[A11yNode]]] = []
    for surface in surfaces:
        lines.extend(_line(node) for node, _ in surface.lines if id(node) in kept)
        lost = [node for node, _ in surface.lines if id(node) not in kept]
        if lost:
            cut.append((surface, lost))
            if len(cut) < MAX_LEFT_OUT_LINES:
                lines.append(_left_out(lost, f"{surface.root.role} {surface.root.name}"))
    rest = cut[MAX_LEFT_OUT_LINES - 1 :]
    if rest:
        where = f"{len(rest)} other windows, dialogs and menus"
        lines.append(_left_out([node for _, lost in rest for node in lost], where))
    return lines


def ordered_surfaces(desktop: A11yNode) -> list[_Surface]:
    """Return the visible surfaces of a tree, the most important first."""
    surfaces = [surface for surface in _surfaces(desktop) if surface.lines]
    knows_active = any(ACTIVE in surface.window.attributes for surface in surfaces)
    for surface in surfaces:
        surface.tier = _tier(surface, knows_active)
    # Sorting is stable: surfaces of one window keep their order, what lies in front comes first.
    return sorted(surfaces, key=lambda surface: (surface.tier, -surface.stacking))


def _tier(surface: _Surface, knows_active: bool) -> Tier:
    root, window = surface.root, surface.window
    if root is not window or root.role in _DIALOGS or "modal" in root.states or MODAL in root.attributes:
        return Tier.DIALOG
    # Programs may believe that they are active while the window manager knows better.
    if ACTIVE in window.attributes or (not knows_active and "active" in window.states):
        return Tier.ACTIVE
    if any("focused" in node.states for node, _ in surface.lines):
        return Tier.FOCUSED
    return Tier.BEHIND


def _surfaces(desktop: A11yNode) -> Iterator[_Surface]:
    """Divide a tree into surfaces, in its own order; one surface has the elements outside all windows."""
    outside = _Surface(desktop, desktop)
    found = [outside]
    waiting: list[tuple[A11yNode, int, _Surface, bool]] = [(desktop, 0, outside, False)]
    while waiting:
        node, depth, surface, is_bulk = waiting.pop()
        if depth == 2:
            surface, is_bulk = _Surface(node, node), False
            found.append(surface)
        elif depth > 2 and _lies_in_front(node):
            surface, is_bulk = _Surface(node, surface.window), False
            found.append(surface)
        if _shows(node):
            surface.lines.append((node, is_bulk))
        roles = Counter(child.role for child in node.children)
        waiting.extend(
            (child, depth + 1, surface, is_bulk or child.role in _CELLS or roles[child.role] > MANY_SIBLINGS)
            for child in reversed(node.children)
        )
    yield from found


def _lies_in_front(node: A11yNode) -> bool:
    """Return whether a part of a window is a dialog or an open menu; a closed one has no visible child."""
    if not _shows(node):
        return False
    return node.role in _DIALOGS or (node.role in _MENUS and any(map(_shows, node.children)))


def _shows(node: A11yNode) -> bool:
    return node.box is not None and node.box[2] > 0 and node.box[3] > 0


def _kept(surfaces: Sequence[_Surface], most: int) -> set[int]:
    """Return the elements to write, by identity: the `most` of lowest rank."""
    ranked = []
    for order, surface in enumerate(surfaces):
        focus = next((at for at, (node, _) in enumerate(surface.lines) if "focused" in node.states), None)
        for at, (node, is_bulk) in enumerate(surface.lines):
            away = abs(at - focus) if focus is not None else at
            rank = _rank(
                surface.tier,
                node is surface.root,
                is_bulk,
                focus is not None and away <= (FOCUS_BULK_LINES if is_bulk else FOCUS_LINES),
            )
            near = away if rank in (_Rank.NEAR_FOCUS, _Rank.FRONT_BULK, _Rank.BEHIND_BULK) else at
            ranked.append((rank, order, near, at, id(node)))
    if len(ranked) > most:
        ranked.sort()
    return {key for *_, key in ranked[:most]}


def _rank(tier: Tier, is_title: bool, is_bulk: bool, is_near_focus: bool) -> _Rank:
    if is_title:
        return _Rank.TITLE
    if tier is Tier.BEHIND:
        return _Rank.BEHIND_BULK if is_bulk else _Rank.BEHIND
    if tier is Tier.DIALOG and not is_bulk:
        return _Rank.DIALOG
    if is_near_focus:
        return _Rank.NEAR_FOCUS
    return _Rank.FRONT_BULK if is_bulk else _Rank.FRONT


def _line(node: A11yNode) -> str:
    assert node.box is not None
    x, y, width, height = node.box
    return "\t".join([*map(_cell, (node.role, node.name, node.text)), f"({x}, {y})", f"({width}, {height})"])


def _left_out(lost: Sequence[A11yNode], where: str) -> str:
    """Return a line in the same columns for elements that are left out."""
    roles = Counter(node.role for node in lost).most_common(4)
    what = ", ".join(f"{count} {role}" for role, count in roles)
    rest = len(lost) - sum(count for _, count in roles)
    more = f", {rest} others" if rest else ""
    return "\t".join(["…", f"{len(lost)} left out", _cell(f"{what}{more} in {where}"), "", ""])


def _cell(text: str) -> str:
    clean = _SPACES.sub(" ", text[: 4 * MAX_FIELD_CHARS]).strip()
    return clean if len(clean) <= MAX_FIELD_CHARS else f"{clean[: MAX_FIELD_CHARS - 1]}…"
