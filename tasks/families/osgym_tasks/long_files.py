"""Parts of long tasks that make files: pictures that GIMP exports, sheets as CSV, documents with headings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from PIL import Image

from osgym_tasks import calc, gimp, writer
from osgym_tasks.family import Steps
from osgym_tasks.long import Part
from osgym_tasks.long_parts import name_of
from osgym_tasks.pieces import key, text_check


@dataclass(frozen=True, slots=True)
class Picture:
    """Picture that GIMP changes and exports as a new PNG file.

    Attributes:
        source: Path of the original file.
        target: Path of the new file.
        edit: Steps that change the picture.
        after: Changed picture.
        edge_px: Distance from edges within which GIMP's pixels are not Pillow's.
    """

    source: str
    target: str
    edit: Steps
    after: Image.Image
    edge_px: int = 0

    def part(self, window: str, *, is_open: bool = False, edit: Steps | None = None) -> Part:
        """Return the part that makes the new file.

        Args:
            window: Title of GIMP's window.
            is_open: GIMP shows the picture already.
            edit: Steps in place of the right ones.
        """
        legs = [*([] if is_open else gimp.opened(self.source)), *(edit or self.edit)]
        check = gimp.picture_check(
            self.target, self.after, tolerance=6 if self.edge_px else 2, edge_px=self.edge_px, format="PNG"
        )
        export = gimp.exported(self.target)
        return Part(f"the picture {name_of(self.source)}", 1, check, [(window, legs)], [(window, export)])


def exported_csv_part(book: str, target: str, text: str, legs: Steps) -> Part:
    """Return the part that saves the shown sheet as CSV, after which Calc shows that file.

    Args:
        book: Path of the open workbook.
        target: Path of the new file.
        text: Its lines, each with its end.
        legs: Steps that show the sheet and prepare it.
    """
    save = [
        [key("ctrl", "shift", "s"), calc.pause(1500)],
        [key("ctrl", "a"), calc.typed(target), calc.pause(1500)],
        *([[key("enter"), calc.pause(1500)]] * 2),
    ]
    window = name_of(book)
    return Part("the export", 2, text_check(target, text), [(window, legs)], [(window, save)])


def headings_part(path: str, rows: Sequence[str], headings: Sequence[str]) -> Part:
    """Return the part that gives lines of a document the style Heading 1 and saves it."""
    steps: Steps = [
        [*writer.at_paragraph(rows.index(heading)), writer.CALM, key("ctrl", "1"), writer.CALM]
        for heading in headings
    ]
    styled = ".//w:pStyle[@w:val='Heading1']/../.."
    check = writer.wanted_parts(path, {"path": styled, "values": [*headings]})
    return Part("the headings", 2, check, [(name_of(path), steps)], [(name_of(path), writer.SAVE)])


def paragraphs_part(path: str, rows: Sequence[str], below: Mapping[str, str]) -> Part:
    """Return the part that adds a paragraph below lines of a document, from the last one up, and saves it.

    Args:
        below: New paragraphs by the lines above them.
    """
    steps: Steps = []
    for above in reversed([*below]):
        steps.append([*writer.at_paragraph(rows.index(above)), key("end"), writer.CALM, key("enter")])
        steps.append([writer.CALM, {"op": "type", "text": below[above]}, writer.CALM])
    made = [one for row in rows for one in ([row, below[row]] if row in below else [row])]
    check = writer.wanted_text(path, made)
    return Part("the paragraphs", 3, check, [(name_of(path), steps)], [(name_of(path), writer.SAVE)])
