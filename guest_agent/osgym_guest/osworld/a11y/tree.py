"""Reader of the tree: bounded calls in flight per application, for the visible part only.

A node's visibility is checked before anything else is asked of it, so hidden menus and unseen sheets cost one
call each. Tables that manage their own descendants (a Calc sheet claims 2^31 children) are read through the
cells at the corners of their visible part. ``Collection.GetMatches`` and ``Cache.GetItems`` are never called:
on Calc they run for minutes and take gigabytes. Nor is ``Properties.GetAll``: Qt 5 reads a second argument
that this call does not have, and crashes; Chromium crashes at a field for numbers without a minimum. So each
property is read by a call of its own.
"""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from osgym_guest.osworld.a11y import names
from osgym_guest.osworld.a11y.bus import Bus, BusClosed, BusError

REGISTRY = "org.a11y.atspi.Registry"
ROOT_PATH = "/org/a11y/atspi/accessible/root"
NULL_PATH = "/org/a11y/atspi/null"
ATSPI = "org.a11y.atspi."
PROPERTIES = "org.freedesktop.DBus.Properties"

IN_FLIGHT = 24
MAX_DEPTH = 50
MAX_WIDTH = 1024
MAX_CROWD = 256
MAX_NODES = 8000
MAX_CELLS = 3000
MAX_TEXT_CHARS = 200_000
SCREEN_COORDS = 0

OF_WINDOW_MANAGER = "x11-"
"""Prefix of the attributes that `window_match` adds. Attributes of programs may not begin with it."""

# What pcmanfm draws on the desktop itself: icons directly in a window, which never say that they show.
_ICON = names.VISIBLE | names.SELECTABLE | names.FOCUSABLE

_GTK4 = "GTK"
"""Toolkit name of GTK 4 (GTK 2 and 3 say ``gtk``), of whose objects only windows ever report to be visible.
"""


class Ref(NamedTuple):
    """Address of an accessible object: bus name and object path."""

    bus_name: str
    path: str


class Box(NamedTuple):
    """Rectangle on the screen, in pixels."""

    x: int
    y: int
    width: int
    height: int

    def clip(self, other: Box) -> Box:
        """Return the part of this box that lies in `other`; of size 0 when they do not overlap."""
        left, top = max(self.x, other.x), max(self.y, other.y)
        right = min(self.x + self.width, other.x + other.width)
        bottom = min(self.y + self.height, other.y + other.height)
        return Box(left, top, max(right - left, 0), max(bottom - top, 0))


EVERYTHING = Box(0, 0, 1 << 20, 1 << 20)


@dataclass(slots=True)
class Node:
    """One object of the tree.

    Attributes:
        tag: Role with dashes; empty while it is unknown (such a node is left out).
        attributes: Attributes by name, with a namespace prefix (``st:active``) or bare.
        text: Content of the object's text.
        children: Child nodes in order.
        partial: A part of this subtree was left out for lack of time or for its size.
    """

    tag: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    text: str = ""
    children: list[Node] = field(default_factory=list)
    partial: bool = False

    def any_partial(self) -> bool:
        return self.partial or any(child.any_partial() for child in self.children)


async def applications(bus: Bus) -> list[Ref]:
    """Return the applications that the registry lists. Raises BusError if there is no registry."""
    (found,) = await bus.call(REGISTRY, ROOT_PATH, ATSPI + "Accessible", "GetChildren")
    return [Ref(*pair) for pair in found if pair[1] != NULL_PATH]


class Cells:
    """Cache of table cells by place.

    Calc makes an object of 6 KB for each call that asks for a cell and never frees it, so the cells of the
    last trees are used again while they live.
    """

    LIFE_S = 15.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[tuple[Ref, int, int], tuple[float, Ref]] = {}

    def get(self, table: Ref, row: int, column: int) -> Ref | None:
        """Return the cell at a place, if it still lives."""
        since, ref = self._known.get((table, row, column), (0.0, None))
        return ref if self._clock() - since < self.LIFE_S else None

    def put(self, table: Ref, row: int, column: int, ref: Ref) -> None:
        if len(self._known) >= 2 * MAX_CELLS:
            self._known.clear()
        self._known[table, row, column] = (self._clock(), ref)


