"""Parts of long tasks that make files: pictures that GIMP exports."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image

from osgym_tasks import gimp
from osgym_tasks.family import Steps
from osgym_tasks.long import Part
from osgym_tasks.long_parts import name_of


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
