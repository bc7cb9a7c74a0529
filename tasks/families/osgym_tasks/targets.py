"""Targets of oracles: elements of the accessibility tree by role and name, in place of fixed pixels.

An action may have `at` in place of `x` and `y`; the player looks it up on the screen of its step.
"""

from __future__ import annotations

from typing import Any

from osgym_sdk.targets import Node, TargetMissing, has_targets, place_in, placed, placed_on, reaching

__all__ = ["Node", "TargetMissing", "click", "has_targets", "place_in", "placed", "placed_on", "reaching"]


def click(role: str, name: str, *, nth: int = 0, app: str | None = None, **also: Any) -> dict[str, Any]:
    """Click the middle of an element.

    Args:
        role: Role in the tree (`push-button`, `menu-item`, `entry`).
        name: Whole name.
        nth: Index among several, in the order of the tree.
        app: Application that has it; None: any.
        also: Further fields of the action, such as `count=2`.
    """
    at = {"role": role, "name": name, "nth": nth}
    return {"op": "click", "at": at if app is None else {**at, "app": app}, **also}
