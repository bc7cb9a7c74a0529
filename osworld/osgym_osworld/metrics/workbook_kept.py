"""Metric over what a task leaves alone in an xlsx file: the look of cells, and what is in it besides values.

The workbook is compared with the one that the set-up kept (`keep_file`). Values of cells that had one are
for other metrics. What
another office suite changes by saving does not count: heights and widths, unless they hide something, and
colours of a theme other than its black and white.
"""

from __future__ import annotations

import io
from typing import Any

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
from osgym_osworld.metrics.formula_parser import Area, parse_area
from osgym_osworld.metrics.workbook_parts import refuse_more_cells

MAX_CELLS = 500_000
SMALLEST_PT = 6
"""Size of the smallest text that counts as readable."""
_THINNEST = 1.0
"""Width in characters, or height in points, below which a column or row counts as hidden."""
_THEME = {0: "FFFFFF", 1: "000000"}
_INDEXED = {0: "000000", 1: "FFFFFF", 8: "000000", 9: "FFFFFF", 64: "000000", 65: "FFFFFF"}
_UNKNOWN = "?"
"""A colour that is defined elsewhere: it counts as equal to any."""


@metric()
def check_workbook_kept(
    result: Argument,
    expected: Argument,
    may_change: list[str] | None = None,
    may_format: list[str] | None = None,
    renamed: dict[str, str] | None = None,
    hidden: list[str] | None = None,
    may_freeze: bool = False,
) -> Score:
    """The workbook looks as the expected one did: sheets, fonts, fills, borders, alignment, number formats.

    Empty cells stayed empty. Cells of the areas ``may_change`` (``Data!H2:H9``) may look different and be
    filled, but must be readable and have no new comment. Number formats of cells in ``may_format`` are not
    compared. ``renamed`` maps names of sheets to new ones; ``hidden`` has the new names of sheets that the
    task hides. With ``may_freeze`` frozen rows do not count.
    """
    after, before = _open(as_file(result, "result")), _open(as_file(expected, "expected"))
    names = renamed or {}
    wanted = {
        names.get(sheet.title, sheet.title): "hidden"
        if names.get(sheet.title, sheet.title) in (hidden or [])
        else sheet.sheet_state
        for sheet in before.worksheets
    }
    states = {sheet.title: sheet.sheet_state for sheet in after.worksheets}
    if list(states.items()) != list(wanted.items()) or len(after.sheetnames) != len(before.sheetnames):
        return differ("the sheets", states, wanted)
    free, formatted = _areas(may_change), _areas(may_format)
    for old in before.worksheets:
        new = after[names.get(old.title, old.title)]
        found, kept = _parts(new), _parts(old)
        if may_freeze:
            found["frozen at"] = kept["frozen at"]
        for part, value in kept.items():
            if found[part] != value:
                return differ(f"{new.title}: {part}", found[part], value)
        problem = _cells(new, old, free, formatted)
        if problem:
            return Score(0.0, f"{new.title}: {problem}")
    return Score(1.0)


@reader
def _open(file: InputFile) -> Any:
    import openpyxl

    file.zip()
    book = openpyxl.load_workbook(io.BytesIO(file.data()), keep_links=False)
    for sheet in book.worksheets:
        refuse_more_cells(file, sheet, MAX_CELLS)
    return book


def _areas(references: list[str] | None) -> list[Area]:
    areas = []
    for reference in references or []:
        area = parse_area(str(reference))
        if area is None or not area.sheet:
            raise Unreadable("expected", f"{str(reference)[:80]!r} is no cell or area of a named sheet")
        areas.append(area)
    return areas


def _is_in(sheet: str, row: int, column: int, areas: list[Area]) -> bool:
    return any(
        one.sheet == sheet and one.top <= row <= one.bottom and one.left <= column <= one.right
        for one in areas
    )


