"""impress.order: move, copy and delete slides."""

from __future__ import annotations

import random
from dataclasses import dataclass

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.impress import (
    APPS,
    CALM,
    SAVE,
    Slide,
    draw_slides,
    opened,
    path_of,
    rest_kept,
    wanted_slides,
)
from osgym_tasks.pieces import DONE, every, key
from osgym_tasks.targets import click

_SLIDES = {1: 4, 2: 6, 3: 10, 4: 15, 5: 22}
_DEEDS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6}
_KINDS = ("delete", "move", "copy")
_WORDINGS = (
    "The presentation {path} is open in Impress. {deeds}. All other slides stay in their order; save it.",
    "In the open presentation {path}, change the slides. {deeds}. Leave the rest as it is and save the file.",
    "Please rearrange {path}, which you see in Impress. {deeds}. Save it under the same name, without "
    "other changes.",
    "I am about to give this talk, and the order isn't right yet. {deeds}. All other slides stay as and "
    "where they are. Please save the presentation that is open.",
    "My colleague had some good ideas about these slides. {deeds}. Leave the rest of the open presentation "
    "alone, and save it under its name.",
    "There is less time than I thought, so the talk on the screen must change. {deeds}. Keep the other "
    "slides in order, and save the file.",
)


@dataclass(frozen=True, slots=True)
class _Deed:
    """Change of a slide; `after` is the title of the slide behind which it is moved."""

    kind: str
    title: str
    after: str = ""

    @property
    def says(self) -> str:
        if self.kind == "delete":
            return f'Delete the slide "{self.title}"'
        if self.kind == "move":
            return f'Move the slide "{self.title}" to the place directly after the slide "{self.after}"'
        return f'Put a copy of the slide "{self.title}" directly after it'

    def done(self, slides: list[Slide]) -> list[Slide]:
        at = _place(slides, self.title)
        if self.kind == "copy":
            return [*slides[: at + 1], *slides[at:]]
        rest = [*slides[:at], *slides[at + 1 :]]
        if self.kind == "delete":
            return rest
        to = _place(rest, self.after) + 1
        return [*rest[:to], slides[at], *rest[to:]]

    def keys(self, slides: list[Slide]) -> Steps:
        at = _place(slides, self.title)
        if self.kind == "delete":
            return [*_select(at), [key("delete"), CALM]]
        if self.kind == "copy":
            return [*_select(at), [key("ctrl", "c"), CALM], [key("ctrl", "v"), CALM]]
        rest = [*slides[:at], *slides[at + 1 :]]
        to = _place(rest, self.after)
        return [*_select(at), [key("ctrl", "x"), CALM], *_select(to), [key("ctrl", "v"), CALM]]


def _place(slides: list[Slide], title: str) -> int:
    return next(at for at, slide in enumerate(slides) if slide[0] == title)


def _select(at: int) -> Steps:
    return [[key("home"), CALM, *([{**key("down"), "repeat": at}] if at else []), CALM]]


def _draft(dice: random.Random, level: int) -> Draft:
    slides = draw_slides(dice, _SLIDES[level], 2 + level)
    titles = [title for title, *_ in slides]
    subjects = dice.sample(titles, _DEEDS[level])
    others = [title for title in titles if title not in subjects]
    first = dice.randrange(3)
    deeds = [_deed(dice, slides, title, others, _KINDS[(first + n) % 3]) for n, title in enumerate(subjects)]
    path = path_of(dice)
    after = _after(slides, deeds)
    last = deeds[-1]
    before = _after(slides, deeds[:-1])
    at = _place(before, last.title)
    beside = next(
        title
        for title, *_ in (*before[at + 1 :], *reversed(before[:at]))
        if title in others and title != last.after
    )
    near = {
        "the slide beside": [
            *_ways(slides, [*deeds[:-1], _Deed(last.kind, beside, last.after)]),
            *SAVE,
            DONE,
        ],
        "not saved": [*_ways(slides, deeds), DONE],
    }
    if len(deeds) > 1:
        near["one forgotten"] = [*_ways(slides, deeds[:-1]), *SAVE, DONE]
    return Draft(
        _WORDINGS,
        {"path": path, "deeds": ". ".join(deed.says for deed in deeds)},
        opened(path, slides),
        every(
            wanted_slides(path, after), rest_kept(path, slides=[1 + _place(slides, one[0]) for one in after])
        ),
        Ways([*_ways(slides, deeds), *SAVE, DONE], near),
        shown=("path",),
        changes=(path,),
    )


def _deed(dice: random.Random, slides: list[Slide], title: str, others: list[str], kind: str) -> _Deed:
    """Draw a change; a moved slide does not go behind the one that it follows already."""
    at = _place(slides, title)
    before = slides[at - 1][0] if at else ""
    return _Deed(
        kind, title, dice.choice([other for other in others if other != before]) if kind == "move" else ""
    )


def _after(slides: list[Slide], deeds: list[_Deed]) -> list[Slide]:
    for deed in deeds:
        slides = deed.done(slides)
    return slides


def _ways(slides: list[Slide], deeds: list[_Deed]) -> Steps:
    steps: Steps = [[click("panel", "Slide 1")]]
    for deed in deeds:
        steps += deed.keys(slides)
        slides = deed.done(slides)
    return steps


FAMILY = Family("impress.order", 2, _draft, APPS, "full")
