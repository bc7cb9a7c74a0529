"""OSWorld's metrics and ours on documents made by chance: several changes at once, several options at once.

`tests/unit/test_osworld_slides_equal.py` has each change alone. More seeds by OSGYM_SEEDS. Where both differ
and ours is meant to, rule and change are in `MEANT`, with the reason.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import docx
import openpyxl
import pytest
from openpyxl.styles import Font, PatternFill
from tests.support import osworld_metrics
from tests.unit.test_osworld_slides_equal import CHANGES, DOCUMENT_CHANGES, _document, deck, ours, theirs

from osgym_osworld.metrics.slides_compare import Examined

SEEDS = range(int(os.environ.get("OSGYM_SEEDS", "60")))
OPTIONS = [name for name in Examined.__dataclass_fields__ if name != "tolerance"]
UNUSED = {
    "docs": ("easyocr", "odf", "odf.opendocument", "odf.text", "rapidfuzz", "skimage", "skimage.color"),
    "slides": (),
    "table": (),
}
DOCUMENT_METRICS = (
    "compare_docx_files", "compare_docx_files_and_ignore_new_lines", "compare_subscript_contains",
    "evaluate_strike_through_last_paragraph", "compare_init_lines", "compare_docx_tables",
    "compare_docx_images", "compare_line_spacing", "compare_contains_image",
)  # fmt: skip
Change = Callable[[Any], None]


def module(name: str) -> ModuleType:
    """OSWorld's module of metrics; skips when what it reads documents with is not there."""
    if name == "table":
        for needed in ("pandas", "rapidfuzz", "formulas"):
            if importlib.util.find_spec(needed) is None:
                pytest.skip(f"missing: {needed}, which OSWorld reads workbooks with")
            importlib.import_module(needed)  # for good, not for as long as `load` changes what is imported
    return osworld_metrics.load(name, without=UNUSED[name])


def changed(made: Any, changes: dict[str, Change], chance: random.Random) -> tuple[Any, list[str]]:
    """A document with up to three of the changes, and which."""
    names = chance.sample(sorted(set(changes) - {"nothing"}), chance.randint(0, 3))
    for name in names:
        changes[name](made)
    return made, names


def pair(
    folder: Path, suffix: str, make: Callable[[], Any], changes: dict[str, Change], chance: random.Random
) -> tuple[Path, Path, str]:
    """Two files, in half of the cases with the same changes, and what was changed."""
    state = chance.getrandbits(32)
    seeds = [state, state if chance.random() < 0.5 else state + 1]
    told, paths = [], []
    for number, seed in enumerate(seeds):
        made, names = changed(make(), changes, random.Random(seed))
        paths.append(folder / f"{number}.{suffix}")
        made.save(str(paths[-1]))
        told.append(", ".join(names) or "nothing")
    return paths[0], paths[1], " | ".join(told)


@pytest.mark.parametrize("seed", SEEDS)
def test_presentations(tmp_path: Path, seed: int) -> None:
    """Changes of two presentations, and any of the options."""
    slides, chance = module("slides"), random.Random(seed)
    left, right, told = pair(tmp_path, "pptx", deck, CHANGES, chance)
    for _ in range(3):
        options = {f"examine_{name}": chance.random() < 0.5 for name in chance.sample(OPTIONS, 6)}
        wanted = theirs(slides.compare_pptx_files, left, right, enable_debug=False, **options)
        assert max(wanted, 0) == ours("compare_pptx_files", left, right, **options), (told, options, wanted)


@pytest.mark.parametrize("seed", SEEDS)
def test_documents(tmp_path: Path, seed: int) -> None:
    """Changes of two letters, by each metric that compares two."""
    docs, chance = module("docs"), random.Random(seed)
    left, right, told = pair(tmp_path, "docx", _document, DOCUMENT_CHANGES, chance)
    for name in DOCUMENT_METRICS:
        options = {}
        if name.startswith("compare_docx_files"):
            options = {"ignore_blanks": chance.random() < 0.5}
        wanted = theirs(getattr(docs, name), left, right, **options)
        if name == "compare_init_lines" and is_longer(right, left):
            wanted = 0.0  # theirs takes a document that was cut off for the whole one
        found = ours(name, left, right, **options)
        assert max(wanted, 0) == pytest.approx(found), (name, told, options, wanted)


def is_longer(document: Path, other: Path) -> bool:
    """Return whether a letter has a text after as many paragraphs as another has."""
    texts, others = ([one.text for one in docx.Document(str(path)).paragraphs] for path in (document, other))
    return any(text.strip() for text in texts[len(others) :])


