"""Cells about documents of an office: their text, their cells, and saving them by the office's own dialog."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

from benchmarks.input_fidelity.stage import Act, Cell, Stage, text_of
from benchmarks.input_fidelity.text_cells import FOLDER, key, typed

UNICODE = "Grüße ☃ мир 漢字 éπ 😀"
Play = Callable[[Stage], None]


def _unicode_lines(stage: Stage) -> None:
    stage.step(stage.click("multiline"))
    stage.step(typed(f"{UNICODE}\n{UNICODE}"))
    stage.expect_text("multiline", f"{UNICODE}\n{UNICODE}")


def _save(*, one_step: bool) -> Play:
    """Save the document without a suffix, which the office adds."""

    def play(stage: Stage) -> None:
        stage.run(f"mkdir -p {FOLDER}")
        stage.step(stage.click("document"))
        opening, naming = key("ctrl", "shift", "s"), typed(f"{FOLDER}/new\n")
        for actions in [(opening, naming)] if one_step else [(opening,), (naming,)]:
            stage.step(*actions, settle="certain")

        def saved(_: object) -> list[str]:
            names = stage.episode.execute(["ls", FOLDER]).stdout.split()
            return [PurePosixPath(name).stem for name in names]

        stage.expect("saved documents", ["new"], saved)

    return play


def _sheet(expected: dict[str, str], *actions: Act | str) -> Play:
    """Click A1 and do the actions; the name of a cell among them is a click into it."""

    def play(stage: Stage) -> None:
        stage.step(stage.click("A1"))
        stage.step(*(stage.click(one) if isinstance(one, str) else one for one in actions))
        stage.expect("cells", expected, lambda events: {name: text_of(events, name) for name in expected})

    return play


def _sheet_cell(name: str, about: str, expected: dict[str, str], *actions: Act | str) -> Cell:
    return Cell(name, about, tuple(expected), _sheet(expected, *actions))


CELLS = (
    Cell("lines-unicode", "two lines of five scripts and an emoji", ("multiline",), _unicode_lines),
    Cell(
        "document-save",
        "a path into the Save As dialog of an office, a step after Ctrl+Shift+S",
        ("document",),
        _save(one_step=False),
        changes_desktop=True,
    ),
    Cell(
        "document-save-one-step",
        "the same in one step",
        ("document",),
        _save(one_step=True),
        changes_desktop=True,
    ),
    _sheet_cell(
        "sheet-column",
        "three numbers with Enter, into cells of a sheet",
        {"A1": "1", "A2": "22", "A3": "333"},
        typed("1\n22\n333\n"),
    ),
    _sheet_cell(
        "sheet-row",
        "two words with Tab, Enter, and a third one",
        {"A1": "left", "B1": "right", "A2": "below"},
        typed("left\tright\nbelow\n"),
    ),
    _sheet_cell(
        "sheet-clicks",
        "a word, a click into another cell and its word, in one step",
        {"A1": "one", "C3": "two"},
        typed("one"),
        "C3",
        typed("two\n"),
    ),
    _sheet_cell(
        "sheet-edit",
        "a word, Backspace and its end, in one step",
        {"A1": "abc"},
        typed("abx"),
        key("BackSpace"),
        typed("c\n"),
    ),
    _sheet_cell(
        "sheet-unicode", "five scripts and an emoji into a cell", {"A1": UNICODE}, typed(f"{UNICODE}\n")
    ),
)
