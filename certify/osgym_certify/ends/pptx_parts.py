"""Presentations (pptx) as XML that may be changed: slides, their texts, and what the oracle changed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from lxml import etree

from osgym_certify.ends.base import GoldenFile
from osgym_certify.ends.ooxml import Change, Element, Package, R, UnreadableFile, before_of

P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
MAX_SLIDES = 2000
_TITLES = frozenset({"title", "ctrTitle"})


def text_of(paragraph: Element) -> str:
    """Return the text of a paragraph."""
    return "".join(
        "\n" if one.tag == f"{A}br" else one.text or "" for one in paragraph.iter(f"{A}t", f"{A}br")
    )


class Slide:
    """A slide of a presentation.

    Attributes:
        entry: Element of the list of slides.
        part: Name of its part in the package.
        root: Root of that part.
    """

    def __init__(self, package: Package, entry: Element, part: str) -> None:
        self.entry = entry
        self.part = part
        self.root = package.root(part)

    @property
    def tree(self) -> Element:
        """Element with the shapes.

        Raises:
            UnreadableFile: The slide has none.
        """
        found = self.root.find(f"{P}cSld/{P}spTree")
        if found is None:
            raise UnreadableFile(f"the slide {self.part!r} has no shapes")
        return found

    @property
    def shapes(self) -> list[Element]:
        """Shapes, pictures, tables and groups of the slide."""
        return [one for one in self.tree if one.tag in {f"{P}{tag}" for tag in ("sp", "pic", "graphicFrame")}]

    @property
    def title(self) -> Element | None:
        """Shape of the title; None if the slide has none."""
        for shape in self.tree.findall(f"{P}sp"):
            place = shape.find(f"{P}nvSpPr/{P}nvPr/{P}ph")
            if place is not None and place.get("type") in _TITLES:
                return shape
        return None

    @property
    def paragraphs(self) -> list[Element]:
        """Paragraphs with a text, in order."""
        return [one for one in self.root.iter(f"{A}p") if text_of(one).strip()]

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(text_of(one) for one in self.paragraphs)


class Deck:
    """A presentation.

    Attributes:
        main: Name of the part with the list of slides.
        slides: Its slides in order.

    Raises:
        UnreadableFile: The package is no presentation.
    """

    def __init__(self, package: Package) -> None:
        self.package = package
        self.main = package.related("", "officeDocument")
        self.root = package.root(self.main)
        if self.root.tag != f"{P}presentation":
            raise UnreadableFile("the file is no presentation")
        targets = package.targets(self.main)
        entries = list(self.root.iterfind(f"{P}sldIdLst/{P}sldId"))
        if len(entries) > MAX_SLIDES:
            raise UnreadableFile(f"the presentation has {len(entries)} slides")
        found = [(entry, *targets.get(entry.get(f"{R}id"), ("", ""))) for entry in entries]
        self.slides = [Slide(package, entry, part) for entry, kind, part in found if kind == "slide"]


@dataclass(frozen=True, slots=True)
class TextChange:
    """A paragraph that the oracle changed, added or removed on a slide.

    Attributes:
        slide: Number of the slide, from 0.
        after: Number among the slide's paragraphs; of a removed one, that of the next one.
        before: Paragraph before; None if it was added.
        is_removed: The oracle removed it.
    """

    slide: int
    after: int
    before: Element | None
    is_removed: bool = False


def pair_texts(number: int, now: list[str], then: list[str], old: list[Element]) -> list[TextChange]:
    """Return the changes between the texts of a slide."""
    from difflib import SequenceMatcher

    found: list[TextChange] = []
    for kind, low, high, first, last in SequenceMatcher(None, then, now, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        pairs = min(high - low, last - first)
        found += [TextChange(number, first + at, old[low + at]) for at in range(pairs)]
        found += [TextChange(number, at, None) for at in range(first + pairs, last)]
        found += [
            TextChange(number, first + pairs, old[at], is_removed=True) for at in range(low + pairs, high)
        ]
    return found


@dataclass(frozen=True, slots=True)
class Scene:
    """A presentation to change, and what the oracle changed in it.

    Attributes:
        deck: Presentation of the golden end, which may be changed.
        before: Presentation before the oracle; None if there was no file, or none that can be read.
        changed: Texts that the oracle changed; empty if it also added, removed or moved slides.
        dice: Draws of this change.
    """

    deck: Deck
    before: Deck | None
    changed: list[TextChange]
    dice: random.Random

    @classmethod
    def of(cls, package: Package, golden: GoldenFile, dice: random.Random) -> Scene:
        """Read the presentations of a golden file.

        Raises:
            UnreadableFile: The golden file is no presentation.
        """
        deck, parts = Deck(package), before_of(golden)
        try:
            before = None if parts is None else Deck(parts)
        except UnreadableFile:
            before = None
        changed: list[TextChange] = []
        if before is not None and len(before.slides) == len(deck.slides):
            for number, (new, old) in enumerate(zip(deck.slides, before.slides, strict=True)):
                changed += pair_texts(number, [*new.texts], [*old.texts], old.paragraphs)
        return cls(deck, before, changed, dice)

    def draw_slide(self, fits: Callable[[Slide], object]) -> Slide | None:
        """Draw a slide that fits, one that the oracle changed if any does."""
        found = [slide for slide in self.deck.slides if fits(slide)]
        mine = [self.deck.slides[change.slide] for change in self.changed]
        preferred = [slide for slide in found if slide in mine]
        return self.dice.choice(preferred or found) if found else None


Mutation = Callable[[Scene], bool]
"""Change of a scene's presentation. It returns whether it changed anything."""


def change_of(mutation: Mutation) -> Change:
    """Return a mutation as a change of parts."""
    return lambda package, golden, dice: mutation(Scene.of(package, golden, dice))


def run_properties(run: Element) -> Element:
    """Return the properties of a run, made if they do not exist."""
    found = run.find(f"{A}rPr")
    if found is None:
        found = etree.Element(f"{A}rPr")
        run.insert(0, found)
    return found
