"""Wrong contents of presentations (pptx), made from the right one; each must earn 0."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from lxml import etree

from osgym_certify.ends.base import Content, GoldenFile, Must
from osgym_certify.ends.ooxml import Element, Package, R, integer, remove_element, swap_elements
from osgym_certify.ends.pptx_parts import (
    A,
    Deck,
    Mutation,
    P,
    Scene,
    Slide,
    TextChange,
    run_properties,
    text_of,
)

MAX_PUT_BACK = 6
"""Largest number of contents in each of which one text is as before."""
ANOTHER_WORD = "otherwise"
_SMALL_HUNDREDTHS = "400"
_OFF_SLIDE_EMU = 50_000_000
"""Distance, in English metric units (914,400 to the inch), by which a shape leaves any slide."""
_WHITE = f'<a:solidFill xmlns:a="{A[1:-1]}"><a:srgbClr val="FFFFFF"/></a:solidFill>'
_FILLS = frozenset(
    f"{A}{tag}" for tag in ("noFill", "solidFill", "gradFill", "blipFill", "pattFill", "grpFill")
)


_PLACES = f"{P}cSld/{P}spTree/*/{P}spPr/{A}xfrm/{A}off"


def put_back(package: Package, golden: GoldenFile, dice: random.Random) -> Iterator[Content]:
    """Yield presentations in each of which one text that the oracle changed is as before."""
    changed = Scene.of(package, golden, dice).changed
    for change in dice.sample(changed, min(len(changed), MAX_PUT_BACK)):
        draft = Package.read(golden.data)
        if name := _put_back(Deck(draft).slides[change.slide], change):
            yield Content(name, Must.EARN_NOTHING, draft.data())


def _put_back(slide: Slide, change: TextChange) -> str:
    """Undo one change of a text, and return its name; an empty text if it cannot be undone."""
    now = slide.paragraphs
    if change.before is None:
        _emptied(now[change.after])
        return "one added text removed"
    old = copy.deepcopy(change.before)
    if any(name.startswith(R) for one in old.iter() for name in one.attrib) or not now:
        return ""
    if change.is_removed:
        near = now[min(change.after, len(now) - 1)]
        (near.addprevious if change.after < len(now) else near.addnext)(old)
        return "one removed text put back"
    new = now[change.after]
    new.addprevious(old)
    remove_element(new)
    return "one changed text put back"


def _emptied(paragraph: Element) -> None:
    """Remove a paragraph, or its contents where it is the only one of its shape."""
    if len(paragraph.getparent().findall(f"{A}p")) > 1:
        remove_element(paragraph)
        return
    for child in list(paragraph):
        if child.tag not in {f"{A}pPr", f"{A}endParaRPr"}:
            paragraph.remove(child)


def _text_removed(scene: Scene) -> bool:
    slide = scene.draw_slide(lambda one: one.paragraphs)
    if slide is None:
        return False
    _emptied(scene.dice.choice(slide.paragraphs))
    return True


def _text_doubled(scene: Scene) -> bool:
    slide = scene.draw_slide(lambda one: one.paragraphs)
    if slide is None:
        return False
    paragraph = scene.dice.choice(slide.paragraphs)
    paragraph.addnext(copy.deepcopy(paragraph))
    return True


def _texts_swapped(scene: Scene) -> bool:
    def pairs(slide: Slide) -> list[tuple[Element, Element]]:
        return [(a, b) for a, b in pairwise(slide.paragraphs) if text_of(a) != text_of(b)]

    slide = scene.draw_slide(pairs)
    if slide is None:
        return False
    swap_elements(*scene.dice.choice(pairs(slide)))
    return True


def _word_changed(scene: Scene) -> bool:
    slide = scene.draw_slide(lambda one: one.paragraphs)
    if slide is None:
        return False
    texts = [one for one in slide.root.iter(f"{A}t") if (one.text or "").strip()]
    element = scene.dice.choice(texts)
    words = str(element.text).split(" ")
    place = scene.dice.choice([number for number, word in enumerate(words) if word])
    words[place] = ANOTHER_WORD
    element.text = " ".join(words)
    return True


def _case_changed(scene: Scene) -> bool:
    texts = [
        one
        for slide in scene.deck.slides
        for one in slide.root.iter(f"{A}t")
        if (one.text or "")[:1].swapcase() != (one.text or "")[:1]
    ]
    if not texts:
        return False
    element = scene.dice.choice(texts)
    element.text = element.text[0].swapcase() + element.text[1:]
    return True


def _slide_removed(scene: Scene) -> bool:
    slide = scene.draw_slide(lambda one: True)
    if slide is None:
        return False
    scene.deck.package.unrelate(scene.deck.main, slide.entry.get(f"{R}id"))
    remove_element(slide.entry)
    scene.deck.package.remove(slide.part)
    return True


def _copied(deck: Deck, slide: Slide, *, is_empty: bool) -> None:
    """Add a copy of a slide behind it, without its notes."""
    package = deck.package
    part = package.new_name("ppt/slides/slide{}.xml")
    root = copy.deepcopy(slide.root)
    if is_empty:
        tree = root.find(f"{P}cSld/{P}spTree")
        for shape in [one for one in tree if one.tag not in {f"{P}nvGrpSpPr", f"{P}grpSpPr"}]:
            tree.remove(shape)
    package.put(part, etree.tostring(root, xml_declaration=True, encoding="UTF-8", standalone=True))
    package.declare(part, package.content_type(slide.part))
    folder, _, name = part.rpartition("/")
    if package.has_relationships(slide.part):
        relations = copy.deepcopy(package.relationships(slide.part))
        for one in [one for one in relations if one.get("Type", "").endswith("/notesSlide")]:
            relations.remove(one)
        package.put(f"{folder}/_rels/{name}.rels", etree.tostring(relations))
    entry = etree.Element(f"{P}sldId")
    entries = slide.entry.getparent()
    entry.set("id", str(max(integer(one, "id") for one in entries) + 1))
    entry.set(f"{R}id", package.relate(deck.main, "slide", part))
    slide.entry.addnext(entry)


def _slide_doubled(scene: Scene) -> bool:
    slide = scene.draw_slide(lambda one: True)
    if slide is None:
        return False
    _copied(scene.deck, slide, is_empty=False)
    return True


def _slide_added(scene: Scene) -> bool:
    """Add an empty slide at the end."""
    if not scene.deck.slides:
        return False
    _copied(scene.deck, scene.deck.slides[-1], is_empty=True)
    return True


def _slides_swapped(scene: Scene) -> bool:
    pairs = [(a, b) for a, b in pairwise(scene.deck.slides) if a.texts != b.texts]
    if not pairs:
        return False
    a, b = scene.dice.choice(pairs)
    swap_elements(a.entry, b.entry)
    return True


def _slide_hidden(scene: Scene) -> bool:
    slide = scene.draw_slide(lambda one: one.root.get("show") not in {"0", "false"})
    if slide is None:
        return False
    slide.root.set("show", "0")
    return True


def _title_emptied(scene: Scene) -> bool:
    def texts(slide: Slide) -> list[Element]:
        title = slide.title
        return [] if title is None else [one for one in title.iter(f"{A}p") if text_of(one).strip()]

    slide = scene.draw_slide(texts)
    if slide is None:
        return False
    for paragraph in texts(slide):
        _emptied(paragraph)
    return True


def _runs(scene: Scene) -> list[Element]:
    return [run for slide in scene.deck.slides for run in slide.root.iter(f"{A}r")]


def _all_runs(scene: Scene, name: str, value: str) -> bool:
    for run in _runs(scene):
        run_properties(run).set(name, value)
    return bool(_runs(scene))


def _all_white(scene: Scene) -> bool:
    for run in _runs(scene):
        properties = run_properties(run)
        for old in [one for one in properties if one.tag in _FILLS]:
            properties.remove(old)
        line = properties.find(f"{A}ln")
        properties.insert(0 if line is None else 1, etree.fromstring(_WHITE))
    return bool(_runs(scene))


def _all_centred(scene: Scene) -> bool:
    paragraphs = [one for slide in scene.deck.slides for one in slide.paragraphs]
    for paragraph in paragraphs:
        properties = paragraph.find(f"{A}pPr")
        if properties is None:
            properties = etree.Element(f"{A}pPr")
            paragraph.insert(0, properties)
        properties.set("algn", "ctr" if properties.get("algn") != "ctr" else "r")
    return bool(paragraphs)


def _notes_lost(scene: Scene) -> bool:
    """Remove the notes of a slide."""
    package = scene.deck.package

    def key(slide: Slide) -> str:
        return next((k for k, (kind, _) in package.targets(slide.part).items() if kind == "notesSlide"), "")

    slide = scene.draw_slide(key)
    if slide is None:
        return False
    notes = package.related(slide.part, "notesSlide")
    package.unrelate(slide.part, key(slide))
    package.remove(notes)
    return True


def _picture_removed(scene: Scene) -> bool:
    slide = scene.draw_slide(lambda one: one.root.find(f".//{P}pic") is not None)
    if slide is None:
        return False
    remove_element(scene.dice.choice(list(slide.root.iter(f"{P}pic"))))
    return True


def _shape_removed(scene: Scene) -> bool:
    """Remove a shape or table, with its text."""

    def shapes(slide: Slide) -> list[Element]:
        return [one for one in slide.shapes if one.tag != f"{P}pic"]

    slide = scene.draw_slide(shapes)
    if slide is None:
        return False
    remove_element(scene.dice.choice(shapes(slide)))
    return True


def _background_lost(scene: Scene) -> bool:
    slide = scene.draw_slide(lambda one: one.root.find(f"{P}cSld/{P}bg") is not None)
    if slide is None:
        return False
    remove_element(slide.root.find(f"{P}cSld/{P}bg"))
    return True


def _off_slide(scene: Scene) -> bool:
    """Move a shape with a place of its own beyond the slide's edge."""
    slide = scene.draw_slide(
        lambda one: one.root.find(f"{P}cSld/{P}spTree/*/{P}spPr/{A}xfrm/{A}off") is not None
    )
    if slide is None:
        return False
    place = scene.dice.choice(slide.root.findall(_PLACES))
    place.set("x", str(integer(place, "x") + _OFF_SLIDE_EMU))
    return True


