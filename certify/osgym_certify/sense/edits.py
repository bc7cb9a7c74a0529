"""Check that the instruction names where and what the task changes in files that the set-up brings. Pure."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import openpyxl
from openpyxl.utils.cell import coordinate_to_tuple

from osgym_certify.sense.base import Code, Finding, RawCheck, Severity, View, leaves, quoted
from osgym_certify.sense.texts import Known, data_of, known_of, numbers_of, text_of, words_of

_LINES = frozenset({"check_document_text", "check_slides_text", "check_text_lines"})
_SHORT = 3
"""Letters of the shortest word that must be named."""
_MANY_COLUMNS = 3
"""Columns of changed cells above which a task rearranges a table, so that no instruction names each."""
_RELATIVE = re.compile(
    r"\b(?:above|below|beneath|beside|next to|left of|right of|last|first|bottom|empty|blank|missing)\b",
    re.IGNORECASE,
)
_RANGE = re.compile(r"\b\$?([A-Z]{1,3})\$?(\d+)(?::\$?([A-Z]{1,3})\$?(\d+))?\b")


def unnamed_edits(view: View) -> Iterator[Finding]:
    """Yield a finding for each changed line or cell that the instruction does not name."""
    known = known_of(view)
    uploads = {str(file.get("path")): file for file in view.uploads()}
    for check in view.checks:
        file = uploads.get(str(check.result.get("path")))
        if file is None or check.rules is None or check.result.get("type") != "vm_file":
            continue
        if check.func in _LINES:
            others = [text_of(one) or "" for path, one in uploads.items() if one is not file]
            yield from _lines(view, check, known, text_of(file) or "", "\n".join(others))
        elif check.func == "check_xlsx_cells":
            yield from _cells(view, check, file)


def _lines(view: View, check: RawCheck, known: Known, text: str, others: str) -> Iterator[Finding]:
    """Yield a finding for a line whose new words stand neither in the instruction nor in another file."""
    before = [line for line in map(str.strip, text.splitlines()) if line]
    there = {*before, *map(str.strip, others.splitlines())}
    elsewhere = words_of(others)
    for name, value in leaves(check.rules, f"evaluator.expected{check.place}.rules"):
        if not isinstance(value, str) or value.strip() in there or ".exclude" in name:
            continue
        missing = sorted(
            word
            for word in _new_words(value, before) - elsewhere
            if len(word) >= _SHORT
            and known.has(word)  # other words are reported for any check
            and not known.is_named(word)
            and not known.makes(word)
        )
        if missing:
            message = (
                f"{name} has the changed line {quoted(value)}, and the instruction does not have "
                f"{', '.join(map(quoted, missing[:5]))}: name the change in the instruction"
            )
            yield Finding(Code.UNNAMED_VALUE, Severity.DOUBTFUL, message)


def _new_words(line: str, before: Iterable[str]) -> set[str]:
    """Return the words of a line that the line most like it did not have."""
    parts = words_of(line) | numbers_of(line)
    old = max(
        (words_of(one) | numbers_of(one) for one in before), key=lambda one: len(one & parts), default=set()
    )
    return words_of(line) - old


def _cells(view: View, check: RawCheck, file: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding if the instruction names neither the changed cells nor their columns."""
    cells = check.rules.get("cells") if isinstance(check.rules, Mapping) else None
    changed = _changed(cells, data_of(file) or b"") if isinstance(cells, Mapping) else []
    columns = {_column_of(name) for name, _ in changed}
    if len(columns) > _MANY_COLUMNS or _RELATIVE.search(view.instruction):
        return
    missing = [name for name, heading in changed if not _is_placed(name, heading, view.instruction)]
    if missing:
        named = ", ".join(missing[:5])
        text = (
            f"evaluator.expected{check.place}.rules.cells wants a change of {named}, and the instruction "
            "names neither the cell nor its column: name it"
        )
        yield Finding(Code.UNNAMED_CELL, Severity.DOUBTFUL, text)


def _changed(cells: Mapping[str, Any], data: bytes) -> list[tuple[str, str]]:
    """Return each cell that the task is to change, with the heading of its column."""
    try:
        book = openpyxl.load_workbook(io.BytesIO(data))
        found = []
        for name, wanted in cells.items():
            sheet_name, _, coordinate = str(name).rpartition("!")
            sheet = book[sheet_name or book.sheetnames[0]]
            cell = sheet[coordinate]
            if cell.value != wanted and not str(cell.value).startswith("="):
                found.append((coordinate, str(sheet.cell(1, cell.column).value or "")))
    except (AttributeError, KeyError, ValueError, OSError, TypeError, zipfile.BadZipFile):
        return []
    return found


def _is_placed(coordinate: str, heading: str, instruction: str) -> bool:
    """Return whether an instruction names a cell, a range with it, its column or the column's heading."""
    if re.search(rf"\b{_column_of(coordinate)}\b", instruction):
        return True
    if heading and heading.casefold() in instruction.casefold():
        return True
    (column_number, row), _ = _corners(coordinate)
    for spot in _RANGE.finditer(instruction):
        (left, top), (right, bottom) = _corners(spot[0].replace("$", ""))
        if left <= column_number <= right and top <= row <= bottom:
            return True
    return False


def _column_of(coordinate: str) -> str:
    return coordinate.rstrip("0123456789")


def _corners(cells: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return column and row of the first and the last cell of a range."""
    first, _, last = cells.partition(":")
    return _position(first), _position(last or first)


def _position(coordinate: str) -> tuple[int, int]:
    row, column = coordinate_to_tuple(coordinate)
    return column, row
