"""Use of the pointer: motions of a drag that applications follow, and clicks that they tell apart. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from osgym_protocol.actions import Point

DRAG_START_PX = 12
"""Length of the first motion, beyond the drag thresholds of the toolkits (GTK 8 px, Qt 10 px)."""
ARRIVAL_PX = (9, 6, 3, 0)
"""Distances from the end at which a drag stops until the applications follow.

Found by trying: an HTML5 drop in Chromium needs several motions over its target, however long one waits after
the first.
"""
DOUBLE_CLICK_S = 0.52
"""Time a little above the longest double-click time of a toolkit (Chromium, Tk, Swing 500 ms, others 400)."""
DOUBLE_CLICK_PX = 10
"""Distance beyond which no toolkit takes two clicks for a double click (GTK and Tk 5 px, Chromium 4 px)."""


def drag_motions(path: Sequence[Point]) -> list[tuple[Point, bool]]:
    """Return the motions along a path, from its second point on, and after which of them to wait.

    All of them lie on the path, in its order, and the last is its end. The first passes the toolkits' drag
    thresholds, the last few lie close before the end.

    Args:
        path: Two points or more, in pixels; the button is pressed at the first.
    """
    motions: list[tuple[Point, bool]] = []
    begin = _along(path[0], path[1], DRAG_START_PX)
    motions.append((begin, True))
    motions += [(point, False) for point in path[1:-1]]
    last_from = begin if len(path) == 2 else path[-2]
    end = path[-1]
    length = _distance(last_from, end)
    for before in ARRIVAL_PX:
        if 0 < before < length:
            motions.append((_along(last_from, end, length - before), True))
    if end != motions[-1][0]:
        motions.append((end, True))
    return motions


def _distance(start: Point, goal: Point) -> int:
    return max(abs(goal[0] - start[0]), abs(goal[1] - start[1]))


def _along(start: Point, goal: Point, distance: int) -> Point:
    """Return the point `distance` from `start` towards `goal`, or `goal` when it is nearer."""
    whole = _distance(start, goal)
    if whole <= distance:
        return goal
    dx, dy = goal[0] - start[0], goal[1] - start[1]
    return start[0] + dx * distance // whole, start[1] + dy * distance // whole


def separation_s(passed_s: float, first: Point, second: Point) -> float:
    """Return the wait before a press after which it no longer belongs to the click before.

    A double click is asked for by a click's `count`.

    Args:
        passed_s: Time since the last press of the same button.
        first, second: Places of that press and of the next one, in pixels.
    """
    if _distance(first, second) > DOUBLE_CLICK_PX:
        return 0.0
    return max(0.0, DOUBLE_CLICK_S - passed_s)
