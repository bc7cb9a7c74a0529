"""Documents (docx) as XML that may be changed: paragraphs, runs, styles, and what the oracle changed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby

from lxml import etree

from osgym_certify.ends.base import GoldenFile
from osgym_certify.ends.ooxml import XML_SPACE, Change, Element, Package, UnreadableFile, before_of

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
VAL = f"{W}val"
_OFF = frozenset({"0", "false", "off", "none"})
_MAX_CHAIN = 20
MAX_PARAGRAPHS = 20_000
_RUN_ORDER = (
    *("rStyle", "rFonts", "b", "bCs", "i", "iCs", "caps", "smallCaps", "strike", "dstrike", "outline"),
    *("shadow", "emboss", "imprint", "noProof", "snapToGrid", "vanish", "webHidden", "color", "spacing", "w"),
    *("kern", "position", "sz", "szCs", "highlight", "u", "effect", "bdr", "shd", "fitText", "vertAlign"),
    *("rtl", "cs", "em", "lang", "eastAsianLayout", "specVanish", "oMath"),
)
_PARAGRAPH_ORDER = (
    *("pStyle", "keepNext", "keepLines", "pageBreakBefore", "framePr", "widowControl", "numPr"),
    *("suppressLineNumbers", "pBdr", "shd", "tabs", "suppressAutoHyphens", "kinsoku", "wordWrap"),
    *("overflowPunct", "topLinePunct", "autoSpaceDE", "autoSpaceDN", "bidi", "adjustRightInd", "snapToGrid"),
    *("spacing", "ind", "contextualSpacing", "mirrorIndents", "suppressOverlap", "jc", "textDirection"),
    *("textAlignment", "textboxTightWrap", "outlineLvl", "divId", "cnfStyle", "rPr", "sectPr", "pPrChange"),
)
_LOOKS = {"sz": "", "color": "auto", "highlight": "none", "u": "none"}
"""Properties of runs that have values, with the value that stands for none."""


def is_on(properties: Element | None, tag: str) -> bool:
    """Return whether properties switch a format on."""
    found = None if properties is None else properties.find(f"{W}{tag}")
    return found is not None and found.get(VAL, "1") not in _OFF


def value_of(properties: Element | None, tag: str) -> str:
    """Return the value of a property; an empty text if it is not set."""
    found = None if properties is None else properties.find(f"{W}{tag}")
    return "" if found is None else str(found.get(VAL, ""))


def _set(parent: Element, tag: str, order: tuple[str, ...], attributes: dict[str, str]) -> Element:
    """Set a property in the place that the schema gives it."""
    found = parent.find(f"{W}{tag}")
    if found is None:
        earlier = order[: order.index(tag)]
        found = etree.Element(f"{W}{tag}")
        parent.insert(sum(etree.QName(one).localname in earlier for one in parent), found)
    for name, text in attributes.items():
        found.set(f"{W}{name}", text)
    return found


def _properties(owner: Element, tag: str) -> Element:
    found = owner.find(f"{W}{tag}")
    if found is None:
        found = etree.Element(f"{W}{tag}")
        owner.insert(0, found)
    return found


def set_in_run(run: Element, tag: str, **attributes: str) -> None:
    """Set a property of a run: ``set_in_run(run, "sz", val="8")``."""
    _set(_properties(run, "rPr"), tag, _RUN_ORDER, attributes)


def set_in_paragraph(paragraph: Element, tag: str, **attributes: str) -> Element:
    """Set a property of a paragraph, and return its element."""
    return _set(_properties(paragraph, "pPr"), tag, _PARAGRAPH_ORDER, attributes)


def text_of(element: Element) -> str:
    """Return the text of a paragraph or a cell."""
    parts: list[str] = []
    for one in element.iter(f"{W}t", f"{W}tab", f"{W}br", f"{W}cr"):
        if one.tag == f"{W}t":
            parts.append(one.text or "")
        elif one.getparent().tag == f"{W}r":  # not a tab stop of the paragraph
            parts.append("\t" if one.tag == f"{W}tab" else "\n")
    return "".join(parts)


def text_runs(element: Element) -> list[Element]:
    """Return the runs with text in an element."""
    return [run for run in element.iter(f"{W}r") if run.find(f"{W}t") is not None]


def new_text(parent: Element, text: str) -> Element:
    """Add a text to a run, and return its element."""
    made = etree.SubElement(parent, f"{W}t")
    made.text = text
    made.set(XML_SPACE, "preserve")
    return made


class Document:
    """A document.

    Attributes:
        main: Name of the part with the text.
        body: Element with paragraphs, tables and the properties of the last section.
        paragraphs: Paragraphs of the body and of its tables, in order.

    Raises:
        UnreadableFile: The package is no document.
    """

    def __init__(self, package: Package) -> None:
        self.package = package
        self.main = package.related("", "officeDocument")
        root = package.root(self.main)
        self.body = root.find(f"{W}body")
        if root.tag != f"{W}document" or self.body is None:
            raise UnreadableFile("the file is no document")
        self.paragraphs = list(self.body.iter(f"{W}p"))
        if len(self.paragraphs) > MAX_PARAGRAPHS:
            raise UnreadableFile(f"the document has {len(self.paragraphs)} paragraphs")
        part = package.related(self.main, "styles")
        self.styles = package.root(part) if part else None
        found = () if self.styles is None else self.styles.findall(f"{W}style")
        self._styles = {str(style.get(f"{W}styleId", "")): style for style in found}

    @property
    def filled(self) -> list[Element]:
        """Paragraphs of the body, outside tables, that have a text and do not end a section."""
        return [
            one
            for one in self.body.findall(f"{W}p")
            if text_of(one).strip() and one.find(f"{W}pPr/{W}sectPr") is None
        ]

    def default_style(self) -> str:
        """Return the id of the paragraphs' usual style; an empty text if there is none."""
        for name, style in self._styles.items():
            if style.get(f"{W}type") == "paragraph" and style.get(f"{W}default") in {"1", "true"}:
                return name
        return ""

    def style_id(self, paragraph: Element) -> str:
        return value_of(paragraph.find(f"{W}pPr"), "pStyle") or self.default_style()

    def style_name(self, paragraph: Element) -> str:
        """Return the name of a paragraph's style in lower case."""
        style = self._styles.get(self.style_id(paragraph))
        return value_of(style, "name").lower()

    def style_named(self, name: str) -> str:
        """Return the id of a paragraph style by its name in lower case; an empty text if there is none."""
        for key, style in self._styles.items():
            if style.get(f"{W}type") == "paragraph" and value_of(style, "name").lower() == name:
                return key
        return ""

    def style_chain(self, name: str) -> Iterator[Element]:
        """Yield a style and those that it is based on."""
        for _ in range(_MAX_CHAIN):
            style = self._styles.get(name)
            if style is None:
                return
            yield style
            name = value_of(style, "basedOn")

    def is_list_item(self, paragraph: Element) -> bool:
        """Return whether a paragraph has a bullet or a number, directly or by its style."""
        owners = [paragraph, *self.style_chain(self.style_id(paragraph))]
        numbers = (owner.find(f"{W}pPr/{W}numPr") for owner in owners)
        own = next((one for one in numbers if one is not None), None)
        return own is not None and value_of(own, "numId") != "0"

    def section(self) -> Element | None:
        """Return the properties of the last section; None if the document states none."""
        return self.body.find(f"{W}sectPr")

    def appearance(self, paragraph: Element) -> tuple[object, ...]:
        """Return what shows of a paragraph, as far as tasks ask for it: text, style, list, formats."""
        alignment = value_of(paragraph.find(f"{W}pPr"), "jc")
        runs = [(text_of(run), _look(run.find(f"{W}rPr"))) for run in text_runs(paragraph)]
        looks = [
            ("".join(text for text, _ in same), look) for look, same in groupby(runs, key=lambda run: run[1])
        ]
        return (
            "" if self.style_name(paragraph) in _USUAL_STYLES else self.style_name(paragraph),
            "" if alignment in {"left", "start"} else alignment,
            self.is_list_item(paragraph),
            tuple(looks),
        )


