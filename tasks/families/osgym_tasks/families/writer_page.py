"""writer.page: paper format, orientation and margins of a document's pages."""

from __future__ import annotations

import random
from typing import Any

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key
from osgym_tasks.targets import click
from osgym_tasks.writer import (
    CALM,
    SAVE,
    docx_bytes,
    opened,
    path_of,
    rest_kept,
    sentences,
    wanted_parts,
    wanted_text,
)

_PARAGRAPHS = {1: 3, 2: 6, 3: 10, 4: 16, 5: 24}
_PAPERS = {
    "A4": (11906, 16838),
    "A3": (16838, 23811),
    "A5": (8391, 11906),
    "Letter": (12240, 15840),
    "Legal": (12240, 20160),
}
"""Width and height in twentieths of a point, upright."""
_SIDES = ("left", "right", "top", "bottom")
_MARGINS = {1: 0, 2: 0, 3: 1, 4: 2, 5: 4}
_MARGIN, _TOLERANCE = 1134, 15
_INCHES = ("0.5", "1", "1.25", "1.5", "1.75", "2")
_WORDINGS = (
    "Change the pages of {path}, which is open in Writer: {setup}. Everything else about the pages and the "
    "text stays. Save it as docx.",
    "Please set up the pages of the open document {path} like this: {setup}. Leave the rest of the page "
    "settings and the text alone, and save in the same format.",
    "{path} should get another page layout: {setup}. Change nothing else in the document and save the docx "
    "file.",
    "The printer spoils my pages. Please set up the open document like this: {setup}. What I don't mention "
    "keeps its value, and the text stays. Save it as docx.",
    "This is to hang on the wall, so it needs another layout: {setup}. Could you change that in the "
    "document that you see, and save it in its format? Nothing else changes.",
    "The journal has rules for pages: {setup}. Apply them to the open document as a whole, touch nothing "
    "else, and save the docx file.",
)
_Setup = tuple[str, bool, dict[str, str]]
"""Paper, landscape, margins in inches."""


def _draft(dice: random.Random, level: int) -> Draft:
    rows = sentences(dice, _PARAGRAPHS[level])
    paper = "A4" if level == 1 else dice.choice([name for name in _PAPERS if name != "A4"])
    wide = level != 2
    sides = sorted(dice.sample(_SIDES, _MARGINS[level]), key=_SIDES.index)
    margins = dict(zip(sides, dice.sample(_INCHES, len(sides)), strict=True))
    setup: _Setup = (paper, wide, margins)
    told = [f"paper format {paper}"] * (paper != "A4") + ["landscape orientation"] * wide
    told += [
        f"{side} margin {inches} inch{'' if inches == '1' else 'es'}" for side, inches in margins.items()
    ]
    path = path_of(dice)
    width, height = _PAPERS[paper][:: -1 if wide else 1]
    other = dice.choice([name for name in _PAPERS if name != paper])
    near = {
        "another paper": [*_set((other, wide, margins)), *SAVE, DONE],
    }
    if len(sides) > 1:
        turned = dict(zip(sides, [*list(margins.values())[1:], margins[sides[0]]], strict=True))
        near["margins mixed up"] = [*_set((paper, wide, turned)), *SAVE, DONE]
    if level > 1:
        near["turned the other way"] = [*_set((paper, not wide, margins)), *SAVE, DONE]
    else:
        near["not saved"] = [*_set(setup), DONE]
    sizes = {"w:w": width, "w:h": height}
    edges = {
        f"w:{side}": round(1440 * float(margins[side])) if side in margins else _MARGIN for side in _SIDES
    }
    return Draft(
        _WORDINGS,
        {"path": path, "setup": ", ".join(told)},
        opened(path, docx_bytes(rows)),
        every(
            wanted_text(path, rows),
            rest_kept(path, ignored=["page"]),
            wanted_parts(
                path,
                *(_near(".//w:pgSz", name, value) for name, value in sizes.items()),
                *(_near(".//w:pgMar", name, value) for name, value in edges.items()),
            ),
        ),
        Ways([*_set(setup), *SAVE, DONE], near),
        changes=[path],
        shown=("path",),
    )


def _near(path: str, attribute: str, value: int) -> dict[str, Any]:
    return {"path": path, "attribute": attribute, "values": [value], "tolerance": _TOLERANCE}


def _set(setup: _Setup) -> Steps:
    """Return steps in the page style's dialog, where Tab goes from orientation past the tray to margins."""
    paper, wide, margins = setup
    fields: list[dict[str, Any]] = [
        key("tab"),
        {"op": "type", "text": paper},
        CALM,
        key("alt", "ap"[not wide]),
    ]
    fields += [key("tab")]
    for side in _SIDES:
        fields += [key("tab"), *([{"op": "type", "text": margins[side]}] if side in margins else [])]
    return [
        [key("alt", "shift", "p")],
        [click("page-tab", "Page"), CALM, *fields, key("tab"), CALM],
        [click("push-button", "OK"), CALM],
    ]


FAMILY = Family("writer.page", 3, _draft, ("libreoffice_writer",), "full")