class Application:
    """Reads one application's part of the tree into `root`.

    Args:
        bus: Accessibility bus.
        ref: Application object.
        cells: Table cells known from earlier readings.
    """

    def __init__(self, bus: Bus, ref: Ref, cells: Cells | None = None):
        self._bus = bus
        self._cells = cells or Cells()
        self._ref = ref
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._nodes = 0
        self._is_gtk4 = False
        self.root = Node("application", {"name": ""})

    async def read(self, deadline_s: float) -> None:
        """Read the tree. Never raises: what is missing at the deadline is marked as partial.

        The rest of an application that answers with other types than AT-SPI's is marked as partial too, so
        that it does not break the trees of others.
        """
        try:
            await asyncio.wait_for(self._read_root(), deadline_s)
        except (asyncio.TimeoutError, BusClosed):
            self.root.partial = True
        except Exception as exc:  # noqa: BLE001  # top of a reading: logged, and the others are read
            traceback.print_exception(exc, file=sys.stderr)
            self.root.partial = True

    async def _read_root(self) -> None:
        toolkit = await self.properties(self._ref, "Application", ("ToolkitName",))
        self._is_gtk4 = toolkit.get("ToolkitName") == _GTK4
        states = await self.states(self._ref)
        await self._visit(self.root, self._ref, states or 0, 1, EVERYTHING)

    # calls
    async def call(self, ref: Ref, interface: str, member: str, signature: str = "", *args: Any) -> Any:
        """Return the first argument of a reply, or None when the object does not answer the call properly."""
        async with self._slots:
            try:
                reply = await self._bus.call(ref.bus_name, ref.path, interface, member, signature, *args)
            except BusError:
                return None
        return reply[0] if reply else None

    async def states(self, ref: Ref) -> int | None:
        """Return the states of an object as a bit mask; None for an object that is gone."""
        words = await self.call(ref, ATSPI + "Accessible", "GetState")
        if not isinstance(words, list) or len(words) != 2:
            return None
        return int(words[0]) | int(words[1]) << 32

    async def properties(self, ref: Ref, interface: str, wanted: Sequence[str]) -> dict[str, Any]:
        """Return properties of one interface, without those that cannot be read."""
        calls = [self.call(ref, PROPERTIES, "Get", "ss", ATSPI + interface, name) for name in wanted]
        values = await asyncio.gather(*calls)
        return {name: value for name, value in zip(wanted, values, strict=True) if value is not None}

    async def extents(self, ref: Ref) -> Box | None:
        """Return the box of an object on the screen."""
        found = await self.call(ref, ATSPI + "Component", "GetExtents", "u", SCREEN_COORDS)
        return Box(*found) if isinstance(found, tuple) and len(found) == 4 else None

    async def text(self, ref: Ref) -> tuple[str, bool]:
        """Return the text of an object, and whether it is complete."""
        count = await self.call(ref, PROPERTIES, "Get", "ss", ATSPI + "Text", "CharacterCount")
        if not isinstance(count, int) or count == 0:
            return "", True
        whole = 0 <= count <= MAX_TEXT_CHARS
        end = count if whole else MAX_TEXT_CHARS
        found = await self.call(ref, ATSPI + "Text", "GetText", "ii", 0, end)
        return (found, whole) if isinstance(found, str) else ("", True)

    # nodes
    async def _visit(self, node: Node, ref: Ref, states: int, depth: int, clip: Box) -> None:
        """Fill `node` and its subtree."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            node.partial = True
            return
        accessible, role, interfaces = await asyncio.gather(
            self.properties(ref, "Accessible", ("Name", "ChildCount")),
            self.call(ref, ATSPI + "Accessible", "GetRole"),
            self.call(ref, ATSPI + "Accessible", "GetInterfaces"),
        )
        if role is None and not accessible:
            return  # it went away meanwhile: without a tag it is left out
        offered = {str(name).removeprefix(ATSPI) for name in interfaces or ()}
        attributes = {"name": str(accessible.get("Name", ""))}
        attributes.update((f"st:{name}", "true") for name in names.state_names(states))
        node.attributes = attributes
        node.tag = await self._tag(ref, role)
        visible = bool(states & names.VISIBLE and states & names.SHOWING)
        count = accessible.get("ChildCount", 0)
        is_crowd = count > MAX_WIDTH or count < 0
        if visible and "Component" in offered:
            box = await self.extents(ref)
            if box is not None:
                attributes["cp:screencoord"] = f"({box.x}, {box.y})"
                attributes["cp:size"] = f"({box.width}, {box.height})"
                clip = box.clip(clip) if box.width > 0 and box.height > 0 else clip
        reads = [self._read_attributes(node, ref), self._read_interfaces(node, ref, offered)]
        if count and (visible or depth == 1):
            if depth >= MAX_DEPTH:
                node.partial = True
            elif is_crowd:
                reads.append(self._read_crowd(node, ref, count, offered, depth, clip))
            else:
                reads.append(self._read_children(node, ref, depth, clip))
        await asyncio.gather(*reads)

    async def _tag(self, ref: Ref, role: Any) -> str:
        known = names.role_name(role) if isinstance(role, int) else None
        if known is not None:
            return known
        name = await self.call(ref, ATSPI + "Accessible", "GetRoleName")
        return (str(name or "").strip() or "unknown").replace(" ", "-")

    async def _read_attributes(self, node: Node, ref: Ref) -> None:
        found = await self.call(ref, ATSPI + "Accessible", "GetAttributes")
        if isinstance(found, dict):
            node.attributes.update(
                (f"attr:{name}", str(value))
                for name, value in found.items()
                if name and not str(name).startswith(OF_WINDOW_MANAGER)
            )

    async def _read_interfaces(self, node: Node, ref: Ref, offered: set[str]) -> None:
        for interface in ("Image", "Selection"):
            if interface in offered:
                node.attributes[interface.lower()] = "true"
        reads = []
        if "Text" in offered:
            reads.append(self._read_text(node, ref))
        if "Value" in offered:
            reads.append(self._read_value(node, ref))
        if "Action" in offered:
            reads.append(self._read_actions(node, ref))
        await asyncio.gather(*reads)

    async def _read_text(self, node: Node, ref: Ref) -> None:
        text, whole = await self.text(ref)
        # U+FFFC stands for an embedded object, U+FFFD for what could not be decoded
        node.text = text.replace("\ufffc", "").replace("\ufffd", "")
        node.partial = node.partial or not whole

    async def _read_value(self, node: Node, ref: Ref) -> None:
        wanted = {
            "CurrentValue": "val:value",
            "MinimumValue": "val:min",
            "MaximumValue": "val:max",
            "MinimumIncrement": "val:step",
        }
        found = await self.properties(ref, "Value", tuple(wanted))
        for name, key in wanted.items():
            if name in found:
                node.attributes[key] = str(found[name])

    async def _read_actions(self, node: Node, ref: Ref) -> None:
        actions = await self.call(ref, ATSPI + "Action", "GetActions")
        if not isinstance(actions, list):
            return
        # GetActions gives translated names; the untranslated ones are asked for one by one
        asked = [self.call(ref, ATSPI + "Action", "GetName", "i", index) for index in range(len(actions))]
        for (translated, description, key), name in zip(actions, await asyncio.gather(*asked), strict=True):
            plain = str(name if name is not None else translated).replace(" ", "-")
            node.attributes[f"act:{plain}_desc"] = description
            node.attributes[f"act:{plain}_kb"] = key

    # children
    async def _read_children(self, node: Node, ref: Ref, depth: int, clip: Box) -> None:
        found = await self.call(ref, ATSPI + "Accessible", "GetChildren")
        refs = [Ref(*pair) for pair in found or ()]
        node.partial = node.partial or len(refs) > MAX_WIDTH
        await self._visit_all(node, refs[:MAX_WIDTH], depth, clip)

    async def _read_crowd(
        self, node: Node, ref: Ref, count: int, offered: set[str], depth: int, clip: Box
    ) -> None:
        """Return the children of an object that has too many to ask for all."""
        if "Table" in offered:
            cells = await self._visible_cells(ref, clip)
            if cells is not None:
                await self._visit_shown(node, cells, depth, clip)
                return
        node.partial = True
        accessible = ATSPI + "Accessible"
        asked = [self.call(ref, accessible, "GetChildAtIndex", "i", index) for index in range(MAX_CROWD)]
        refs = [Ref(*pair) for pair in await asyncio.gather(*asked) if pair]
        await self._visit_all(node, refs, depth, clip)

    async def _visit_all(self, node: Node, refs: list[Ref], depth: int, clip: Box) -> None:
        """Visit the visible nodes of `refs`, keeping their order; windows are listed even when hidden."""
        refs = [ref for ref in refs if ref.path != NULL_PATH]
        masks = await asyncio.gather(*(self.states(ref) for ref in refs))
        known = [(ref, states) for ref, states in zip(refs, masks, strict=True) if states is not None]
        await self._visit_shown(node, known, depth, clip)

    async def _visit_shown(self, node: Node, known: list[tuple[Ref, int]], depth: int, clip: Box) -> None:
        visits = []
        for ref, states in known:
            if (depth == 2 and states & _ICON == _ICON) or (self._is_gtk4 and states & names.VISIBLE):
                states |= names.SHOWING
            if not (states & names.SHOWING or depth == 1):
                continue
            child = Node()
            node.children.append(child)
            visits.append(self._visit(child, ref, states, depth + 1, clip))
        await asyncio.gather(*visits)

    async def _visible_cells(self, ref: Ref, clip: Box) -> list[tuple[Ref, int]] | None:
        """Return the cells of a table, with their states, between the corners of its visible part.

        None if the table does not report them.
        """
        if clip.width < 8 or clip.height < 8:
            return []
        table = await self.properties(ref, "Table", ("NRows", "NColumns"))
        rows, columns = table.get("NRows", 0), table.get("NColumns", 0)
        first = await self._cell_at(ref, clip.x + 3, clip.y + 3)
        last = await self._cell_at(ref, clip.x + clip.width - 3, clip.y + clip.height - 3)
        if first is None:
            return None
        bottom, right = last if last is not None else (rows - 1, columns - 1)
        wide = min(right - first[1] + 1, MAX_WIDTH)
        high = min(bottom - first[0] + 1, MAX_CELLS // max(wide, 1))
        if wide <= 0 or high <= 0:
            return None
        places = [(first[0] + row, first[1] + column) for row in range(high) for column in range(wide)]
        found = await asyncio.gather(*(self._cell(ref, row, column) for row, column in places))
        return [cell for cell in found if cell is not None]

    async def _cell(self, table: Ref, row: int, column: int) -> tuple[Ref, int] | None:
        """Return the cell at a place of a table, and its states."""
        known = self._cells.get(table, row, column)
        if known is not None:
            states = await self.states(known)
            if states is not None:
                return known, states
        pair = await self.call(table, ATSPI + "Table", "GetAccessibleAt", "ii", row, column)
        if not pair:
            return None
        ref = Ref(*pair)
        self._cells.put(table, row, column, ref)
        states = await self.states(ref)
        return (ref, states) if states is not None else None

    async def _cell_at(self, ref: Ref, x: int, y: int) -> tuple[int, int] | None:
        """Return row and column of the cell at a point of the screen."""
        found = await self.call(ref, ATSPI + "Component", "GetAccessibleAtPoint", "iiu", x, y, SCREEN_COORDS)
        if not found or found[1] == NULL_PATH:
            return None
        index = await self.call(Ref(*found), ATSPI + "Accessible", "GetIndexInParent")
        if not isinstance(index, int) or index < 0:
            return None
        row, column = await asyncio.gather(
            self.call(ref, ATSPI + "Table", "GetRowAtIndex", "i", index),
            self.call(ref, ATSPI + "Table", "GetColumnAtIndex", "i", index),
        )
        if not isinstance(row, int) or not isinstance(column, int) or row < 0 or column < 0:
            return None
        return row, column
