"""Other contents of OpenDocument texts and presentations (odt, odp), in their paragraphs and properties."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

from lxml import etree

from osgym_certify.ends.base import Content, GoldenFile, Must
from osgym_certify.ends.odf_parts import (
    FO,
    STYLE,
    TEXT,
    Mutation,
    Scene,
    paragraphs,
    properties,
    set_text,
    text_of,
)
from osgym_certify.ends.ooxml import Element, Package, remove_element, swap_elements
from osgym_certify.ends.pptx_parts import TextChange

MAX_PUT_BACK = 6
"""Largest number of contents in each of which one text is as before."""
ANOTHER_WORD = "otherwise"
_REVISION = "{http://openoffice.org/2009/office}rsid"
_CONFIG = "{urn:oasis:names:tc:opendocument:xmlns:config:1.0}"
_MANIFEST = "{urn:oasis:names:tc:opendocument:xmlns:manifest:1.0}"
_THUMBNAIL = "Thumbnails/thumbnail.png"


def put_back(
    package: Package, golden: GoldenFile, dice: random.Random, *, kind: str, word: str
) -> Iterator[Content]:
    """Yield files in each of which one text that the oracle changed is as before.

    Args:
        kind: Kind of the OpenDocument file.
        word: Word for a text in the names of the contents.
    """
    changed = Scene.of(package, golden, dice, kind).changed
    for change in dice.sample(changed, min(len(changed), MAX_PUT_BACK)):
        draft = Package.read(golden.data)
        unit = Scene.of(draft, golden, dice, kind).document.units[change.slide]
        if name := _put_back(unit, change, word):
            yield Content(name, Must.EARN_NOTHING, draft.data())


def _put_back(unit: Element, change: TextChange, word: str) -> str:
    """Undo one change of a text, and return its name; an empty text if it cannot be undone."""
    now = paragraphs(unit)
    if change.before is None:
        _emptied(now[change.after])
        return f"one added {word} removed"
    old = text_of(change.before)
    if not change.is_removed:
        set_text(now[change.after], old)
        return f"one changed {word} put back"
    if not now:
        return ""
    near = now[min(change.after, len(now) - 1)]
    made = copy.deepcopy(near)
    set_text(made, old)
    (near.addprevious if change.after < len(now) else near.addnext)(made)
    return f"one removed {word} put back"


def _emptied(paragraph: Element) -> None:
    """Remove a paragraph, or its contents where it is the only one of its box, cell or item."""
    if len(paragraph.getparent()) > 1:
        remove_element(paragraph)
    else:
        set_text(paragraph, "")


def _removed(scene: Scene) -> bool:
    unit = scene.draw_unit(paragraphs)
    if unit is None:
        return False
    _emptied(scene.dice.choice(paragraphs(unit)))
    return True


def _doubled(scene: Scene) -> bool:
    unit = scene.draw_unit(paragraphs)
    if unit is None:
        return False
    paragraph = scene.dice.choice(paragraphs(unit))
    paragraph.addnext(copy.deepcopy(paragraph))
    return True


def _swapped(scene: Scene) -> bool:
    def pairs(unit: Element) -> list[tuple[Element, Element]]:
        return [(a, b) for a, b in pairwise(paragraphs(unit)) if text_of(a) != text_of(b)]

    unit = scene.draw_unit(pairs)
    if unit is None:
        return False
    swap_elements(*scene.dice.choice(pairs(unit)))
    return True


def _word_changed(scene: Scene, change: Callable[[str], str]) -> bool:
    def fitting(unit: Element) -> list[Element]:
        return [one for one in paragraphs(unit) if any(change(word) != word for word in _words(one))]

    unit = scene.draw_unit(fitting)
    if unit is None:
        return False
    paragraph = scene.dice.choice(fitting(unit))
    words = _words(paragraph)
    word = scene.dice.choice([one for one in words if change(one) != one])
    for element in paragraph.iter():
        for name in ("text", "tail") if element is not paragraph else ("text",):
            parts = (getattr(element, name) or "").split(" ")
            if word in parts:
                parts[parts.index(word)] = change(word)
                setattr(element, name, " ".join(parts))
                return True
    return False


def _words(paragraph: Element) -> list[str]:
    """Return the words of a paragraph that are written in one piece."""
    return [word for text in paragraph.itertext() for word in text.split(" ") if word]


def _other_case(word: str) -> str:
    return word[:1].swapcase() + word[1:]


def _all_texts(scene: Scene, name: str, value: str) -> bool:
    """Give all text a format, by a style of its own around each paragraph's contents."""
    for style in scene.document.styles():
        set_already = style.find(f"{STYLE}text-properties")
        if style.get(f"{STYLE}family") == "text" and set_already is not None and set_already.get(name):
            set_already.set(name, value)
    properties(scene.document.add_style("Every", "text"), "text").set(name, value)
    found = [one for unit in scene.document.units for one in paragraphs(unit)]
    for paragraph in found:
        span = etree.Element(f"{TEXT}span", {f"{TEXT}style-name": "Every"})
        span.text, paragraph.text = paragraph.text, None
        span.extend(list(paragraph))
        paragraph.append(span)
    return bool(found)


