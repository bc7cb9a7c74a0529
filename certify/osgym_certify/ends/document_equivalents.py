"""Contents of documents (docx) that are as good as the right one; each must earn 1."""

from __future__ import annotations

import copy
import io
import random

import docx
from lxml import etree

from osgym_certify.ends.base import GoldenFile
from osgym_certify.ends.docx_parts import (
    VAL,
    Document,
    Mutation,
    Scene,
    W,
    change_of,
    set_in_paragraph,
    set_in_run,
    text_runs,
    value_of,
)
from osgym_certify.ends.ooxml import PACKED_OTHERWISE, XML_SPACE, Change, Package

_SWITCHES = ("b", "i")


def _saved_by_python_docx(package: Package, _: GoldenFile, __: random.Random) -> bytes | bool:
    """Load and save the document, if python-docx keeps all its parts."""
    Document(package)
    out = io.BytesIO()
    docx.Document(io.BytesIO(package.data())).save(out)
    saved = Package.read(out.getvalue())
    return saved.data() if {*package.parts} <= {*saved.parts} else False


def _formats_stated(scene: Scene) -> bool:
    """State of plain text that it is neither bold nor italic, as a format put on and off again does."""
    count = 0
    for paragraph in scene.document.paragraphs:
        for run in text_runs(paragraph):
            properties = run.find(f"{W}rPr")
            owners = [
                *scene.document.style_chain(scene.document.style_id(paragraph)),
                *scene.document.style_chain(value_of(properties, "rStyle")),
            ]
            for tag in _SWITCHES:
                is_set = properties is not None and properties.find(f"{W}{tag}") is not None
                if not is_set and all(owner.find(f"{W}rPr/{W}{tag}") is None for owner in owners):
                    set_in_run(run, tag, val="0")
                    count += 1
    return count > 0


def _runs_split(scene: Scene) -> bool:
    """Write each run with a text as two runs of the same format."""
    count = 0
    for run in text_runs(scene.document.body):
        texts = [one for one in run if one.tag != f"{W}rPr"]
        if len(texts) != 1 or len(texts[0].text or "") < 2:
            continue
        second = copy.deepcopy(run)
        text = str(texts[0].text)
        place = scene.dice.randrange(1, len(text))
        for owner, part in ((run, text[:place]), (second, text[place:])):
            element = owner.find(f"{W}t")
            element.text = part
            element.set(XML_SPACE, "preserve")
        run.addnext(second)
        count += 1
    return count > 0


def _unused_style(scene: Scene) -> bool:
    styles = scene.document.styles
    if styles is None or scene.document.style_named("unused"):
        return False
    style = etree.SubElement(styles, f"{W}style")
    for name, text in (("type", "paragraph"), ("customStyle", "1"), ("styleId", "Unused")):
        style.set(f"{W}{name}", text)
    etree.SubElement(style, f"{W}name").set(VAL, "Unused")
    etree.SubElement(etree.SubElement(style, f"{W}rPr"), f"{W}strike")
    return True


def _zoomed(scene: Scene) -> bool:
    part = scene.document.package.related(scene.document.main, "settings")
    zoom = scene.document.package.root(part).find(f"{W}zoom") if part else None
    if zoom is None:
        return False
    zoom.set(f"{W}percent", "130" if zoom.get(f"{W}percent") != "130" else "140")
    return True


def _revision_ids(scene: Scene) -> bool:
    """Add the ids of editing sessions that Word writes."""
    for paragraph in scene.document.paragraphs:
        paragraph.set(f"{W}rsidR", "00A77B3E")
        for run in paragraph.findall(f"{W}r"):
            run.set(f"{W}rsidRPr", "00B15C21")
    return bool(scene.document.paragraphs)


def _proofing_marks(scene: Scene) -> bool:
    """Add the marks that a spelling check leaves, and a bookmark of the last edit."""
    runs = text_runs(scene.document.body)
    for run in runs:
        for place, kind in ((run.addprevious, "spellStart"), (run.addnext, "spellEnd")):
            mark = etree.Element(f"{W}proofErr")
            mark.set(f"{W}type", kind)
            place(mark)
    return bool(runs)


def _bookmarked(scene: Scene) -> bool:
    chosen = scene.draw(scene.document.filled)
    if chosen is None:
        return False
    for tag in ("bookmarkStart", "bookmarkEnd"):
        mark = etree.SubElement(chosen, f"{W}{tag}")
        mark.set(f"{W}id", "9001")
        if tag == "bookmarkStart":
            mark.set(f"{W}name", "_GoBack")
    return True


def _usual_style_stated(scene: Scene) -> bool:
    """Name the usual style in paragraphs that name none."""
    usual, count = scene.document.default_style(), 0
    for paragraph in scene.document.paragraphs if usual else ():
        if not value_of(paragraph.find(f"{W}pPr"), "pStyle"):
            set_in_paragraph(paragraph, "pStyle", val=usual)
            count += 1
    return count > 0


def _usual_style_not_stated(scene: Scene) -> bool:
    """Leave out the name of the usual style."""
    usual, count = scene.document.default_style(), 0
    for paragraph in scene.document.paragraphs if usual else ():
        style = paragraph.find(f"{W}pPr/{W}pStyle")
        if style is not None and style.get(VAL) == usual:
            style.getparent().remove(style)
            count += 1
    return count > 0


def _colour_stated(scene: Scene) -> bool:
    """State the automatic colour of runs that have it."""
    count = 0
    for paragraph in scene.document.paragraphs:
        usual = [*scene.document.style_chain(scene.document.style_id(paragraph))]
        for run in text_runs(paragraph):
            own = run.find(f"{W}rPr")
            owners = [*usual, *scene.document.style_chain(value_of(own, "rStyle"))]
            colours = [value_of(own, "color"), *(value_of(one.find(f"{W}rPr"), "color") for one in owners)]
            if all(colour in {"", "auto"} for colour in colours) and colours[0] != "auto":
                set_in_run(run, "color", val="auto")
                count += 1
    return count > 0


_CHANGES: dict[str, Mutation] = {
    "plain text stated as neither bold nor italic": _formats_stated,
    "colour of text stated as automatic": _colour_stated,
    "runs split": _runs_split,
    "unused style added": _unused_style,
    "other zoom": _zoomed,
    "ids of revisions added": _revision_ids,
    "marks of the spelling check added": _proofing_marks,
    "bookmark of the last edit added": _bookmarked,
    "usual style stated": _usual_style_stated,
    "usual style not stated": _usual_style_not_stated,
}
EQUIVALENTS: dict[str, Change] = {
    **PACKED_OTHERWISE,
    "saved by python-docx": _saved_by_python_docx,
    **{name: change_of(change) for name, change in _CHANGES.items()},
}
"""Equivalents by the name of the content that they make."""