def _all_emptied(scene: Scene) -> bool:
    paragraphs = [one for slide in scene.deck.slides for one in slide.paragraphs]
    for paragraph in paragraphs:
        _emptied(paragraph)
    return bool(paragraphs)


MUTATIONS: dict[str, Mutation] = {
    "one text removed": _text_removed,
    "one text doubled": _text_doubled,
    "two texts of a slide swapped": _texts_swapped,
    "one word changed": _word_changed,
    "case of one letter changed": _case_changed,
    "one slide removed": _slide_removed,
    "one slide doubled": _slide_doubled,
    "empty slide added": _slide_added,
    "two slides swapped": _slides_swapped,
    "one slide hidden": _slide_hidden,
    "one title emptied": _title_emptied,
    "all text bold": partial(_all_runs, name="b", value="1"),
    "all text in 4 pt": partial(_all_runs, name="sz", value=_SMALL_HUNDREDTHS),
    "all text white": _all_white,
    "alignment of all texts changed": _all_centred,
    "notes of one slide lost": _notes_lost,
    "one picture removed": _picture_removed,
    "one shape removed": _shape_removed,
    "background of one slide lost": _background_lost,
    "one shape moved off its slide": _off_slide,
    "all texts emptied": _all_emptied,
}
"""Mutations by the name of the content that they make."""