def _all_centred(scene: Scene) -> bool:
    found = [one for unit in scene.document.units for one in paragraphs(unit)]
    made: dict[str, str] = {}
    for paragraph in found:
        old = paragraph.get(f"{TEXT}style-name", "")
        if old not in made:
            made[old] = f"Centred{len(made)}"
            style = scene.document.add_style(made[old], "paragraph", old)
            properties(style, "paragraph").set(f"{FO}text-align", "center")
        paragraph.set(f"{TEXT}style-name", made[old])
    return bool(found)


def _all_emptied(scene: Scene) -> bool:
    found = [one for unit in scene.document.units for one in paragraphs(unit)]
    for paragraph in found:
        set_text(paragraph, "")
    return bool(found)


def _heading_lost(scene: Scene) -> bool:
    """Make a heading a usual paragraph."""
    headings = list(scene.document.content.iter(f"{TEXT}h"))
    if not headings:
        return False
    heading = scene.dice.choice(headings)
    heading.tag = f"{TEXT}p"
    heading.attrib.pop(f"{TEXT}outline-level", None)
    heading.set(f"{TEXT}style-name", "Standard")
    return True


def _lists_lost(scene: Scene) -> bool:
    lists = scene.document.content.findall(f"{TEXT}list")
    for one in lists:
        for paragraph in list(one.iter(f"{TEXT}p", f"{TEXT}h")):
            one.addprevious(paragraph)
        remove_element(one)
    return bool(lists)


def _paragraph_added(scene: Scene) -> bool:
    made = etree.SubElement(scene.document.content, f"{TEXT}p")
    made.text = "One more line."
    return True


def mutations_of_texts(word: str) -> dict[str, Mutation]:
    """Return mutations of paragraphs by name, with a word for a paragraph."""
    return {
        f"one {word} removed": _removed,
        f"one {word} doubled": _doubled,
        f"two {word}s swapped": _swapped,
        "one word changed": partial(_word_changed, change=lambda _: ANOTHER_WORD),
        "case of one letter changed": partial(_word_changed, change=_other_case),
        "all text bold": partial(_all_texts, name=f"{FO}font-weight", value="bold"),
        "all text white": partial(_all_texts, name=f"{FO}color", value="#ffffff"),
        "all text in 4 pt": partial(_all_texts, name=f"{FO}font-size", value="4pt"),
        "all paragraphs centred": _all_centred,
        "all texts emptied": _all_emptied,
    }


MUTATIONS_OF_DOCUMENTS: dict[str, Mutation] = {
    **mutations_of_texts("paragraph"),
    "one heading lost": _heading_lost,
    "lists lost": _lists_lost,
    "paragraph added at the end": _paragraph_added,
}
"""Mutations of odt files."""


def _revisions_marked(scene: Scene) -> bool:
    """Divide texts as LibreOffice does where they were edited: by a style that changes nothing."""
    style = scene.document.add_style("Edited", "text")
    properties(style, "text").set(_REVISION, "001a2b3c")
    count = 0
    for paragraph in (one for unit in scene.document.units for one in paragraphs(unit)):
        for owner in (paragraph, *paragraph.iterfind(f"{TEXT}span")):
            text = owner.text or ""
            places = [n for n in range(1, len(text)) if " " not in text[n - 1 : n + 1]]
            if places:
                place = scene.dice.choice(places)
                span = etree.Element(f"{TEXT}span", {f"{TEXT}style-name": "Edited"})
                owner.text, span.text = text[:place], text[place:]
                owner.insert(0, span)
                count += 1
                break
    return count > 0


def _unused_style(scene: Scene) -> bool:
    style = scene.document.add_style("Unused", "text")
    properties(style, "text").set(f"{FO}font-weight", "bold")
    return True


def _picture_of_page_left_out(scene: Scene) -> bool:
    """Leave out the small picture of the first page that file managers show."""
    package = scene.document.package
    if _THUMBNAIL not in package.parts:
        return False
    package.remove(_THUMBNAIL)
    manifest = package.root("META-INF/manifest.xml")
    for entry in list(manifest):
        if entry.get(f"{_MANIFEST}full-path") == _THUMBNAIL:
            manifest.remove(entry)
    return True


def _zoomed(scene: Scene) -> bool:
    package = scene.document.package
    if "settings.xml" not in package.parts:
        return False
    count = 0
    for item in package.root("settings.xml").iter(f"{_CONFIG}config-item"):
        if item.get(f"{_CONFIG}name") in {"ZoomFactor", "ZoomValue", "ViewTop", "VisibleAreaTop"}:
            item.text = "130" if item.text != "130" else "140"
            count += 1
    return count > 0


EQUIVALENTS: dict[str, Mutation] = {
    "revisions marked": _revisions_marked,
    "unused style added": _unused_style,
    "picture of the first page left out": _picture_of_page_left_out,
    "other view": _zoomed,
}
"""Equivalents of odt and odp files."""
