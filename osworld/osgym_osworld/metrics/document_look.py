"""Metrics over how a docx document looks: formats of words, and what a task leaves alone.

A format counts as it shows: by the style of its paragraph, the style of its characters, and the run itself,
which may also switch a format off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from xml.etree.ElementTree import Element

from osgym_host.tasks.metric_plugin import (
    Argument,
    InputFile,
    Score,
    as_file,
    differ,
    metric,
    reader,
    rules_of,
)

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_LENGTH = r"-?[0-9]{1,6}(\.[0-9]{1,6})?"
_OFF = frozenset({"0", "false", "off", "none"})
_SWITCHES = {"bold": "b", "italic": "i", "strikethrough": "strike", "hidden": "vanish", "capitals": "caps"}
_PLAIN: dict[str, Any] = {
    **dict.fromkeys(_SWITCHES, False),
    "underlined": False,
    "size": None,  # that of the application
    "colour": "000000",
    "highlight": "none",
}
SMALLEST_HALF_POINTS = 12
_SINGLE_LINE = "240"
"""Line spacing where nothing states one, in 240ths of a line."""
TOLERANCE_TWIPS = 15
"""Difference of a length of the page that counts as none: office suites round lengths when they save."""
MAX_CHAIN = 20
"""Number of styles that may be based on each other in a row."""

Look = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Paragraph:
    alignment: str
    line: str
    runs: list[tuple[str, Look]]

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.runs).strip()

    def characters(self, ignored: frozenset[str]) -> list[tuple[str, tuple[Any, ...]]]:
        """Return the visible characters with their look, apart from some properties."""
        return [
            (char, tuple(value for name, value in sorted(look.items()) if name not in ignored))
            for text, look in self.runs
            for char in text
            if not char.isspace()
        ]


@metric()
def check_text_formats(result: Argument, expected: Argument) -> Score:
    """``rules.formats`` maps "bold", "italic", "underlined" to all texts that have it, in their order.

    Parts of a word that are formatted one by one count as one text; spaces around it do not count.
    """
    found = _paragraphs(as_file(result, "result"))
    for name, wanted in rules_of(expected)["formats"].items():
        got: list[str] = []
        for paragraph in found:
            for is_so, runs in groupby(paragraph.runs, key=lambda run: bool(run[1][name])):
                text = "".join(text for text, _ in runs)
                got += [text] if is_so and text.strip() else []
        if got != wanted:
            return differ(f"what is {name}", got, wanted)
    return Score(1.0)


@metric()
def check_document_kept(
    result: Argument,
    expected: Argument,
    ignored: list[str] | None = None,
    restyled: list[str] | None = None,
    may_add: bool = False,
) -> Score:
    """The document looks as the expected one did: formats, sizes and colours of fonts, alignment, pages.

    It has as many page breaks and tracked changes. A paragraph with the text of one before has its look, any
    other a look that the document had somewhere. The formats ``ignored`` do not count; ``page`` stands for
    paper and margins. Paragraphs with the texts ``restyled``, and with ``may_add`` those with new texts, may
    look different, but must be readable. Texts are for other metrics.
    """
    found, wanted = _marks(as_file(result, "result")), _marks(as_file(expected, "expected"))
    for mark, count in wanted.items():
        if found[mark] != count:
            return differ(f"the number of {mark}", found[mark], count)
    if "page" not in (ignored or ()):
        pages, kept = (
            _pages(as_file(file, role)) for file, role in ((result, "result"), (expected, "expected"))
        )
        if any(not _is_like_page(page, kept[0]) for page in pages):
            return differ("the paper and margins", pages, kept[:1])
    before = [one for one in _paragraphs(as_file(expected, "expected")) if one.text]
    is_sized = all(look["size"] for one in before for _, look in one.runs)
    skipped = frozenset([*(ignored or ()), *([] if is_sized else ["size"])])
    looks = {look for one in before for _, look in one.characters(skipped)}
    alignments = {one.alignment for one in before}
    lines = {one.line for one in before}
    for paragraph in _paragraphs(as_file(result, "result")):
        same = [one for one in before if one.text == paragraph.text]
        text = paragraph.text[:60]
        if not text:
            continue
        if not is_sized and any(_is_unreadable(look) for _, look in paragraph.runs):
            return Score(0.0, f"{text!r} cannot be read")
        if paragraph.text in (restyled or ()) or (may_add and not same):
            if any(_is_unreadable(look) for _, look in paragraph.runs):
                return Score(0.0, f"{text!r} cannot be read")
        elif same:
            mine = paragraph.characters(skipped), paragraph.alignment, paragraph.line
            if mine not in [(one.characters(skipped), one.alignment, one.line) for one in same]:
                return Score(0.0, f"{text!r} looks different")
        elif not {look for _, look in paragraph.characters(skipped)} <= looks:
            return Score(0.0, f"{text!r} looks like nothing in the document before")
        elif paragraph.alignment not in alignments:
            return differ(f"the alignment of {text!r}", paragraph.alignment, sorted(alignments))
        elif paragraph.line not in lines:
            return differ(f"the line spacing of {text!r}", paragraph.line, sorted(lines))
    return Score(1.0)


def _is_like_page(now: dict[str, int], was: dict[str, int]) -> bool:
    return now.keys() == was.keys() and all(abs(now[name] - was[name]) <= TOLERANCE_TWIPS for name in was)


def _is_unreadable(look: Look) -> bool:
    is_small = look["size"] is not None and look["size"] < SMALLEST_HALF_POINTS
    return bool(look["hidden"] or is_small or look["colour"] == "FFFFFF")


class _Styles:
    """Formats of a document's styles, with those that they are based on."""

    def __init__(self, root: Element | None) -> None:
        elements = [] if root is None else root.findall(f"{_W}style")
        self._by_id = {style.get(f"{_W}styleId", ""): style for style in elements}
        default = None if root is None else root.find(f"{_W}docDefaults/{_W}rPrDefault/{_W}rPr")
        self.plain = {**_PLAIN, **_formats(default)}
        usual = None if root is None else root.find(f"{_W}docDefaults/{_W}pPrDefault")
        self._line = "" if usual is None else _value(usual, "pPr", "spacing", attribute="line")
        is_default = (
            name
            for name, style in self._by_id.items()
            if style.get(f"{_W}default") in {"1", "true"} and style.get(f"{_W}type") == "paragraph"
        )
        self.usual = next(is_default, "")

    def look(self, name: str) -> Look:
        """Return the formats that a style sets."""
        found: Look = {}
        for style in self._chain(name):
            found = {**_formats(style.find(f"{_W}rPr")), **found}
        return found

    def alignment(self, name: str) -> str:
        """Return the alignment that a style sets; an empty text if none."""
        for style in self._chain(name):
            if found := _value(style, "pPr", "jc"):
                return found
        return ""

    def line(self, name: str) -> str:
        """Return the line spacing that a style sets; an empty text if none."""
        for style in self._chain(name):
            if found := _value(style, "pPr", "spacing", attribute="line"):
                return found
        return self._line

    def _chain(self, name: str) -> Iterator[Element]:
        for _ in range(MAX_CHAIN):
            style = self._by_id.get(name)
            if style is None:
                return
            yield style
            name = _value(style, "basedOn")


