"""Metric over what a task leaves alone in an odp presentation: slides, shapes, texts and how they look.

The presentation is compared with the one that the set-up kept (`keep_file`). What LibreOffice adds when it
saves does not count: styles, empty notes, places for date, footer and number on the master slide.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from osgym_host.tasks.metric_plugin import (
    Argument,
    InputFile,
    Score,
    Unreadable,
    as_file,
    differ,
    metric,
    reader,
)
from osgym_osworld.formats.odf_styles import DRAW, FO, OFFICE, PRESENTATION, STYLE, SVG, TEXT, Look, Styles

MAX_DEPTH = 50
TOLERANCE_CM = 0.05
"""Difference of a place or a size that counts as none: LibreOffice rounds lengths when it saves."""
_CM = {"cm": 1.0, "mm": 0.1, "in": 2.54, "pt": 2.54 / 72}
_LINK = "{http://www.w3.org/1999/xlink}href"
_SMIL = "{urn:oasis:names:tc:opendocument:xmlns:smil-compatible:1.0}"
_LENGTHS = tuple(f"{SVG}{name}" for name in ("x", "y", "width", "height", "x1", "y1", "x2", "y2"))
_SHAPES = frozenset(
    f"{DRAW}{name}"
    for name in (
        *(
            "frame",
            "custom-shape",
            "rect",
            "ellipse",
            "circle",
            "line",
            "polyline",
            "polygon",
            "regular-polygon",
        ),
        *("path", "connector", "caption", "measure", "g", "control", "page-thumbnail"),
    )
)

Run = tuple[str, Look]


@dataclass(frozen=True, slots=True)
class _Shape:
    """A shape of a slide.

    Attributes:
        facts: Kind, ground, edge and the like, by name.
        lengths_cm: Place and size.
        base: Look that a text gets which is typed into it.
        paragraphs: Runs of each paragraph that has a text.
    """

    facts: dict[str, Any]
    lengths_cm: list[float | None]
    base: Look
    paragraphs: list[list[Run]]

    @property
    def texts(self) -> list[str]:
        return [_text(runs) for runs in self.paragraphs]


@dataclass(frozen=True, slots=True)
class _Slide:
    facts: dict[str, Any]
    shapes: list[_Shape]


@metric()
def check_slides_kept(
    result: Argument,
    expected: Argument,
    slides: list[int] | None = None,
    texts: dict[str, list[str]] | None = None,
) -> Score:
    """Slides (odp) have the texts and the look of the expected ones: shapes, fonts, colours, pictures, notes.

    ``slides`` has, for each slide in its new place, the number of the slide before, from 1; by default all
    slides keep their places. ``texts`` maps shapes to new paragraphs: ``2.1`` is the first shape of the
    second slide. A new paragraph must look like a text that its shape had.
    """
    before, after = _slides(as_file(expected, "expected")), _slides(as_file(result, "result"))
    order = list(range(1, len(before) + 1)) if slides is None else slides
    if any(not 1 <= number <= len(before) for number in order):
        raise Unreadable("expected", f"slides must be numbers from 1 to {len(before)}")
    unused = dict(texts or {})
    if len(after) != len(order):
        return differ("the number of slides", len(after), len(order))
    for number, (new, was) in enumerate(zip(after, order, strict=True), 1):
        old = before[was - 1]
        for name, value in old.facts.items():
            if new.facts[name] != value:
                return differ(f"the {name} of slide {number}", new.facts[name], value)
        if len(new.shapes) != len(old.shapes):
            return differ(f"the number of shapes of slide {number}", len(new.shapes), len(old.shapes))
        for at, pair in enumerate(zip(new.shapes, old.shapes, strict=True), 1):
            problem = _difference(*pair, unused.pop(f"{number}.{at}", None))
            if problem:
                return Score(0.0, f"slide {number}, shape {at}: {problem}")
    if unused:
        raise Unreadable("expected", f"the presentation has no shape {', '.join(sorted(unused))[:80]}")
    return Score(1.0)


def _difference(new: _Shape, old: _Shape, wanted: list[str] | None) -> str:
    """Return what is different between two shapes; an empty text if nothing is."""
    for name, value in old.facts.items():
        if new.facts[name] != value:
            return f"the {name} is {new.facts[name]!r}, not {value!r}"
    for now, was in zip(new.lengths_cm, old.lengths_cm, strict=True):
        if (now is None) != (was is None) or (
            now is not None and was is not None and abs(now - was) > TOLERANCE_CM
        ):
            return f"place and size are {new.lengths_cm}, not {old.lengths_cm}"
    if new.texts != (old.texts if wanted is None else wanted):
        return f"the texts are {new.texts!r}, not {old.texts if wanted is None else wanted!r}"
    looks = [look for runs in old.paragraphs for text, look in runs if text.strip()]
    is_defined = None not in old.base.values()
    known = [*looks, *([old.base] if is_defined or not looks else [])]
    for runs in new.paragraphs:
        same = [one for one in old.paragraphs if _text(one) == _text(runs)]
        if same:
            kept = any(_is_alike(runs, one) for one in same)
        else:
            kept = all(any(_is_like(look, one) for one in known) for text, look in runs if text.strip())
        if not kept:
            return f"{_text(runs)[:60]!r} looks different"
    return ""


def _text(runs: list[Run]) -> str:
    return "".join(text for text, _ in runs).strip()


def _is_alike(new: list[Run], old: list[Run]) -> bool:
    """Return whether the visible characters of two equal texts look the same, however they are split."""
    looks = ([look for text, look in runs for char in text if not char.isspace()] for runs in (new, old))
    return all(_is_like(now, was) for now, was in zip(*looks, strict=True))


def _is_like(now: Look, was: Look) -> bool:
    """Return whether a look is that of before, as far as that was defined."""
    return all(value is None or now[name] == value for name, value in was.items())


@reader
def _slides(file: InputFile) -> list[_Slide]:
    archive = file.zip()
    if not {"content.xml", "styles.xml"} <= set(archive.namelist()):
        raise file.bad("it is no odp presentation")
    content, sheet = (file.xml(file.member(archive, name)) for name in ("content.xml", "styles.xml"))
    pictures = {one.get(f"{DRAW}name", "").lower(): one for one in sheet.iter(f"{DRAW}fill-image")}
    found = _Reader(file, archive, Styles(content, sheet), pictures)
    masters = _Reader(file, archive, Styles(sheet), pictures)
    by_name = {one.get(f"{STYLE}name"): one for one in sheet.iter(f"{STYLE}master-page")}
    sizes = {one.get(f"{STYLE}name"): one for one in sheet.iter(f"{STYLE}page-layout")}
    slides = []
    for page in content.iterfind(f"{OFFICE}body/{OFFICE}presentation/{DRAW}page"):
        master = by_name.get(page.get(f"{DRAW}master-page-name"))
        facts = found.page(page)
        if master is not None:
            facts["size"] = _size(sizes.get(master.get(f"{STYLE}page-layout-name")))
            facts["background of the master slide"] = masters.ground(page=master)
            own = [one for one in master if not one.get(f"{PRESENTATION}class")]
            facts["shapes of the master slide"] = [shape.facts for shape in masters.shapes(own)]
        slides.append(_Slide(facts, found.shapes(list(page))))
    return slides


def _size(layout: Element | None) -> list[float | None]:
    properties = None if layout is None else layout.find(f"{STYLE}page-layout-properties")
    said = {} if properties is None else properties.attrib
    return [_cm(said.get(f"{FO}page-{side}")) for side in ("width", "height")]


def _cm(length: str | None) -> float | None:
    match = re.fullmatch(r"(-?[0-9.]{1,20})(cm|mm|in|pt)", length or "")
    try:
        return None if match is None else round(float(match[1]) * _CM[match[2]], 2)
    except ValueError:
        return None


class _Reader:
    """Reads slides and shapes of one file.

    Args:
        styles: Styles of the part that the slides are in.
        grounds: Pictures for backgrounds, by name.
    """

    def __init__(
        self, file: InputFile, archive: zipfile.ZipFile, styles: Styles, grounds: dict[str, Element]
    ) -> None:
        self._file, self._archive, self._styles, self._grounds = file, archive, styles, grounds

    def page(self, page: Element) -> dict[str, Any]:
        said = self._styles.properties("drawing-page", page.get(f"{DRAW}style-name", ""), "drawing-page")
        parts = [one for part in page.findall(f"{PRESENTATION}notes") for one in part.iter(f"{TEXT}p")]
        notes = [_text(self._parts(one, self._styles.base("graphic"))) for one in parts]
        transition = said.get(f"{_SMIL}type") or said.get(f"{PRESENTATION}transition-style", "none")
        return {
            "visibility": said.get(f"{PRESENTATION}visibility", "visible"),
            "background": self.ground(page),
            "use of the master's background": said.get(f"{PRESENTATION}background-visible", "true"),
            "use of the master's shapes": said.get(f"{PRESENTATION}background-objects-visible", "true"),
            "transition": transition,
            "notes": [text for text in notes if text],
        }

    def ground(self, page: Element) -> tuple[str, str]:
        name = page.get(f"{DRAW}style-name", "")
        return self._fill(self._styles.properties("drawing-page", name, "drawing-page"))

    def shapes(self, elements: list[Element], depth: int = 0) -> list[_Shape]:
        """Return the shapes among elements, and those of groups, from the lowest to the topmost."""
        if depth > MAX_DEPTH:
            raise self._file.bad("its groups are nested too deeply")
        found = []
        for element in elements:
            if element.tag in _SHAPES:
                found.append(self._shape(element))
            if element.tag == f"{DRAW}g":
                found += self.shapes(list(element), depth + 1)
        return found

    def _shape(self, element: Element) -> _Shape:
        name, family = element.get(f"{PRESENTATION}style-name"), "presentation"
        if name is None:
            name, family = element.get(f"{DRAW}style-name", ""), "graphic"
        said = self._styles.properties(family, name, "graphic")
        inside = {one.tag.rpartition("}")[2] for one in element if one.tag.startswith(DRAW)}
        geometry = element.find(f"{DRAW}enhanced-geometry")
        stroke = said.get(f"{DRAW}stroke", "none")
        facts = {
            "kind": [element.tag.rpartition("}")[2], *sorted(inside - {"glue-point"})],
            "form": None if geometry is None else geometry.get(f"{DRAW}type"),
            "role": element.get(f"{PRESENTATION}class", ""),
            "turn": re.findall(r"(?:rotate|skewX|skewY) ?\([^)]*\)", element.get(f"{DRAW}transform", "")),
            "fill": self._fill(said),
            "edge": (stroke, said.get(f"{SVG}stroke-color", "") if stroke != "none" else ""),
            "pictures": [self._picture(one) for one in element.iterfind(f"{DRAW}image")],
        }
        base = self._styles.look(family, name, self._styles.base("graphic"))
        base = self._styles.look("paragraph", element.get(f"{DRAW}text-style-name", ""), base)
        texts = [] if element.tag == f"{DRAW}g" else element.iter(f"{TEXT}p")
        rows = [self._runs(one, base) for one in texts]
        lengths = [_cm(element.get(name)) for name in _LENGTHS]
        return _Shape(facts, lengths, base, [runs for runs in rows if _text(runs)])

    def _fill(self, said: dict[str, str]) -> tuple[str, str]:
        kind = said.get(f"{DRAW}fill", "none")
        which = {"solid": "fill-color", "bitmap": "fill-image-name", "gradient": "fill-gradient-name"}
        detail = said.get(f"{DRAW}{which[kind]}", "").lower() if kind in which else ""
        if kind == "bitmap" and detail in self._grounds:
            detail = self._picture(self._grounds[detail])
        opacity = said.get(f"{DRAW}opacity", "100%")
        return kind, detail if kind == "none" or opacity == "100%" else f"{detail} {opacity}"

    def _picture(self, image: Element) -> str:
        name = image.get(_LINK, "").removeprefix("./")
        if name not in self._archive.namelist():
            return name
        return hashlib.sha256(self._file.member(self._archive, name)).hexdigest()

    def _runs(self, paragraph: Element, base: Look) -> list[Run]:
        look = self._styles.look("paragraph", paragraph.get(f"{TEXT}style-name", ""), base)
        return self._parts(paragraph, look)

    def _parts(self, element: Element, look: Look, depth: int = 0) -> list[Run]:
        if depth > MAX_DEPTH:
            raise self._file.bad("its texts are nested too deeply")
        found: list[Run] = [(element.text or "", look)]
        for child in element:
            if child.tag == f"{TEXT}s":
                count = child.get(f"{TEXT}c", "1")
                found.append((" " * min(int(count) if count.isdigit() else 1, 1000), look))
            elif child.tag in {f"{TEXT}tab", f"{TEXT}line-break"}:
                found.append(("\t" if child.tag == f"{TEXT}tab" else "\n", look))
            elif child.tag != f"{OFFICE}annotation":
                style = child.get(f"{TEXT}style-name", "") if child.tag == f"{TEXT}span" else ""
                found += self._parts(child, self._styles.look("text", style, look), depth + 1)
            found.append((child.tail or "", look))
        return found
