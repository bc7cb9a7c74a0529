"""One element of an accessibility tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class A11yNode:
    """One element.

    Attributes:
        role: Role, such as ``push-button``.
        name: Label.
        text: Content; empty where it has none.
        box: x, y, width and height on the screen, in pixels; None where it is not visible.
        states: States such as ``focused`` and ``enabled``, in the order of the XML.
        attributes: Further attributes by name with a prefix (``val:value``, ``attr:class``).
        children: Child elements in order.
        partial: A part of its subtree could not be read in time, or was too much.
    """

    role: str
    name: str = ""
    text: str = ""
    box: tuple[int, int, int, int] | None = None
    states: tuple[str, ...] = ()
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[A11yNode] = field(default_factory=list)
    partial: bool = False

    def walk(self) -> Iterator[A11yNode]:
        """Yield this element and all below it, each before its children."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))
