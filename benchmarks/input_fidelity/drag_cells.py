"""Cells about drag and drop: within a program, between programs, out of the file manager."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath

from benchmarks.input_fidelity.stage import Act, Cell, Point, Stage, named
from benchmarks.input_fidelity.witnessing import Event, Witness, move_window, until
from osgym_sdk import Window

Move = Callable[[Stage, Point, Point], None]
DRAGGED = "/home/user/dragged"
FILE = "take-me.txt"
FILES_S = 20.0
FIRST_ICON_PX = (226, 101)
"""Place of the only file of a folder in the file manager's window."""
LEFT, RIGHT = (0, 0), (1000, 0)
"""Places of two windows beside each other on a screen of 1920 pixels."""


def _moves(start: Point, end: Point) -> tuple[Act, Act, Act]:
    return (
        {"op": "button_down", "x": start[0], "y": start[1]},
        {"op": "move", "x": end[0], "y": end[1]},
        {"op": "button_up"},
    )


def _by_drag(stage: Stage, start: Point, end: Point) -> None:
    stage.step({"op": "drag", "path": [list(start), list(end)]})


def _by_one_step(stage: Stage, start: Point, end: Point) -> None:
    stage.step(*_moves(start, end))


def _by_three_steps(stage: Stage, start: Point, end: Point) -> None:
    for action in _moves(start, end):
        stage.step(action)


def _by_anthropic(stage: Stage, start: Point, end: Point) -> None:
    action = {"action": "left_click_drag", "start_coordinate": list(start), "coordinate": list(end)}
    stage.say({"type": "tool_use", "id": "t1", "name": "computer", "input": action}, "anthropic")


def _by_pyautogui(stage: Stage, start: Point, end: Point) -> None:
    source = f"pyautogui.moveTo({start[0]}, {start[1]})\npyautogui.dragTo({end[0]}, {end[1]}, 0.5)"
    stage.say(source, "pyautogui")


def _within(move: Move) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        move(stage, stage.at("source"), stage.at("drop"))
        _expect_drop(stage, stage.payload)

    return play


def _expect_drop(stage: Stage, data: str) -> None:
    def received(events: list[Event]) -> list[str]:
        return [str(one).strip("\0\r\n") for one in named(events, "drop", "data")]

    stage.expect("what was dropped", [data], received)


def _from_partner(stage: Stage) -> None:
    partner = _partner(stage)
    partner.move_to(*LEFT)
    stage.witness.move_to(*RIGHT)
    _by_drag(stage, stage.at("source", of=partner), stage.at("drop"))
    _expect_drop(stage, f"payload-{partner.toolkit.name}")


def _from_files(stage: Stage) -> None:
    stage.witness.move_to(*RIGHT)
    stage.run(f"mkdir -p {DRAGGED} && touch {DRAGGED}/{FILE} && (pcmanfm {DRAGGED} >/dev/null 2>&1 &)")

    def shown() -> list[Window]:
        return [window for window in stage.episode.windows() if window.title == Path(DRAGGED).name]

    for window in until(shown, FILES_S):
        dx, dy = move_window(stage.episode, window, *LEFT)
        stage.step({"op": "wait", "duration_ms": 0}, settle="certain")
        icon = (window.x_px + dx + FIRST_ICON_PX[0], window.y_px + dy + FIRST_ICON_PX[1])
        _by_drag(stage, icon, stage.at("drop"))
        stage.expect("name of the dropped file", [FILE], _dropped_names)
        return
    raise RuntimeError("the file manager shows no window")


def _dropped_names(events: list[Event]) -> list[str]:
    # browsers do not tell pages more of a file than its name
    return [PurePosixPath(str(one).strip("\0\r\n")).name for one in named(events, "drop", "data")]


def _partner(stage: Stage) -> Witness:
    if stage.partner is None:
        raise RuntimeError("this cell needs a second program")
    return stage.partner


def _within_cell(name: str, about: str, move: Move) -> Cell:
    return Cell(name, about, ("source", "drop"), _within(move))


CELLS = (
    _within_cell("dnd-drag", "drag and drop by the action `drag`", _by_drag),
    _within_cell("dnd-one-step", "by button_down, move and button_up in one step", _by_one_step),
    _within_cell("dnd-three-steps", "the same in three steps", _by_three_steps),
    _within_cell("dnd-anthropic", "by Anthropic's left_click_drag", _by_anthropic),
    _within_cell("dnd-pyautogui", "by pyautogui's moveTo and dragTo", _by_pyautogui),
    Cell("dnd-from-gtk3", "from a program of GTK 3", ("drop",), _from_partner, partner="gtk3"),
    Cell("dnd-from-qt5", "from a program of Qt 5", ("drop",), _from_partner, partner="qt5"),
    Cell("dnd-file", "a file out of the file manager", ("drop",), _from_files, changes_desktop=True),
)
