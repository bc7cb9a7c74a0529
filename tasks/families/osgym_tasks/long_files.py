"""Parts of long tasks that make files: pictures that GIMP exports, sheets as CSV."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image

from osgym_tasks import calc, gimp
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
        whole: Every pixel is compared; False where GIMP's edges are not Pillow's.
    """

    source: str
    target: str
    edit: Steps
    after: Image.Image
    whole: bool = True

    def part(self, window: str, *, is_open: bool = False, edit: Steps | None = None) -> Part:
        """Return the part that makes the new file.

        Args:
            window: Title of GIMP's window.
            is_open: GIMP shows the picture already.
            edit: Steps in place of the right ones.
        """
        legs = [*([] if is_open else gimp.opened(self.source)), *(edit or self.edit)]
        check = gimp.picture_check(
            self.target, self.after, tolerance=2 if self.whole else 6, whole=self.whole, format="PNG"
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
