"""Contents of presentations (pptx) that are as good as the right one; each must earn 1."""

from __future__ import annotations

import copy
import io
import random

import pptx
from lxml import etree

from osgym_certify.ends.base import GoldenFile
from osgym_certify.ends.ooxml import PACKED_OTHERWISE, Change, Element, Package
from osgym_certify.ends.pptx_parts import A, Deck, Mutation, P, Scene, change_of, run_properties

_BOLD = frozenset({"1", "true"})


def _saved_by_python_pptx(package: Package, _: GoldenFile, __: random.Random) -> bytes | bool:
    """Load and save the presentation, if python-pptx keeps all its parts."""
    Deck(package)
    out = io.BytesIO()
    pptx.Presentation(io.BytesIO(package.data())).save(out)
    saved = Package.read(out.getvalue())
    return saved.data() if {*package.parts} <= {*saved.parts} else False


def _runs(scene: Scene) -> list[Element]:
    return [run for slide in scene.deck.slides for run in slide.root.iter(f"{A}r")]


def _runs_split(scene: Scene) -> bool:
    """Write each run with a text as two runs of the same format."""
    count = 0
    for run in _runs(scene):
        text = run.findtext(f"{A}t") or ""
        if len(text) < 2:
            continue
        second = copy.deepcopy(run)
        place = scene.dice.randrange(1, len(text))
        run.find(f"{A}t").text, second.find(f"{A}t").text = text[:place], text[place:]
        run.addnext(second)
        count += 1
    return count > 0


def _formats_stated(scene: Scene) -> bool:
    """State of text that it is neither bold nor italic, if no layout or master says otherwise."""
    package, count = scene.deck.package, 0
    inherited = [name for name in package.parts if name.startswith("ppt/") and name.endswith(".xml")]
    slides = {slide.part for slide in scene.deck.slides}
    roots = [package.root(name) for name in inherited if name not in slides]
    roots += [one for slide in scene.deck.slides for one in slide.root.iter(f"{A}lstStyle", f"{A}pPr")]
    for attribute in ("b", "i"):
        tags = (f"{A}defRPr", f"{A}tcTxStyle")
        if any(one.get(attribute) in {*_BOLD, "on"} for root in roots for one in root.iter(*tags)):
            continue
        for run in _runs(scene):
            properties = run_properties(run)
            if properties.get(attribute) is None:
                properties.set(attribute, "0")
                count += 1
    return count > 0


def _spelling_stated(scene: Scene) -> bool:
    """State what a spelling check leaves: language, no error, nothing to check again."""
    runs = _runs(scene)
    for run in runs:
        properties = run_properties(run)
        properties.set("dirty", "0")
        properties.set("err", "0")
    return bool(runs)


def _view_changed(scene: Scene) -> bool:
    """Open the presentation in another view."""
    part = scene.deck.package.related(scene.deck.main, "viewProps")
    if not part:
        return False
    root = scene.deck.package.root(part)
    root.set("lastView", "outlineView" if root.get("lastView") != "outlineView" else "sldView")
    return True


def _ends_stated(scene: Scene) -> bool:
    """State the format of the text that would come at the end of each paragraph."""
    count = 0
    for slide in scene.deck.slides:
        for paragraph in slide.paragraphs:
            if paragraph.find(f"{A}endParaRPr") is None:
                etree.SubElement(paragraph, f"{A}endParaRPr", dirty="0")
                count += 1
    return count > 0


def _shapes_renamed(scene: Scene) -> bool:
    """Give shapes the names that another program gives them."""
    named = [
        one for slide in scene.deck.slides for shape in slide.shapes for one in shape.iterfind(f"*/{P}cNvPr")
    ]
    for number, one in enumerate(named, 1):
        one.set("name", f"PlaceHolder {number}")
    return bool(named)


_CHANGES: dict[str, Mutation] = {
    "runs split": _runs_split,
    "text stated as neither bold nor italic": _formats_stated,
    "marks of the spelling check added": _spelling_stated,
    "other view": _view_changed,
    "ends of paragraphs stated": _ends_stated,
    "shapes renamed": _shapes_renamed,
}
EQUIVALENTS: dict[str, Change] = {
    **PACKED_OTHERWISE,
    "saved by python-pptx": _saved_by_python_pptx,
    **{name: change_of(change) for name, change in _CHANGES.items()},
}
"""Equivalents by the name of the content that they make."""
