"""Parts of long tasks in LibreOffice Impress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from osgym_tasks import impress
from osgym_tasks.family import Steps
from osgym_tasks.impress import Slide
from osgym_tasks.long import Part
from osgym_tasks.long_parts import name_of
from osgym_tasks.pieces import key
from osgym_tasks.web import typed


def slides_part(path: str, slides: Sequence[Slide], lines: Mapping[int, str]) -> Part:
    """Return the part that adds a line to slides, from the first slide to the last, and saves them."""
    steps: Steps = []
    here = 0
    for at, line in lines.items():
        steps += [[key("pagedown")]] * (at - here)
        steps += [
            [key("tab"), key("tab")],
            [key("f2")],
            [key("ctrl", "end"), key("enter"), typed(line)],
            [key("esc")],
            [key("esc")],
        ]
        here = at
    after = [(*slide, lines[at]) if at in lines else slide for at, slide in enumerate(slides)]
    check = impress.wanted_slides(path, after)
    return Part("the slides", 3, check, [(name_of(path), steps)], [(name_of(path), impress.SAVE)])
