"""Where an oracle points without fixed pixels: elements of the accessibility tree, by role and name.

An action may say `at` in the place of `x` and `y`; who plays it looks it up on the screen of its step.
"""

from __future__ import annotations

from typing import Any

from osgym_sdk.targets import Node, TargetMissing, has_targets, place_in, placed, placed_on, reaching

__all__ = ["Node", "TargetMissing", "click", "has_targets", "place_in", "placed", "placed_on", "reaching"]


def click(role: str, name: str, *, nth: int = 0, **also: Any) -> dict[str, Any]:
    """Click the middle of an element.

    Args:
        role: as the tree says it (`push-button`, `menu-item`, `entry`).
        name: its whole name.
        nth: of several, in the order of the tree.
        also: more of the action, such as `count=2`.
    """
    return {"op": "click", "at": {"role": role, "name": name, "nth": nth}, **also}
