"""Where an oracle points without fixed pixels: elements of the accessibility tree, by role and name.

An action may say `at` in the place of `x` and `y`; who plays it looks it up on the screen of its step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol


class Node(Protocol):
    """What is read of an element of `osgym_sdk.A11yTree`."""

    @property
    def role(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def box(self) -> tuple[int, int, int, int] | None: ...


class TargetMissing(LookupError):
    """No such element shows on the screen."""


def click(role: str, name: str, *, nth: int = 0, **also: Any) -> dict[str, Any]:
    """Click the middle of an element.

    Args:
        role: as the tree says it (`push-button`, `menu-item`, `entry`).
        name: its whole name.
        nth: of several, in the order of the tree.
        also: more of the action, such as `count=2`.
    """
    return {"op": "click", "at": {"role": role, "name": name, "nth": nth}, **also}


def has_targets(steps: Iterable[Sequence[Mapping[str, Any]]]) -> bool:
    """Whether any action of these steps points at an element."""
    return any("at" in action for step in steps for action in step)


def placed(
    step: Sequence[Mapping[str, Any]], place: Callable[[Mapping[str, Any]], tuple[int, int]]
) -> list[dict[str, Any]]:
    """The step with pixels in the place of its targets, as `place` says."""
    made: list[dict[str, Any]] = []
    for action in step:
        plain = {name: value for name, value in action.items() if name != "at"}
        if "at" in action:
            plain["x"], plain["y"] = place(action["at"])
        made.append(plain)
    return made


def place_in(nodes: Iterable[Node]) -> Callable[[Mapping[str, Any]], tuple[int, int]]:
    """What finds targets among elements: the middle of the one that is meant, if it shows.

    Raises:
        TargetMissing: when it is called for one that is not there.
    """
    shown = [node for node in nodes if node.box is not None and node.box[2] > 0 and node.box[3] > 0]

    def place(target: Mapping[str, Any]) -> tuple[int, int]:
        found = [node for node in shown if (node.role, node.name) == (target["role"], target["name"])]
        if len(found) <= target["nth"]:
            raise TargetMissing(f"no {target['role']} {target['name']!r} (number {target['nth']}) shows")
        box = found[target["nth"]].box
        assert box is not None
        return box[0] + box[2] // 2, box[1] + box[3] // 2

    return place
