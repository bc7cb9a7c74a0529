"""Wrong contents of documents (docx), made from the right one; each must earn 0."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

from lxml import etree

from osgym_certify.ends.base import Content, GoldenFile, Must
from osgym_certify.ends.docx_parts import (
    VAL,
    Document,
    Mutation,
    ParagraphChange,
    Scene,
    W,
    new_text,
    set_in_paragraph,
    set_in_run,
    text_of,
    text_runs,
)
from osgym_certify.ends.ooxml import XML_SPACE, Element, Package, R, integer, remove_element, swap_elements

MAX_PUT_BACK = 6
"""Largest number of contents in each of which one paragraph is as before."""
ANOTHER_WORD = "otherwise"
SMALL_HALF_POINTS = "8"
_MARGIN_TWIPS = 567
_DATE = "2025-01-01T00:00:00Z"


def put_back(package: Package, golden: GoldenFile, dice: random.Random) -> Iterator[Content]:
    """Yield documents in each of which one paragraph that the oracle changed is as before."""
    changed = Scene.of(package, golden, dice).changed
    for change in dice.sample(changed, min(len(changed), MAX_PUT_BACK)):
        draft = Package.read(golden.data)
        scene = Scene.of(draft, golden, dice)
        if name := _put_back(scene, change):
            yield Content(name, Must.EARN_NOTHING, draft.data())


def _put_back(scene: Scene, change: ParagraphChange) -> str:
    """Undo one change of a paragraph, and return its name; an empty text if it cannot be undone."""
    document = scene.document
    if change.before is None:
        _emptied(document.paragraphs[change.after])
        return "one added paragraph removed"
    old = _as_in(document, scene.before, change.before)
    if old is None:
        return ""
    if not change.is_removed:
        new = document.paragraphs[change.after]
        section = new.find(f"{W}pPr/{W}sectPr")
        if section is not None:
            return ""
        new.addprevious(old)
        remove_element(new)
        return "one changed paragraph put back"
    if change.after < len(document.paragraphs):
        document.paragraphs[change.after].addprevious(old)
    else:
        document.paragraphs[-1].addnext(old)
    return "one removed paragraph put back"


def _as_in(document: Document, before: Document | None, paragraph: Element) -> Element | None:
    """Return a copy of a paragraph of another document for this one; None if it needs other parts."""
    made = copy.deepcopy(paragraph)
    if before is None or any(name.startswith(R) for one in made.iter() for name in one.attrib):
        return None
    style = made.find(f"{W}pPr/{W}pStyle")
    if style is not None:
        named = document.style_named(before.style_name(paragraph))
        if named:
            style.set(VAL, named)
        else:
            remove_element(style)
    return made


def _emptied(paragraph: Element) -> None:
    """Remove a paragraph, or its contents where it is the only one of a cell or ends a section."""
    others = [one for one in paragraph.getparent() if one.tag == f"{W}p"]
    if len(others) > 1 and paragraph.find(f"{W}pPr/{W}sectPr") is None:
        remove_element(paragraph)
        return
    for child in list(paragraph):
        if child.tag != f"{W}pPr":
            paragraph.remove(child)


def _paragraph_removed(scene: Scene) -> bool:
    chosen = scene.draw(scene.document.filled)
    if chosen is None:
        return False
    _emptied(chosen)
    return True


def _paragraph_doubled(scene: Scene) -> bool:
    plain = [one for one in scene.document.filled if next(one.iter(f"{W}footnoteReference"), None) is None]
    chosen = scene.draw(plain)
    if chosen is None:
        return False
    chosen.addnext(copy.deepcopy(chosen))
    return True


def _paragraphs_swapped(scene: Scene) -> bool:
    filled = scene.document.filled
    appearance = scene.document.appearance
    pairs = [(a, b) for a, b in pairwise(filled) if appearance(a) != appearance(b)]
    if not pairs:
        return False
    swap_elements(*scene.dice.choice(pairs))
    return True


def _texts(scene: Scene) -> list[Element]:
    """Return the elements with a text of a paragraph drawn."""
    filled = [one for one in scene.document.paragraphs if text_of(one).strip()]
    chosen = scene.draw(filled)
    return [] if chosen is None else [one for one in chosen.iter(f"{W}t") if (one.text or "").strip()]


def _word_changed(scene: Scene, change: Callable[[str], str]) -> bool:
    texts = _texts(scene)
    if not texts:
        return False
    element = scene.dice.choice(texts)
    words = str(element.text).split(" ")
    places = [place for place, word in enumerate(words) if change(word) != word and word]
    if not places:
        return False
    place = scene.dice.choice(places)
    words[place] = change(words[place])
    element.text = " ".join(words)
    element.set(XML_SPACE, "preserve")
    return True


def _other_case(word: str) -> str:
    return word[:1].swapcase() + word[1:]


def _all_runs(scene: Scene, tag: str, **attributes: str) -> bool:
    runs = text_runs(scene.document.body)
    for run in runs:
        set_in_run(run, tag, **attributes)
    return bool(runs)


def _all_paragraphs(scene: Scene, tag: str, **attributes: str) -> bool:
    for paragraph in scene.document.paragraphs:
        set_in_paragraph(paragraph, tag, **attributes)
    return bool(scene.document.filled)


def _heading_lost(scene: Scene) -> bool:
    """Give a heading the usual style of paragraphs."""
    headings = [
        one
        for one in scene.document.filled
        if scene.document.style_name(one).startswith(("heading", "title"))
    ]
    chosen = scene.draw(headings)
    if chosen is None:
        return False
    remove_element(chosen.find(f"{W}pPr/{W}pStyle"))
    return True


def _list_lost(scene: Scene) -> bool:
    items = [one for one in scene.document.paragraphs if scene.document.is_list_item(one)]
    for item in items:
        for tag in ("numPr", "pStyle"):
            found = item.find(f"{W}pPr/{W}{tag}")
            if found is not None and scene.document.is_list_item(item):
                remove_element(found)
    return bool(items)


def _list_kind_changed(scene: Scene) -> bool:
    """Number the items of lists with bullets, and give bullets to numbered ones."""
    part = scene.document.package.related(scene.document.main, "numbering")
    if not part or not any(scene.document.is_list_item(one) for one in scene.document.paragraphs):
        return False
    formats = list(scene.document.package.root(part).iter(f"{W}numFmt"))
    for one in formats:
        is_bullet = one.get(VAL) == "bullet"
        one.set(VAL, "decimal" if is_bullet else "bullet")
        mark = one.getparent().find(f"{W}lvlText")
        if mark is not None:
            mark.set(VAL, f"%{integer(one.getparent(), f'{W}ilvl') + 1}." if is_bullet else "-")
    return bool(formats)


def _cell(scene: Scene, text: str) -> bool:
    """Replace the text of a cell of a table."""
    cells = [one for one in scene.document.body.iter(f"{W}tc") if text_of(one).strip()]
    if not cells:
        return False
    first, *others = scene.dice.choice(cells).iter(f"{W}t")
    for one in others:
        one.text = None
    first.text = text or None
    return True


def _table_row_removed(scene: Scene) -> bool:
    rows = [
        row
        for table in scene.document.body.iter(f"{W}tbl")
        for row in table.findall(f"{W}tr")
        if len(table.findall(f"{W}tr")) > 1
    ]
    if not rows:
        return False
    remove_element(scene.dice.choice(rows))
    return True


def _table_as_tabs(scene: Scene) -> bool:
    """Write the rows of tables as paragraphs with tabs between their cells."""
    tables = scene.document.body.findall(f"{W}tbl")
    for table in tables:
        for row in table.iter(f"{W}tr"):
            run = etree.SubElement(etree.Element(f"{W}p"), f"{W}r")
            for number, cell in enumerate(row.findall(f"{W}tc")):
                if number:
                    etree.SubElement(run, f"{W}tab")
                new_text(run, text_of(cell))
            table.addprevious(run.getparent())
        remove_element(table)
    return bool(tables)


def _footnote(scene: Scene, *, is_removed: bool) -> bool:
    """Remove a footnote with its mark, or change its text."""
    package, part = scene.document.package, scene.document.package.related(scene.document.main, "footnotes")
    marks = list(scene.document.body.iter(f"{W}footnoteReference"))
    if not part or not marks:
        return False
    mark = scene.dice.choice(marks)
    notes = package.root(part).findall(f"{W}footnote")
    note = next((one for one in notes if one.get(f"{W}id") == mark.get(f"{W}id")), None)
    texts = [] if note is None else [one for one in note.iter(f"{W}t") if (one.text or "").strip()]
    if note is None or not texts:
        return False
    if is_removed:
        remove_element(mark)
        remove_element(note)
    else:
        texts[0].text = f"{ANOTHER_WORD} {texts[0].text}"
    return True


def _paragraph_added(scene: Scene) -> bool:
    run = etree.SubElement(etree.Element(f"{W}p"), f"{W}r")
    new_text(run, "One more line.")
    section = scene.document.section()
    if section is None:
        scene.document.body.append(run.getparent())
    else:
        section.addprevious(run.getparent())
    return True


def _margin_changed(scene: Scene) -> bool:
    section = scene.document.section()
    margins = None if section is None else section.find(f"{W}pgMar")
    if margins is None:
        return False
    margins.set(f"{W}left", str(integer(margins, f"{W}left") + _MARGIN_TWIPS))
    return True


def _page_turned(scene: Scene) -> bool:
    section = scene.document.section()
    size = None if section is None else section.find(f"{W}pgSz")
    if size is None or size.get(f"{W}w") == size.get(f"{W}h"):
        return False
    width, height = integer(size, f"{W}w"), integer(size, f"{W}h")
    size.set(f"{W}w", str(height))
    size.set(f"{W}h", str(width))
    size.set(f"{W}orient", "landscape" if height > width else "portrait")
    return True


def _page_break_added(scene: Scene) -> bool:
    chosen = scene.draw(scene.document.filled)
    if chosen is None:
        return False
    run = etree.SubElement(chosen, f"{W}r")
    etree.SubElement(run, f"{W}br").set(f"{W}type", "page")
    return True


def _picture_removed(scene: Scene) -> bool:
    pictures = list(scene.document.body.iter(f"{W}drawing", f"{W}pict"))
    if not pictures:
        return False
    remove_element(scene.dice.choice(pictures))
    return True


def _insertion_tracked(scene: Scene) -> bool:
    """Mark the text of a paragraph as an insertion that nobody accepted."""
    chosen = scene.draw(scene.document.filled)
    if chosen is None or next(scene.document.body.iter(f"{W}ins", f"{W}del"), None) is not None:
        return False
    runs = chosen.findall(f"{W}r")
    for number, run in enumerate(runs, 1):
        mark = etree.Element(f"{W}ins")
        for name, text in (("id", str(9000 + number)), ("author", "User"), ("date", _DATE)):
            mark.set(f"{W}{name}", text)
        run.addprevious(mark)
        mark.append(run)
    return bool(runs)


def _document_emptied(scene: Scene) -> bool:
    children = [one for one in scene.document.body if one.tag != f"{W}sectPr"]
    for child in children:
        scene.document.body.remove(child)
    return bool(children)


MUTATIONS: dict[str, Mutation] = {
    "one paragraph removed": _paragraph_removed,
    "one paragraph doubled": _paragraph_doubled,
    "two paragraphs swapped": _paragraphs_swapped,
    "one word changed": partial(_word_changed, change=lambda word: ANOTHER_WORD),
    "case of one letter changed": partial(_word_changed, change=_other_case),
    "all text bold": partial(_all_runs, tag="b", val="1"),
    "all text white": partial(_all_runs, tag="color", val="FFFFFF"),
    "all text in 4 pt": partial(_all_runs, tag="sz", val=SMALL_HALF_POINTS),
    "all text hidden": partial(_all_runs, tag="vanish", val="1"),
    "all paragraphs centred": partial(_all_paragraphs, tag="jc", val="center"),
    "all lines double-spaced": partial(_all_paragraphs, tag="spacing", line="480", lineRule="auto"),
    "one heading lost": _heading_lost,
    "lists lost": _list_lost,
    "kind of lists changed": _list_kind_changed,
    "one cell of a table emptied": partial(_cell, text=""),
    "one cell of a table changed": partial(_cell, text=ANOTHER_WORD),
    "one row of a table removed": _table_row_removed,
    "tables replaced by tabs": _table_as_tabs,
    "one footnote removed": partial(_footnote, is_removed=True),
    "one footnote changed": partial(_footnote, is_removed=False),
    "paragraph added at the end": _paragraph_added,
    "margin of the page changed": _margin_changed,
    "page turned": _page_turned,
    "page break added": _page_break_added,
    "one picture removed": _picture_removed,
    "insertion left as a tracked change": _insertion_tracked,
    "all contents removed": _document_emptied,
}
"""Mutations by the name of the content that they make."""
