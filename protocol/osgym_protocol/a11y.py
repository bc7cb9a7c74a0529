"""Accessibility tree of a desktop: read from the XML that guests send, and written as text for models.

A guest may send anything. The XML is parsed piece by piece, without document types, entities or anything that
is fetched. Nodes, depth, attributes and texts are bounded, and a tree that ends early is marked as truncated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.parsers import expat

from osgym_protocol.a11y_node import A11yNode
from osgym_protocol.a11y_text import to_lines
from osgym_protocol.limits import DEFAULT_A11Y_NODES

MAX_DEPTH = 64
MAX_ATTRIBUTES = 64
"""Number of attributes of one element."""
MAX_NAME_CHARS = 200
MAX_VALUE_CHARS = 2000
MAX_TEXT_CHARS = 20_000
"""Length of one element's text."""
_MAX_SIDE = 1 << 24
_PAIR = re.compile(r"\((-?\d{1,8}), ?(-?\d{1,8})\)", re.ASCII)
HEADER = "role\tname\ttext\tposition (x, y)\tsize (w, h)"


class InvalidTree(ValueError):
    """The input is no accessibility tree."""


@dataclass(slots=True)
class A11yTree:
    """A whole tree. ``truncated``: it has more elements or bytes than were asked for."""

    root: A11yNode
    truncated: bool = False

    @property
    def partial(self) -> bool:
        """Whether an application could not be read in time."""
        return any(node.partial for node in self.root.walk())

    def nodes(self) -> Iterator[A11yNode]:
        """Yield all elements, each before its children."""
        return self.root.walk()

    def find(self, *, role: str | None = None, name: str | None = None) -> list[A11yNode]:
        """Return the elements of a role, of a name, or of both."""
        return [
            node
            for node in self.root.walk()
            if (role is None or node.role == role) and (name is None or node.name == name)
        ]

    def to_text(self, *, max_lines: int = 1000) -> str:
        """Return one line for each element that shows, after a line with the names of the columns.

        Open dialogs, alerts and menus come first, then the active window, then the one with the focus, then
        the others from the top of the screen to the bottom. Columns are divided by tabs; white space within
        one is a single space, and long ones are cut. Of more than `max_lines` elements the least important
        are left out, cells of tables behind a dialog first. A line that begins with ``…`` then says how many
        are missing, of which roles and where; there are at most 16 such lines beyond `max_lines`.
        """
        return "\n".join([HEADER, *to_lines(self.root, max_lines)])


class _Enough(Exception):
    """The bound on elements is reached."""


class _Builder:
    """Builds the tree from expat's events."""

    def __init__(self, max_nodes: int) -> None:
        self._left = max_nodes
        self._open: list[A11yNode] = []
        self._hidden = 0
        self.root: A11yNode | None = None
        self.truncated = False

    def start(self, tag: str, attributes: list[str]) -> None:
        if self._hidden or len(self._open) >= MAX_DEPTH:
            self._hidden += 1
            self.truncated = True
            return
        if self._left <= 0:
            self.truncated = True
            raise _Enough
        self._left -= 1
        node = _node(tag, attributes)
        if self._open:
            self._open[-1].children.append(node)
        else:
            self.root = node
        self._open.append(node)

    def end(self, tag: str) -> None:
        if self._hidden:
            self._hidden -= 1
        else:
            self._open.pop()

    def text(self, data: str) -> None:
        if self._hidden or not self._open:
            return
        node = self._open[-1]
        room = MAX_TEXT_CHARS - len(node.text)
        if room > 0:
            node.text += data[:room]

    def refuse(self, *_: Any) -> None:
        raise InvalidTree("the tree has a document type")


def _node(tag: str, listed: list[str]) -> A11yNode:
    node = A11yNode(tag[:MAX_NAME_CHARS])
    states: list[str] = []
    place: tuple[int, int] | None = None
    size: tuple[int, int] | None = None
    for at in range(0, min(len(listed), 2 * MAX_ATTRIBUTES), 2):
        key, value = listed[at][:MAX_NAME_CHARS], listed[at + 1][:MAX_VALUE_CHARS]
        if key == "name":
            node.name = value
        elif key == "partial":
            node.partial = True
        elif key == "cp:screencoord":
            place = _pair(value)
        elif key == "cp:size":
            size = _pair(value)
        elif key.startswith("st:"):
            states.append(key[3:])
        elif not key.startswith("xmlns"):
            node.attributes[key] = value
    node.states = tuple(states)
    if place is not None and size is not None:
        node.box = (*place, *size)
    return node


def _pair(text: str) -> tuple[int, int] | None:
    found = _PAIR.fullmatch(text)
    if found is None:
        return None
    pair = int(found[1]), int(found[2])
    return pair if all(-_MAX_SIDE < number < _MAX_SIDE for number in pair) else None


def parse_tree(xml: bytes, *, max_nodes: int = DEFAULT_A11Y_NODES, truncated: bool = False) -> A11yTree:
    """Parse a tree. One that is cut or too large yields the part that is there.

    Args:
        xml: XML in UTF-8.
        max_nodes: Number of elements; further ones are left out.
        truncated: The XML is known to be cut, so that its end is missing.

    Raises:
        InvalidTree: It is not XML, has a document type, or has no element.
    """
    builder = _Builder(max_nodes)
    parser = expat.ParserCreate("UTF-8")
    parser.buffer_text = True
    parser.ordered_attributes = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.text
    parser.StartDoctypeDeclHandler = builder.refuse
    try:
        parser.Parse(xml, not truncated)
    except _Enough:
        pass
    except expat.ExpatError as exc:
        # An attribute or a character may be cut in two: then the error is at the very end.
        if not truncated or builder.root is None:
            raise InvalidTree(f"the tree is not XML: {exc}") from exc
        builder.truncated = True
    if builder.root is None:
        raise InvalidTree("the tree has no element")
    return A11yTree(builder.root, builder.truncated or truncated)