_USUAL_STYLES = frozenset({"normal", "standard", "default"})
"""Names of the style that a paragraph without one has, in lower case."""


def _look(properties: Element | None) -> tuple[object, ...]:
    switches = [is_on(properties, tag) for tag in ("b", "i", "strike", "vanish")]
    values = [value_of(properties, tag) for tag in _LOOKS]
    plain = ["" if text == none else text for text, none in zip(values, _LOOKS.values(), strict=True)]
    return (*switches, *plain)


@dataclass(frozen=True, slots=True)
class ParagraphChange:
    """A paragraph that the oracle changed, added or removed.

    Attributes:
        after: Its number among the paragraphs now; of a removed one, that of the paragraph now in its place.
        before: The paragraph before; None if it was added.
        is_removed: The oracle removed it.
    """

    after: int
    before: Element | None
    is_removed: bool = False


def changed_paragraphs(after: Document, before: Document | None) -> list[ParagraphChange]:
    """Return the paragraphs that differ between two documents; empty without a document before."""
    if before is None:
        return []
    now, then = after.paragraphs, before.paragraphs
    texts = [text_of(one) for one in then], [text_of(one) for one in now]
    found: list[ParagraphChange] = []
    for kind, low, high, first, last in SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        pairs = min(high - low, last - first)
        for offset in range(pairs):
            old, new = then[low + offset], now[first + offset]
            if kind != "equal" or after.appearance(new) != before.appearance(old):
                found.append(ParagraphChange(first + offset, old))
        found += [ParagraphChange(at, None) for at in range(first + pairs, last) if texts[1][at].strip()]
        found += [
            ParagraphChange(first + pairs, then[at], is_removed=True)
            for at in range(low + pairs, high)
            if texts[0][at].strip()
        ]
    return found


@dataclass(frozen=True, slots=True)
class Scene:
    """A document to change, and what the oracle changed in it.

    Attributes:
        document: Document of the golden end, which may be changed.
        before: Document before the oracle; None if there was no file, or none that can be read.
        changed: Paragraphs that the oracle changed.
        dice: Draws of this change.
    """

    document: Document
    before: Document | None
    changed: list[ParagraphChange]
    dice: random.Random

    @classmethod
    def of(cls, package: Package, golden: GoldenFile, dice: random.Random) -> Scene:
        """Read the documents of a golden file.

        Raises:
            UnreadableFile: The golden file is no document.
        """
        document, parts = Document(package), before_of(golden)
        try:
            before = None if parts is None else Document(parts)
        except UnreadableFile:
            before = None
        return cls(document, before, changed_paragraphs(document, before), dice)

    def draw(self, paragraphs: list[Element]) -> Element | None:
        """Draw one of these paragraphs, one that the oracle changed if any is among them."""
        mine = [
            self.document.paragraphs[one.after]
            for one in self.changed
            if not one.is_removed and one.after < len(self.document.paragraphs)
        ]
        preferred = [one for one in paragraphs if one in mine]
        return self.dice.choice(preferred or paragraphs) if paragraphs else None


Mutation = Callable[[Scene], bool]
"""Change of a scene's document. It returns whether it changed anything."""


def change_of(mutation: Mutation) -> Change:
    """Return a mutation as a change of parts."""
    return lambda package, golden, dice: mutation(Scene.of(package, golden, dice))
