"""One element of an accessibility tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class A11yNode:
    """One element.

    Attributes:
        role: such as ``push-button``.
        name: its label.
        text: its content; empty where it has none.
        box: x, y, width and height on the screen, in pixels; None where it does not show.
        states: such as ``focused``, ``enabled``, in the order in which they came.
        attributes: the rest, by name with its prefix (``val:value``, ``attr:class``).
        children: in order.
        partial: something in it or below it could not be read in time, or was too much.
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