@reader
def _paragraphs(file: InputFile) -> list[_Paragraph]:
    archive = file.zip()
    names = archive.namelist()
    sheet = file.xml(file.member(archive, "word/styles.xml")) if "word/styles.xml" in names else None
    styles = _Styles(sheet)
    found = []
    for element in file.xml(file.member(archive, "word/document.xml")).iter(f"{_W}p"):
        style = _value(element, "pPr", "pStyle") or styles.usual
        alignment = _value(element, "pPr", "jc") or styles.alignment(style) or "left"
        line = _value(element, "pPr", "spacing", attribute="line") or styles.line(style) or _SINGLE_LINE
        base = {**styles.plain, **styles.look(style)}
        runs = []
        for run in element.iter(f"{_W}r"):
            character = styles.look(_value(run, "rPr", "rStyle"))
            look = {**base, **character, **_formats(run.find(f"{_W}rPr"))}
            runs.append(("".join(part.text or "" for part in run.iterfind(f"{_W}t")), look))
        found.append(_Paragraph("left" if alignment == "start" else alignment, line, runs))
    return found


@reader
def _marks(file: InputFile) -> dict[str, int]:
    """Return the numbers of tracked changes and of page breaks."""
    root = file.xml(file.member(file.zip(), "word/document.xml"))
    breaks = [one for one in root.iter(f"{_W}br") if one.get(f"{_W}type") == "page"]
    breaks += [one for one in root.iter(f"{_W}pageBreakBefore") if one.get(f"{_W}val", "1") not in _OFF]
    tracked = [one for tag in ("ins", "del", "moveFrom", "moveTo") for one in root.iter(f"{_W}{tag}")]
    return {"tracked changes": len(tracked), "page breaks": len(breaks)}


@reader
def _pages(file: InputFile) -> list[dict[str, int]]:
    """Return width, height and margins of each section's pages, in twentieths of a point."""
    found = []
    for section in file.xml(file.member(file.zip(), "word/document.xml")).iter(f"{_W}sectPr"):
        lengths: dict[str, int] = {}
        for tag, names in (("pgSz", ("w", "h")), ("pgMar", ("top", "bottom", "left", "right"))):
            element = section.find(f"{_W}{tag}")
            said = {} if element is None else {name: element.get(f"{_W}{name}", "") for name in names}
            lengths |= {name: int(float(text)) for name, text in said.items() if re.fullmatch(_LENGTH, text)}
        found.append(lengths)
    return found or [{}]


def _value(element: Element, *names: str, attribute: str = "val") -> str:
    found = element.find("/".join(f"{_W}{name}" for name in names))
    return "" if found is None else found.get(f"{_W}{attribute}", "")


def _formats(properties: Element | None) -> Look:
    """Return the formats that properties of a run or a style set, on or off."""
    if properties is None:
        return {}
    found: Look = {}
    for name, tag in _SWITCHES.items():
        if (element := properties.find(f"{_W}{tag}")) is not None:
            found[name] = element.get(f"{_W}val", "1") not in _OFF
    if (element := properties.find(f"{_W}u")) is not None:
        found["underlined"] = element.get(f"{_W}val", "single") not in _OFF
    if (size := _value(properties, "sz")).isdigit():
        found["size"] = int(size)
    if colour := _value(properties, "color"):
        found["colour"] = "000000" if colour == "auto" else colour.upper()
    if highlight := _value(properties, "highlight"):
        found["highlight"] = highlight
    return found
