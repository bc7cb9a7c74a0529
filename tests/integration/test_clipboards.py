"""Clipboards of a real replica: between programs, large, of several kinds, and untouched by typing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from benchmarks.desktop_fidelity.__main__ import served
from benchmarks.desktop_fidelity.clipboards import EDITORS, LOST, cells
from benchmarks.desktop_fidelity.stage import Cell, NotApplicable, Stage

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]
ALL = list(cells())
LOST_WITH_ITS_PROGRAM = [cell for cell in ALL if cell.column == "kept when closed" and "(" in cell.row]
RIGHT = [cell for cell in ALL if cell not in LOST_WITH_ITS_PROGRAM]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One replica for all tests."""
    with served("small") as stage:
        yield stage


@pytest.mark.parametrize("cell", RIGHT, ids=[f"{cell.row}: {cell.column}" for cell in RIGHT])
def test_what_is_copied_is_what_is_pasted(stage: Stage, cell: Cell) -> None:
    """Texts, HTML, images, files and ten megabytes; PRIMARY, CLIPBOARD and typing do not touch each other."""
    cell.run(stage)


@pytest.mark.parametrize("cell", LOST_WITH_ITS_PROGRAM, ids=[editor.name for editor in EDITORS])
def test_what_a_closed_program_had_copied_is_gone(stage: Stage, cell: Cell) -> None:
    """As docs/desktop.md says: no clipboard manager runs in the image."""
    with pytest.raises(NotApplicable, match=LOST):
        cell.run(stage)
