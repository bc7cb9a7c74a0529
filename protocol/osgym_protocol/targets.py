"""Targets of scripts: elements of the accessibility tree by role and name, in place of fixed pixels.

An action of a script may have `at` in place of `x` and `y`: `{"role", "name", "nth", "app"}`. The player
replaces it by pixels of the screen that it acts on; no host is ever sent an `at`. Spaces around a name are
ignored: GTK pads those of menu items. With `app` only elements of the application of that name count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

LOOK_S = 20.0
"""Time within which an element must appear on a busy machine; it is looked for at least twice."""
_AGAIN_S = 0.2
_APPLICATION = "application"


class Node(Protocol):
    """Fields that are read of an element, such as `osgym_protocol.a11y.A11yNode`."""

    @property
    def role(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def box(self) -> tuple[int, int, int, int] | None: ...


class TargetMissing(LookupError):
    """No such element is on the screen."""


def has_targets(steps: Iterable[Sequence[Mapping[str, Any]]]) -> bool:
    """Return whether any action of these steps points at an element."""
    return any("at" in action for step in steps for action in step)


def placed(
    step: Sequence[Mapping[str, Any]], place: Callable[[Mapping[str, Any]], tuple[int, int]]
) -> list[dict[str, Any]]:
    """Return the step with pixels in place of its targets, as `place` returns them."""
    made: list[dict[str, Any]] = []
    for action in step:
        plain = {name: value for name, value in action.items() if name != "at"}
        if "at" in action:
            plain["x"], plain["y"] = place(action["at"])
        made.append(plain)
    return made


def place_in(nodes: Iterable[Node]) -> Callable[[Mapping[str, Any]], tuple[int, int]]:
    """Return a function that finds the middle of a target among elements.

    Args:
        nodes: Elements of a tree, each before its children.

    Raises:
        TargetMissing: By that function, for a target that is not visible.
    """
    shown: list[tuple[str, Node]] = []
    app = ""
    for node in nodes:  # each before its children
        if node.role == _APPLICATION:
            app = node.name.strip()
        if node.box is not None and node.box[2] > 0 and node.box[3] > 0:
            shown.append((app, node))

    def place(target: Mapping[str, Any]) -> tuple[int, int]:
        nth = target.get("nth", 0)
        role, name = target["role"], target["name"].strip()
        found = [
            node
            for app, node in shown
            if node.role == role and node.name.strip() == name and target.get("app", app) == app
        ]
        if len(found) <= nth:
            where = f" of {target['app']}" if "app" in target else ""
            what = f"{target['role']} {target['name']!r}{where} (number {nth})"
            raise TargetMissing(f"no {what} is on the screen")
        box = found[nth].box
        assert box is not None
        return box[0] + box[2] // 2, box[1] + box[3] // 2

    return place


async def placed_on(
    episode: Any,
    step: Sequence[Mapping[str, Any]],
    *,
    timeout_s: float = LOOK_S,
    again_after: tuple[type[Exception], ...] = (TargetMissing,),
) -> list[dict[str, Any]]:
    """Return the step with pixels, waiting until the episode's desktop shows all its targets.

    Args:
        episode: Episode whose `a11y()` returns the tree.
        again_after: Errors after which it looks again.

    Raises:
        TargetMissing: A target does not appear within the time.
        Exception: Error of `a11y()`.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    is_first = True
    while True:
        try:
            return placed(step, place_in((await episode.a11y()).nodes()))
        except again_after:
            if loop.time() >= end and not is_first:
                raise
        is_first = False
        await asyncio.sleep(_AGAIN_S)


def is_target(value: Any) -> bool:
    """Return whether a value is valid as an action's `at`."""
    return (
        isinstance(value, Mapping)
        and value.keys() <= {"role", "name", "nth", "app"}
        and all(isinstance(value.get(key), str) for key in ("role", "name"))
        and isinstance(value.get("app", ""), str)
        and type(value.get("nth", 0)) is int
        and value.get("nth", 0) >= 0
    )


def reaching(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task with permission for its player to read the accessibility tree."""
    osgym = dict(task.get("osgym", {}))
    allowed = osgym.get("reach", True)
    if allowed is not True:
        osgym["reach"] = sorted({*(allowed or ()), "a11y"})
    return {**task, "osgym": osgym}
