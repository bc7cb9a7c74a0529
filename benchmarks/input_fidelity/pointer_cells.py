"""Cells about the pointer and raw keys: clicks, strokes, wheels, chords, held keys."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from benchmarks.input_fidelity.stage import Act, Cell, Point, Stage, named
from benchmarks.input_fidelity.text_cells import key
from benchmarks.input_fidelity.witnessing import Event

PATH = ((0.1, 0.2), (0.3, 0.8), (0.6, 0.2), (0.9, 0.7))
"""Corners of a drag, as parts of the target's width and height."""
OFF_LINE_PX = 1.5
"""Distance from which a point is off the path: coordinates are whole pixels."""
HOLD_MS = 900
"""Time after which autorepeat has begun: X waits 660 ms."""


def _clicks(events: Iterable[Event]) -> list[list[int]]:
    return named(events, "click", "button", "count")


def _click(stage: Stage, *steps: list[Act], expected: list[list[int]]) -> None:
    for actions in steps:
        stage.step(*actions, settle="fast")
    stage.expect("buttons and counts", expected, _clicks)
    x, y = stage.at("area")
    places = [[x, y]] * len(expected)
    stage.expect("where", places, lambda events: named(events, "click", "x", "y"))


def _one(button: str, number: int) -> Cell:
    def play(stage: Stage) -> None:
        _click(stage, [stage.click("area", button=button)], expected=[[number, 1]])

    return Cell("", "", ("area",), play)


def _counted(count: int) -> Cell:
    def play(stage: Stage) -> None:
        expected = [[1, told] for told in stage.counts[:count]]
        _click(stage, [stage.click("area", count=count)], expected=expected)

    return Cell("", "", ("area",), play)


def _apart_in_steps(stage: Stage) -> None:
    click = stage.click("area")
    _click(stage, [click], [click], expected=[[1, 1], [1, 1]])


def _apart_in_one_step(stage: Stage) -> None:
    click = stage.click("area")
    _click(stage, [click, click], expected=[[1, 1], [1, 1]])


def _stroke(stage: Stage) -> None:
    path = [stage.at("area", x, y) for x, y in PATH]
    stage.step({"op": "drag", "path": [list(point) for point in path]})

    def received(events: list[Event]) -> list[object]:
        strokes = [event for event in events if event["event"] == "drag"]
        off = [point for stroke in strokes for point in stroke.get("path", ()) if not _on(path, point)]
        return [[stroke["from"], stroke["to"]] for stroke in strokes] + off

    stage.expect("begin and end, points off the line", [[list(path[0]), list(path[-1])]], received)


def _on(path: list[Point], point: list[int]) -> bool:
    return any(_distance(a, b, point) <= OFF_LINE_PX for a, b in itertools.pairwise(path))


def _distance(a: Point, b: Point, point: list[int]) -> float:
    """Return the distance of a point from the line between two others, in pixels."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    length2 = dx * dx + dy * dy or 1
    along = min(1.0, max(0.0, ((point[0] - a[0]) * dx + (point[1] - a[1]) * dy) / length2))
    return float(((a[0] + along * dx - point[0]) ** 2 + (a[1] + along * dy - point[1]) ** 2) ** 0.5)


def _wheel(dx: int, dy: int) -> Cell:
    def play(stage: Stage) -> None:
        x, y = stage.at("scroll")
        stage.step({"op": "scroll", "x": x, "y": y, "dx": dx, "dy": dy})
        stage.expect("clicks of the wheel", [dx, dy], _turned)

    return Cell("", "", ("scroll",), play)


def _turned(events: list[Event]) -> list[float]:
    turns = named(events, "scroll", "dx", "dy")
    return [round(sum(turn[0] for turn in turns), 3), round(sum(turn[1] for turn in turns), 3)]


def _downs(events: Iterable[Event]) -> list[str]:
    return [
        event["name"]
        for event in events
        if event["event"] == "key" and event["down"] and not event["name"].endswith(("_L", "_R"))
    ]


def _keys(expected: list[str], *actions: Act) -> Cell:
    def play(stage: Stage) -> None:
        stage.step(stage.click("keys"))
        stage.step(*actions)
        stage.expect("keys", expected, _downs)

    return Cell("", "", ("keys",), play)


def _hold(stage: Stage) -> None:
    stage.step(stage.click("keys"))
    stage.step({"op": "hold", "keys": ["a"], "duration_ms": HOLD_MS})

    def received(events: list[Event]) -> list[object]:
        pairs = [tuple(pair) for pair in named(events, "key", "name", "down")]
        return [pairs[:1], pairs[-1:], sorted({name for name, _ in pairs}), len(pairs) > 2]

    expected = [[("a", True)], [("a", False)], ["a"], True]
    stage.expect("first and last event, keys, autorepeat", expected, received)


CELLS = (
    Cell("click", "a click", ("area",), _one("left", 1).play, quick=True),
    Cell("double", "a click with count 2", ("area",), _counted(2).play, quick=True),
    Cell("triple", "a click with count 3", ("area",), _counted(3).play),
    Cell(
        "two-steps", "two clicks on one place in two steps are two single clicks", ("area",), _apart_in_steps
    ),
    Cell("two-clicks", "the same in one step", ("area",), _apart_in_one_step),
    Cell("right", "the right button", ("area",), _one("right", 3).play),
    Cell("middle", "the middle button", ("area",), _one("middle", 2).play),
    Cell("stroke", "a drag along four points", ("area",), _stroke, quick=True),
    Cell("scroll", "3 clicks down", ("scroll",), _wheel(0, 3).play, quick=True),
    Cell("scroll-up", "5 clicks up", ("scroll",), _wheel(0, -5).play),
    Cell("scroll-far", "60 clicks down", ("scroll",), _wheel(0, 60).play),
    Cell("scroll-side", "2 clicks to the right", ("scroll",), _wheel(2, 0).play),
    Cell("chord", "Ctrl+S", ("keys",), _keys(["ctrl+s"], key("ctrl", "s")).play, quick=True),
    Cell("chord-3", "Ctrl+Shift+S", ("keys",), _keys(["ctrl+shift+s"], key("ctrl", "shift", "s")).play),
    Cell("repeat", "Down ten times", ("keys",), _keys(["Down"] * 10, key("Down", repeat=10)).play),
    Cell(
        "shift-held",
        "Shift pressed, Right three times, Shift released",
        ("keys",),
        _keys(
            ["shift+Right"] * 3,
            {"op": "key_down", "key": "shift"},
            key("Right", repeat=3),
            {"op": "key_up", "key": "shift"},
        ).play,
    ),
    Cell("hold", "a key held for 900 ms", ("keys",), _hold, quick=True),
)
