"""OpenDocument files (odt, odp, ods) as XML that may be changed: texts, pages, styles."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass

from lxml import etree

from osgym_certify.ends.base import GoldenFile
from osgym_certify.ends.ooxml import Change, Element, Package, UnreadableFile, before_of
from osgym_certify.ends.pptx_parts import TextChange, pair_texts

_SPACES = "urn:oasis:names:tc:opendocument:xmlns:"
OFFICE, TEXT, STYLE, DRAW, TABLE = (
    f"{{{_SPACES}{name}:1.0}}" for name in ("office", "text", "style", "drawing", "table")
)
PRESENTATION = f"{{{_SPACES}presentation:1.0}}"
FO = f"{{{_SPACES}xsl-fo-compatible:1.0}}"
SVG = f"{{{_SPACES}svg-compatible:1.0}}"
CONTENT = "content.xml"
_BESIDE = frozenset({f"{PRESENTATION}notes", f"{TEXT}note", f"{OFFICE}annotation", f"{TEXT}tracked-changes"})
"""Elements whose paragraphs are no text of the page."""
MAX_PARAGRAPHS = 20_000


def text_of(paragraph: Element) -> str:
    """Return the text of a paragraph; several spaces count as one."""
    parts = [paragraph.text or ""]
    for child in paragraph:
        if child.tag in {f"{TEXT}s", f"{TEXT}tab", f"{TEXT}line-break"}:
            parts.append(" ")
        elif child.tag not in _BESIDE:
            parts.append(text_of(child))
        parts.append(child.tail or "")
    return "".join(parts)


def set_text(paragraph: Element, text: str) -> None:
    """Replace the contents of a paragraph by a text."""
    for child in list(paragraph):
        paragraph.remove(child)
    paragraph.text = text or None


class OpenDocument:
    """An OpenDocument file.

    Attributes:
        kind: "text", "presentation" or "spreadsheet".
        content: Element with the paragraphs, the pages or the tables.

    Raises:
        UnreadableFile: The package is of none of these kinds.
    """

    def __init__(self, package: Package) -> None:
        self.package = package
        self.root = package.root(CONTENT)
        body = self.root.find(f"{OFFICE}body")
        found = [] if body is None else list(body)
        if self.root.tag != f"{OFFICE}document-content" or not found:
            raise UnreadableFile("the file is no OpenDocument file")
        self.content = found[0]
        self.kind = etree.QName(self.content).localname

    @property
    def pages(self) -> list[Element]:
        """Pages of a presentation."""
        return list(self.content.findall(f"{DRAW}page"))

    @property
    def units(self) -> list[Element]:
        """Elements whose texts are compared with each other: pages, or the whole text; none of a workbook."""
        if self.kind == "spreadsheet":
            return []
        return self.pages if self.kind == "presentation" else [self.content]

    def styles(self) -> Element:
        """Return the list of automatic styles, made if it does not exist."""
        found = self.root.find(f"{OFFICE}automatic-styles")
        if found is None:
            found = etree.Element(f"{OFFICE}automatic-styles")
            self.root.find(f"{OFFICE}body").addprevious(found)
        return found

    def add_style(self, name: str, family: str, based_on: str = "") -> Element:
        """Add an automatic style: a copy of another automatic one, or a style that is based on that name."""
        styles = self.styles()
        found = (one for one in styles if one.get(f"{STYLE}name") == based_on)
        old = next((one for one in found if one.get(f"{STYLE}family") == family), None)
        if old is not None:
            made = copy.deepcopy(old)
            styles.append(made)
        else:
            made = etree.SubElement(styles, f"{STYLE}style")
            if based_on:
                made.set(f"{STYLE}parent-style-name", based_on)
        made.set(f"{STYLE}name", name)
        made.set(f"{STYLE}family", family)
        return made


def opened(package: Package, kind: str) -> OpenDocument:
    """Return a package as an OpenDocument file of a kind.

    Raises:
        UnreadableFile: The file is no OpenDocument file of this kind.
    """
    document = OpenDocument(package)
    if document.kind != kind:
        raise UnreadableFile(f"the file is a {document.kind}, no {kind}")
    return document


def paragraphs(unit: Element) -> list[Element]:
    """Return the paragraphs and headings with a text in an element, without notes and comments."""
    found = [one for one in unit.iter(f"{TEXT}p", f"{TEXT}h") if text_of(one).strip()]
    if len(found) > MAX_PARAGRAPHS:
        raise UnreadableFile(f"the file has {len(found)} paragraphs")
    return [one for one in found if not any(above.tag in _BESIDE for above in one.iterancestors())]


def properties(style: Element, kind: str) -> Element:
    """Return the properties of a style of a kind ("text", "paragraph"), made if they do not exist."""
    tag = f"{STYLE}{kind}-properties"
    found = style.find(tag)
    return etree.SubElement(style, tag) if found is None else found


@dataclass(frozen=True, slots=True)
class Scene:
    """An OpenDocument file to change, and what the oracle changed in it.

    Attributes:
        document: File of the golden end, which may be changed.
        before: File before the oracle; None if there was none, or none that can be read.
        changed: Texts that the oracle changed; empty if it also added, removed or moved pages.
        dice: Draws of this change.
    """

    document: OpenDocument
    before: OpenDocument | None
    changed: list[TextChange]
    dice: random.Random

    @classmethod
    def of(cls, package: Package, golden: GoldenFile, dice: random.Random, kind: str) -> Scene:
        """Read the files of a golden file.

        Raises:
            UnreadableFile: The golden file is no OpenDocument file of this kind.
        """
        document, parts = opened(package, kind), before_of(golden)
        try:
            before = None if parts is None else OpenDocument(parts)
        except UnreadableFile:
            before = None
        changed: list[TextChange] = []
        if before is not None and before.kind == kind and len(before.units) == len(document.units):
            for number, (new, old) in enumerate(zip(document.units, before.units, strict=True)):
                was = paragraphs(old)
                now, then = [text_of(one) for one in paragraphs(new)], [text_of(one) for one in was]
                changed += pair_texts(number, now, then, was)
        return cls(document, before, changed, dice)

    def draw_unit(self, fits: Callable[[Element], object]) -> Element | None:
        """Draw a page, or the text, that fits; one that the oracle changed if any does."""
        units = self.document.units
        found = [unit for unit in units if fits(unit)]
        mine = [units[change.slide] for change in self.changed]
        preferred = [unit for unit in found if unit in mine]
        return self.dice.choice(preferred or found) if found else None


Mutation = Callable[[Scene], bool]
"""Change of a scene's file. It returns whether it changed anything."""


def change_of(mutation: Mutation, kind: str) -> Change:
    """Return a mutation of a kind of OpenDocument files as a change of parts."""
    return lambda package, golden, dice: mutation(Scene.of(package, golden, dice, kind))
