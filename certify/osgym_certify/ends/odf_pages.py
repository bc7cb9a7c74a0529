"""Wrong contents of OpenDocument presentations (odp) in their pages; each must earn 0."""

from __future__ import annotations

import copy
import re
from itertools import pairwise

from osgym_certify.ends.odf_parts import (
    DRAW,
    PRESENTATION,
    STYLE,
    SVG,
    Mutation,
    Scene,
    paragraphs,
    properties,
    set_text,
    text_of,
)
from osgym_certify.ends.odf_texts import mutations_of_texts
from osgym_certify.ends.ooxml import Element, remove_element, swap_elements

_LENGTH = re.compile(r"(-?[\d.]+)([a-z]+)")


def _any(page: Element) -> bool:
    return bool(page.tag == f"{DRAW}page")


def _page_removed(scene: Scene) -> bool:
    page = scene.draw_unit(_any)
    if page is None:
        return False
    remove_element(page)
    return True


def _copied(scene: Scene, page: Element) -> Element:
    """Add a copy of a page behind it, with a name of its own."""
    made = copy.deepcopy(page)
    taken = {one.get(f"{DRAW}name") for one in scene.document.pages}
    numbers = range(len(taken) + 1, 2 * len(taken) + 3)
    made.set(f"{DRAW}name", next(name for n in numbers if (name := f"page{n}") not in taken))
    page.addnext(made)
    return made


def _page_doubled(scene: Scene) -> bool:
    page = scene.draw_unit(_any)
    if page is None:
        return False
    _copied(scene, page)
    return True


def _page_added(scene: Scene) -> bool:
    """Add an empty page at the end."""
    if not scene.document.pages:
        return False
    made = _copied(scene, scene.document.pages[-1])
    for child in list(made):
        made.remove(child)
    return True


def _texts(page: Element) -> list[str]:
    return [text_of(one) for one in paragraphs(page)]


def _pages_swapped(scene: Scene) -> bool:
    pairs = [(a, b) for a, b in pairwise(scene.document.pages) if _texts(a) != _texts(b)]
    if not pairs:
        return False
    swap_elements(*scene.dice.choice(pairs))
    return True


def _page_hidden(scene: Scene) -> bool:
    page = scene.draw_unit(_any)
    if page is None:
        return False
    style = scene.document.add_style("HiddenPage", "drawing-page", page.get(f"{DRAW}style-name", ""))
    shown = properties(style, "drawing-page")
    was_hidden = shown.get(f"{PRESENTATION}visibility") == "hidden"
    shown.set(f"{PRESENTATION}visibility", "hidden")
    page.set(f"{DRAW}style-name", "HiddenPage")
    return not was_hidden


def _title_emptied(scene: Scene) -> bool:
    """Empty the title: the box of that kind, else the first box with a text."""

    def title(page: Element) -> list[Element]:
        frames = page.findall(f"{DRAW}frame")
        titles = [one for one in frames if one.get(f"{PRESENTATION}class") == "title"]
        return next((found for one in titles or frames if (found := paragraphs(one))), [])

    page = scene.draw_unit(title)
    if page is None:
        return False
    for paragraph in title(page):
        set_text(paragraph, "")
    return True


def _notes_lost(scene: Scene) -> bool:
    """Empty the notes of a page."""

    def notes(page: Element) -> list[Element]:
        found = page.iterfind(f"{PRESENTATION}notes//{DRAW}text-box/*")
        return [one for one in found if text_of(one).strip()]

    page = scene.draw_unit(notes)
    if page is None:
        return False
    for paragraph in notes(page):
        set_text(paragraph, "")
    return True


def _picture_removed(scene: Scene) -> bool:
    page = scene.draw_unit(lambda one: one.findall(f"{DRAW}frame/{DRAW}image"))
    if page is None:
        return False
    remove_element(scene.dice.choice(page.findall(f"{DRAW}frame/{DRAW}image")).getparent())
    return True


def _box_removed(scene: Scene) -> bool:
    """Remove a box with its text."""

    def boxes(page: Element) -> list[Element]:
        return [one for one in page.findall(f"{DRAW}frame") if paragraphs(one)]

    page = scene.draw_unit(boxes)
    if page is None:
        return False
    remove_element(scene.dice.choice(boxes(page)))
    return True


def _background_lost(scene: Scene) -> bool:
    """Take the fill of its own from a page."""

    def style(page: Element) -> Element | None:
        named = (one for one in scene.document.styles() if one.get(f"{STYLE}family") == "drawing-page")
        found = next((one for one in named if one.get(f"{STYLE}name") == page.get(f"{DRAW}style-name")), None)
        shown = None if found is None else found.find(f"{STYLE}drawing-page-properties")
        return shown if shown is not None and shown.get(f"{DRAW}fill", "none") != "none" else None

    page = scene.draw_unit(lambda one: style(one) is not None)
    if page is None:
        return False
    made = scene.document.add_style("NoFill", "drawing-page", page.get(f"{DRAW}style-name", ""))
    properties(made, "drawing-page").set(f"{DRAW}fill", "none")
    page.set(f"{DRAW}style-name", "NoFill")
    return True


def _off_page(scene: Scene) -> bool:
    """Move a box beyond the right edge."""

    def placed(page: Element) -> list[Element]:
        return [one for one in page.findall(f"{DRAW}frame") if _LENGTH.fullmatch(one.get(f"{SVG}x", ""))]

    page = scene.draw_unit(placed)
    if page is None:
        return False
    box = scene.dice.choice(placed(page))
    match = _LENGTH.fullmatch(box.get(f"{SVG}x"))
    assert match is not None
    box.set(f"{SVG}x", f"100{match[2]}" if match[2] != "mm" else "1000mm")
    return True


MUTATIONS_OF_PRESENTATIONS: dict[str, Mutation] = {
    **mutations_of_texts("text"),
    "one slide removed": _page_removed,
    "one slide doubled": _page_doubled,
    "empty slide added": _page_added,
    "two slides swapped": _pages_swapped,
    "one slide hidden": _page_hidden,
    "one title emptied": _title_emptied,
    "notes of one slide lost": _notes_lost,
    "one picture removed": _picture_removed,
    "one shape removed": _box_removed,
    "background of one slide lost": _background_lost,
    "one shape moved off its slide": _off_page,
}
"""Mutations of odp files by the name of the content that they make."""
