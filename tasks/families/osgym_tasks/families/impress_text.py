"""impress.text: change titles and lines of slides that have some lines in common."""

from __future__ import annotations

import random
from dataclasses import dataclass

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.impress import (
    APPS,
    CALM,
    SAVE,
    Slide,
    draw_lines,
    draw_slides,
    draw_title,
    opened,
    path_of,
    rest_kept,
    wanted_slides,
)
from osgym_tasks.pieces import DONE, every, key

_SLIDES = {1: 3, 2: 5, 3: 9, 4: 14, 5: 20}
_LINES = {1: 2, 2: 3, 3: 4, 4: 5, 5: 6}
_EDITS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6}
_WORDINGS = (
    "The presentation {path} is open in Impress. {edits}. Change nothing else and save it in its format.",
    "In the open presentation {path}, do the following. {edits}. All other text stays; save the file as odp.",
    "Please correct some slides of {path}, which you see in Impress. {edits}. Leave the rest as it is and "
    "save under the same name.",
    "The figures have changed since I made these slides. {edits}. Everything else in the open presentation "
    "stays, and you save it.",
    "I found mistakes when I rehearsed this talk. {edits}. Please change nothing else, and save the "
    "presentation under its name.",
    "My boss has read the slides that you see and wants some changes. {edits}. Keep the rest as it is, "
    "then save.",
)


@dataclass(frozen=True, slots=True)
class _Edit:
    """A new text on a slide, both counted from 0; the line after the last is a new one.

    Attributes:
        line: Number of the line; 0 is the title.
    """

    slide: int
    line: int
    text: str

    def says(self, slides: list[Slide]) -> str:
        title, *lines = slides[self.slide]
        if self.line == 0:
            return f'Change the title of slide {self.slide + 1} from "{title}" to "{self.text}"'
        where = f'slide {self.slide + 1} ("{title}")'
        if self.line > len(lines):
            return f'Add the line "{self.text}" below the last line of {where}'
        return f'Replace the line "{lines[self.line - 1]}" of {where} by "{self.text}"'

    def enter(self, slides: list[Slide]) -> Steps:
        """Return steps that choose the box on its slide by Tab, type, and leave the box."""
        text = {"op": "type", "text": self.text}
        if self.line == 0:
            put = [key("ctrl", "a"), text]
        elif self.line == len(slides[self.slide]):
            put = [key("ctrl", "end"), key("enter"), text]
        else:
            put = [
                key("ctrl", "home"),
                *([key("down")] * (self.line - 1)),
                key("home"),
                key("shift", "end"),
                text,
            ]
        tabs = [key("tab")] * (1 if self.line == 0 else 2)
        return [tabs, [key("f2")], put, [key("esc")], [key("esc")]]


def _draft(dice: random.Random, level: int) -> Draft:
    slides = draw_slides(dice, _SLIDES[level], _LINES[level])
    chosen = sorted(dice.sample(range(len(slides)), min(_EDITS[level], len(slides))))
    edits = [_edit(dice, slides, at, number + level) for number, at in enumerate(chosen)]
    path = path_of(dice)
    after = _after(slides, edits)
    last = edits[-1]
    twin = _Edit((last.slide or 2) - 1, last.line, last.text)
    near = {
        "the slide before": [*_ways(slides, [*edits[:-1], twin]), *SAVE, DONE],
        "not saved": [*_ways(slides, edits), DONE],
        "a title in bold too": [*_ways(slides, edits), [key("tab")], [key("ctrl", "b"), CALM], *SAVE, DONE],
    }
    if len(edits) > 1:
        near["one forgotten"] = [*_ways(slides, edits[:-1]), *SAVE, DONE]
    return Draft(
        _WORDINGS,
        {"path": path, "edits": ". ".join(edit.says(slides) for edit in edits)},
        opened(path, slides),
        every(wanted_slides(path, after), rest_kept(path, texts=_texts(after, edits))),
        Ways([*_ways(slides, edits), *SAVE, DONE], near),
        shown=("path",),
        changes=(path,),
    )


def _edit(dice: random.Random, slides: list[Slide], at: int, kind: int) -> _Edit:
    """Draw a change of a title, of a line, or an additional line, in turn."""
    slide = slides[at]
    if kind % 3 == 1:
        return _Edit(at, 0, draw_title(dice, [title for title, *_ in slides]))
    (text,) = draw_lines(dice, 1, slide)
    return _Edit(at, len(slide) if kind % 3 == 0 else dice.randrange(1, len(slide)), text)


def _after(slides: list[Slide], edits: list[_Edit]) -> list[Slide]:
    made = list(slides)
    for edit in edits:
        lines = made[edit.slide]
        made[edit.slide] = (*lines[: edit.line], edit.text, *lines[edit.line + 1 :])
    return made


def _texts(after: list[Slide], edits: list[_Edit]) -> dict[str, list[str]]:
    """Return the paragraphs of each changed box; the first box of a slide is its title."""
    boxes = [(edit.slide, 2 if edit.line else 1) for edit in edits]
    return {
        f"{slide + 1}.{box}": list(after[slide][1:] if box == 2 else after[slide][:1]) for slide, box in boxes
    }


def _ways(slides: list[Slide], edits: list[_Edit]) -> Steps:
    """Return steps from slide to slide by Page Down and Page Up."""
    steps: Steps = []
    here = 0
    for edit in edits:
        turn = key("pagedown" if edit.slide > here else "pageup")
        steps += [[turn]] * abs(edit.slide - here)
        steps += edit.enter(slides)
        here = edit.slide
    return steps


FAMILY = Family("impress.text", 2, _draft, APPS, "full")