def book() -> Any:
    """Two sheets: numbers and words, a formula's value, an empty row."""
    made = openpyxl.Workbook()
    first = made.worksheets[0]
    for row in (["Name", "Sales", "Part"], ["Ada", 20.5, 0.1], ["Alan", 7, 0.123456], [], ["Grace", -3, 1e6]):
        first.append(row)
    second = made.create_sheet("Sheet2")
    second["A1"], second["B2"] = "Total", 24.5
    first.title = "Sheet1"
    return made


def _cell(place: str, value: object, sheet: int = 0) -> Change:
    def change(made: Any) -> None:
        made.worksheets[sheet][place] = value

    return change


def _style(place: str, **styles: Any) -> Change:
    def change(made: Any) -> None:
        for name, value in styles.items():
            setattr(made["Sheet1"][place], name, value)

    return change


BOOK_CHANGES: dict[str, Change] = {
    "number": _cell("B2", 21),
    "a little": _cell("C3", 0.12345601),
    "more than a little": _cell("C3", 0.1236),
    "word": _cell("A3", "alan"),
    "blank": _cell("A3", "Alan "),
    "number as word": _cell("B3", "7"),
    "empty": _cell("A5", None),
    "row": _cell("A6", "Kurt"),
    "column": _cell("D1", "More"),
    "truth": _cell("B5", True),
    "other sheet": _cell("B2", 25, 1),
    "another sheet": lambda made: made.create_sheet("Sheet3"),
    "name": lambda made: setattr(made.worksheets[1], "title", "Sums"),
    "frozen": lambda made: setattr(made["Sheet1"], "freeze_panes", "B2"),
    "zoom": lambda made: setattr(made["Sheet1"].sheet_view, "zoomScale", 150),
    "bold": _style("A1", font=Font(bold=True)),
    "colour": _style("B2", fill=PatternFill("solid", fgColor="FFFFFF00")),
    "format": _style("B2", number_format="0.00%"),
    "wide": lambda made: setattr(made["Sheet1"].column_dimensions["A"], "width", 30),
}
RULES: dict[str, dict[str, Any]] = {
    "names": {"type": "sheet_name"},
    "data": {"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "EI0"},
    "data, two digits": {"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "EI0", "precision": 2},
    "data of another": {"type": "sheet_data", "sheet_idx0": "RI1", "sheet_idx1": "EI1"},
    "frozen": {"type": "freeze", "sheet_idx0": 0, "sheet_idx1": "EI0"},
    "zoom": {"type": "zoom", "sheet_idx": 0, "method": "gt", "ref": 120},
    "cells": {
        "type": "sheet_fuzzy", "sheet_idx0": "RI0", "sheet_idx1": "EI0",
        "rules": [{"range": ["A1:B3"], "type": "exact_match"}],
    },
    "words": {
        "type": "sheet_fuzzy", "sheet_idx0": "RI0", "sheet_idx1": "EI0",
        "rules": [{"range": ["A1:A5"], "type": "fuzzy_match", "threshold": 80, "ignore_case": True}],
    },
    "style": {
        "type": "style", "sheet_idx0": 0, "sheet_idx1": "EI0", "props": ["font_bold", "fgcolor"],
    },
    "formats": {"type": "style", "sheet_idx0": 0, "sheet_idx1": "EI0", "props": ["number_format"]},
    "cell": {
        "type": "check_cell", "sheet_idx": 0, "coordinate": "B2",
        "props": {"value": {"method": "approx:0.1", "ref": 20.5}},
    },
}  # fmt: skip


AS_TEXT = (
    "they read a text as a number where the whole column may be one; ours takes it for the text that it is"
)
BLANKS = "they read a text that keeps its blanks as something else than a text; ours as the text"
MEANT = {
    **{(name, "number as word"): AS_TEXT for name in ("data", "data, two digits")},
    **{(name, "blank"): BLANKS for name in ("words", "cells")},
}
"""Where the two differ on purpose, by rule and change."""


@pytest.mark.parametrize("seed", SEEDS)
def test_books(tmp_path: Path, seed: int) -> None:
    """Changes of two workbooks, by each rule."""
    table, chance = module("table"), random.Random(seed)
    left, right, told = pair(tmp_path, "xlsx", book, BOOK_CHANGES, chance)
    for name, rule in RULES.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = theirs(table.compare_table, left, right, rules=[rule])
        found = ours("compare_table", left, right, rules=[rule])
        if max(wanted, 0) != found:
            why = next(
                (
                    MEANT[name, word]
                    for word in told.replace(" | ", ", ").split(", ")
                    if (name, word) in MEANT
                ),
                "",
            )
            assert why, (name, told, wanted, found)