def _parts(sheet: Any) -> dict[str, Any]:
    """Return what a sheet has besides cells."""
    return {
        "merged cells": sorted(map(str, sheet.merged_cells.ranges)),
        "number of conditional formats": len(list(sheet.conditional_formatting)),
        "number of validity rules": len(sheet.data_validations.dataValidation),
        "number of charts": len(sheet._charts),
        "number of pictures": len(sheet._images),
        "protection": bool(sheet.protection.sheet),
        "frozen at": sheet.freeze_panes,
        "hidden rows": sorted(_hidden(sheet.row_dimensions, "height")),
        "hidden columns": sorted(_hidden_columns(sheet)),
    }


def _hidden(dimensions: Any, size: str) -> list[Any]:
    return [key for key, one in dimensions.items() if one.hidden or _is_thin(getattr(one, size))]


def _hidden_columns(sheet: Any) -> list[int]:
    """Return the numbers of hidden columns, as far as the sheet has cells."""
    found: list[int] = []
    for one in sheet.column_dimensions.values():
        if one.hidden or _is_thin(one.width):
            found += range(one.min or 1, min(one.max or one.min or 1, sheet.max_column) + 1)
    return found


def _is_thin(size: float | None) -> bool:
    return size is not None and size < _THINNEST


def _cells(new: Any, old: Any, free: list[Area], formatted: list[Area]) -> str:
    """Return the first difference between the cells of two sheets; an empty text if they look the same."""
    for row, column in sorted({*new._cells, *old._cells}):
        cell, before = new.cell(row, column), old.cell(row, column)
        if _is_in(new.title, row, column, free):
            if cell.value is not None and (problem := _unreadable(cell)):
                return f"{cell.coordinate} {problem}"
            if cell.comment and not before.comment:
                return f"{cell.coordinate} has a new comment"
            continue
        if before.value is None and cell.value is not None:
            return f"{cell.coordinate} was empty, and has {str(cell.value)[:60]!r}"
        found, kept = _look(cell), _look(before)
        if _is_in(new.title, row, column, formatted):
            found["number format"] = kept["number format"]
        for name, value in kept.items():
            if found[name] != value and _UNKNOWN not in (found[name], value):
                return f"the {name} of {cell.coordinate} is {found[name]!r}, not {value!r}"
    return ""


def _look(cell: Any) -> dict[str, Any]:
    font, side = cell.font, cell.border
    return {
        "bold font": bool(font.b),
        "italic font": bool(font.i),
        "underline": font.u or "none",
        "strikethrough": bool(font.strike),
        "font size": font.sz,
        "font": font.name,
        "font colour": _colour(font.color, "000000"),
        "fill": _fill(cell),
        "alignment": cell.alignment.horizontal or "general",
        "borders": [bool(one and one.style) for one in (side.left, side.right, side.top, side.bottom)],
        "number format": cell.number_format.replace("\\", "").replace('"', "").lower(),
        "comment": cell.comment.text if cell.comment else None,
    }


def _fill(cell: Any) -> str:
    fill = cell.fill
    return (
        "none" if not getattr(fill, "fill_type", None) else _colour(getattr(fill, "fgColor", None), "FFFFFF")
    )


def _colour(colour: Any, default: str) -> str:
    if colour is None:
        return default
    match colour.type:
        case "rgb":
            return str(colour.rgb)[-6:].upper()
        case "theme" if not colour.tint:
            return _THEME.get(colour.theme, _UNKNOWN)
        case "indexed":
            return _INDEXED.get(colour.indexed, _UNKNOWN)
        case "auto":
            return default
    return _UNKNOWN


def _unreadable(cell: Any) -> str:
    """Return why nobody can read a cell's value; an empty text if it can be read."""
    ground = _fill(cell)
    if _colour(cell.font.color, "000000") == (ground if ground != "none" else "FFFFFF"):
        return "has the colour of its ground"
    if cell.font.sz is not None and cell.font.sz < SMALLEST_PT:
        return f"has a font of {cell.font.sz} points"
    return "shows nothing" if cell.number_format.replace('"', "").strip() in {";;;", ";;", ";"} else ""


def warm_up() -> None:
    import openpyxl

    buffer = io.BytesIO()
    book = openpyxl.Workbook()
    book.create_sheet("a").append([1, "a"])
    book.save(buffer)
    result, expected = (InputFile(-1, "a.xlsx", role, buffer.getvalue()) for role in ("result", "expected"))
    check_workbook_kept(result, expected)
