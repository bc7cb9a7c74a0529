"""Workbooks with what the oracle changed in them, for changes that prefer these places."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from osgym_certify.ends.base import GoldenFile
from osgym_certify.ends.ooxml import Change, Package, UnreadableFile, before_of
from osgym_certify.ends.xlsx_parts import EMPTY, Book, CellContent, Place, Sheet


@dataclass(frozen=True, slots=True)
class CellChange:
    """A cell whose content the oracle changed."""

    sheet: str
    place: Place
    before: CellContent


def changed_cells(after: Book, before: Book | None) -> list[CellChange]:
    """Return the cells that differ between two workbooks; empty without a workbook before.

    Sheets are paired by name, else by place. Cells of array formulas are left out: one of them cannot be
    changed alone.
    """
    found: list[CellChange] = []
    for number, sheet in enumerate(after.sheets if before is not None else ()):
        assert before is not None
        old = before.sheet(sheet.name)
        if old is None and number < len(before.sheets) and after.sheet(before.sheets[number].name) is None:
            old = before.sheets[number]
        if old is None:
            continue
        now, then, fixed = sheet.filled(), old.filled(), sheet.array_places() | old.array_places()
        for place in sorted({*now, *then} - fixed):
            was = then.get(place, EMPTY)
            if now.get(place, EMPTY).comparable != was.comparable:
                found.append(CellChange(sheet.name, place, was))
    return found


@dataclass(frozen=True, slots=True)
class Scene:
    """A workbook to change, and what the oracle changed in it.

    Attributes:
        book: Workbook of the golden end, which may be changed.
        before: Workbook before the oracle; None if there was no file, or none that can be read.
        changed: Cells that the oracle changed.
        dice: Draws of this change.
    """

    book: Book
    before: Book | None
    changed: list[CellChange]
    dice: random.Random

    @classmethod
    def of(cls, package: Package, golden: GoldenFile, dice: random.Random) -> Scene:
        """Read the workbooks of a golden file.

        Raises:
            UnreadableFile: The golden file is no workbook.
        """
        book, parts = Book(package), before_of(golden)
        try:
            before = None if parts is None else Book(parts)
        except UnreadableFile:
            before = None
        return cls(book, before, changed_cells(book, before), dice)

    def draw_cell(self, fits: Callable[[Sheet, Place, CellContent], bool]) -> tuple[Sheet, Place] | None:
        """Draw a filled cell that fits, one that the oracle changed if any does."""
        mine = self.mine
        found: list[tuple[Sheet, Place]] = []
        for sheet in self.book.sheets:
            fixed = sheet.array_places()
            found += [
                (sheet, place)
                for place, content in sheet.filled().items()
                if place not in fixed and fits(sheet, place, content)
            ]
        preferred = [(sheet, place) for sheet, place in found if (sheet.name, place) in mine]
        return self.dice.choice(preferred or found) if found else None

    @property
    def mine(self) -> set[tuple[str, Place]]:
        """Cells that the oracle changed, by sheet and place."""
        return {(change.sheet, change.place) for change in self.changed}

    def draw_sheet(self) -> Sheet | None:
        """Draw a sheet with contents, one that the oracle changed if any."""
        mine = {change.sheet for change in self.changed}
        found = [sheet for sheet in self.book.sheets if sheet.filled()]
        preferred = [sheet for sheet in found if sheet.name in mine]
        return self.dice.choice(preferred or found) if found else None


Mutation = Callable[[Scene], bool]
"""Change of a scene's workbook. It returns whether it changed anything."""


def change_of(mutation: Mutation) -> Change:
    """Return a mutation as a change of parts."""
    return lambda package, golden, dice: mutation(Scene.of(package, golden, dice))
