"""writer.table: add tables with given cells below paragraphs of a text; tabs or lines do not count."""

from __future__ import annotations

import random
from dataclasses import dataclass

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key
from osgym_tasks.writer import (
    CALM,
    SAVE,
    at_paragraph,
    docx_bytes,
    opened,
    path_of,
    rest_kept,
    sentences,
    wanted_parts,
    wanted_text,
)

_PARAGRAPHS = {1: 4, 2: 8, 3: 14, 4: 20, 5: 30}
_SIZES = {1: [(2, 2)], 2: [(3, 3)], 3: [(5, 4)], 4: [(6, 4), (3, 3)], 5: [(8, 6), (5, 4)]}
"""Rows and columns of each table."""
_HEADS = ("Item", "Price", "Stock", "Shelf", "Weight", "Colour", "Supplier", "Due")
_CELLS = (
    *("Apples", "Bread", "Candles", "Desks", "Flour", "Glue", "Hammers", "Ink", "Lamps", "Nails", "Paper"),
    *("Rice", "Soap", "Tape", "Wool", "North", "South", "East", "West", "Blue", "Green", "Grey", "Red"),
)
"""Words with capitals, which Writer would give them while they are typed."""
_WORDINGS = (
    "{path} is open in Writer. Insert a table {tables}. Do not change the text around, and save the file "
    "as docx.",
    "Please add to the open document {path} a table {tables}. All other text stays; save it in its format.",
    "In {path}, which you see in Writer, put a table {tables}. Keep the paragraphs as they are and save "
    "the docx file.",
    "The figures got lost when I copied this text. Please insert a table {tables}. It must be a real "
    "table, and the text around it stays. Save the open document as docx.",
    "To make this clearer for the members, I'd like a table {tables}. Could you add that to the document "
    "that you see, and save it in its format? Change no other text.",
    "There is something missing in the open document: a table {tables}. Leave everything else as it is, "
    "and save the docx file.",
)


@dataclass(frozen=True, slots=True)
class _Table:
    """Cells by row, below a paragraph that is counted from 0."""

    below: int
    rows: list[list[str]]

    def says(self, texts: list[str]) -> str:
        cells = "; ".join(", ".join(row) for row in self.rows)
        size = f"of {len(self.rows)} rows and {len(self.rows[0])} columns"
        return f'{size} directly below the paragraph "{texts[self.below]}", with these rows: {cells}'

    @property
    def cells(self) -> list[str]:
        return [cell for row in self.rows for cell in row]

    @property
    def begin(self) -> Steps:
        """Return steps that add a paragraph below for the table; Ctrl+Home in a table stays there at
        first.
        """
        out = [key("ctrl", "home")] * 2
        return [[*out, *at_paragraph(self.below), key("end"), CALM], [key("enter"), CALM]]

    @property
    def keys(self) -> Steps:
        rows, columns = ({"op": "type", "text": str(len(some))} for some in (self.rows, self.rows[0]))
        size = [key("alt", "r"), key("ctrl", "a"), rows, key("shift", "tab"), key("ctrl", "a"), columns]
        text = "\t".join(self.cells)
        return [
            *self.begin,
            [key("ctrl", "f12")],
            [*size, key("tab"), CALM],
            [key("enter"), CALM],
            [{"op": "type", "text": text}, CALM],
        ]

    @property
    def tabs(self) -> Steps:
        """Return lines with tabs between the texts."""
        return [*self.begin, [{"op": "type", "text": "\n".join("\t".join(row) for row in self.rows)}, CALM]]


def _draft(dice: random.Random, level: int) -> Draft:
    texts = sentences(dice, _PARAGRAPHS[level])
    sizes = _SIZES[level]
    places = sorted(dice.sample(range(len(texts) - 1), len(sizes)), reverse=True)
    tables = [_Table(at, _rows(dice, *size)) for at, size in zip(places, sizes, strict=True)]
    path = path_of(dice)
    last = tables[-1]
    first = [step for table in tables[:-1] for step in table.keys]
    above = _Table((last.below or 2) - 1, last.rows)
    near = {
        "tabs": [*first, *last.tabs, *SAVE, DONE],
        "below another paragraph": [*first, *above.keys, *SAVE, DONE],
        "all text bold too": [[key("ctrl", "a"), key("ctrl", "b"), CALM], *first, *last.keys, *SAVE, DONE],
    }
    if first:
        near["one forgotten"] = [*first, *SAVE, DONE]
    after = list(texts)
    for table in tables:  # from the last to the first
        after[table.below + 1 : table.below + 1] = table.cells
    shown = sorted(tables, key=lambda table: table.below)
    return Draft(
        _WORDINGS,
        {"path": path, "tables": ", and a table ".join(table.says(texts) for table in shown)},
        opened(path, docx_bytes(texts)),
        every(
            wanted_text(path, after),
            rest_kept(path, may_add=True),
            wanted_parts(
                path,
                {"path": ".//w:tbl", "count": len(tables)},
                {"path": ".//w:tbl/w:tr", "count": sum(len(table.rows) for table in tables)},
                {"path": ".//w:tbl/w:tr/w:tc", "values": [cell for table in shown for cell in table.cells]},
            ),
        ),
        Ways([*first, *last.keys, *SAVE, DONE], near),
        shown=("path",),
        changes=[path],
    )


def _rows(dice: random.Random, rows: int, columns: int) -> list[list[str]]:
    """Draw a row of headings, then words and numbers."""
    body = [
        [dice.choice(_CELLS), *(str(dice.randrange(10, 1000)) for _ in range(columns - 1))]
        for _ in range(rows - 1)
    ]
    return [dice.sample(_HEADS, columns), *body]


FAMILY = Family("writer.table", 3, _draft, ("libreoffice_writer",), "full")
