"""Metrics over spreadsheets: xlsx, ods and csv, by the values their cells show.

Formulas count by the value that the office suite stored with them. A rule of ``compare_table`` that is not
here, or one of its properties, makes the task unsupported, by name.
"""

from __future__ import annotations

import datetime
import io
import re
import zipfile
from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element

from osgym_host.tasks.metric_plugin import (
    Argument,
    InputFile,
    Score,
    Unreadable,
    as_file,
    differ,
    metric,
    reader,
    rules_of,
    value_reader,
)
from osgym_osworld.metrics.settings import matches, unsupported_method
from osgym_osworld.metrics.table_rules import PAIRS, SINGLES, Reference, Side, unsupported_parts
from osgym_osworld.metrics.workbook_parts import STYLES, stored_cells, style

MAX_CELLS = 2_000_000
_CITY_ROWS = range(2, 23)
DIGITS = 4
"""Numbers are equal when they are after rounding to this many digits, as OSWorld's are."""

Cell = str | float | bool | None
Sheet = dict[tuple[int, int], Cell]
"""Values by (row, column), from 1; empty cells are left out."""
Book = dict[str, Sheet]

_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"


@reader
def read_book(file: InputFile) -> Book:
    """Return all sheets in order.

    Raises:
        Unreadable: corrupt, a bomb, too large, or of another kind.
    """
    archive = file.zip()
    names = set(archive.namelist())
    if "xl/workbook.xml" in names:
        return _read_xlsx(file)
    if "content.xml" in names:
        return _read_ods(file, archive)
    raise file.bad("neither xlsx nor ods")


def _read_xlsx(file: InputFile) -> Book:
    import openpyxl
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        book = openpyxl.load_workbook(io.BytesIO(file.data()), data_only=True, keep_links=False)
    except MemoryError:
        raise
    except (InvalidFileException, zipfile.BadZipFile) as error:
        raise file.bad(f"not a readable workbook: {error}") from error
    except Exception as error:  # the parser raises anything on damaged files
        raise file.bad(f"not a readable workbook: {type(error).__name__}: {error}") from error
    result: Book = {}
    for sheet in book.worksheets:
        result[sheet.title] = {
            (cell.row, cell.column): _plain(cell.value)
            for cell in stored_cells(file, sheet, MAX_CELLS)
            if cell.value is not None and cell.value != ""
        }
    return result


def _plain(value: object) -> Cell:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return round(float(value), DIGITS)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    return str(value)


def _read_ods(file: InputFile, archive: zipfile.ZipFile) -> Book:
    root = file.xml(file.member(archive, "content.xml"))
    result: Book = {}
    for table in root.iter(f"{_TABLE}table"):
        cells: Sheet = {}
        row_no = 1
        for row in table.iter(f"{_TABLE}table-row"):
            row_repeat = _repeat(row, "number-rows-repeated")
            values = _ods_row(row)
            for i in range(row_repeat if values else 0):
                if len(cells) + len(values) > MAX_CELLS:
                    raise file.bad("the sheet is too large")
                cells.update({(row_no + i, column): value for column, value in values.items()})
            row_no += row_repeat
        result[table.get(f"{_TABLE}name", "")] = cells
    return result


def _repeat(element: Element, name: str) -> int:
    text = element.get(f"{_TABLE}{name}", "1")
    return min(int(text), 1 << 20) if text.isascii() and text.isdigit() else 1


def _ods_row(row: Element) -> dict[int, Cell]:
    values: dict[int, Cell] = {}
    column = 1
    for cell in row:
        if cell.tag not in {f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"}:
            continue
        repeat = min(_repeat(cell, "number-columns-repeated"), 1 << 14)
        value = _ods_cell(cell)
        if value is not None and value != "":
            values.update({column + i: value for i in range(repeat)})
        column += repeat
    return values


def _ods_cell(cell: Element) -> Cell:
    kind = cell.get(f"{_OFFICE}value-type")
    if kind in {"float", "percentage", "currency"}:
        return round(float(cell.get(f"{_OFFICE}value", "nan")), DIGITS)
    if kind == "boolean":
        return cell.get(f"{_OFFICE}boolean-value") == "true"
    if kind == "date":
        return cell.get(f"{_OFFICE}date-value")
    paragraphs = ["".join(p.itertext()) for p in cell.iter(f"{_TEXT}p")]
    return "\n".join(paragraphs) if paragraphs else None


def _same(got: Cell, wanted: object) -> bool:
    if isinstance(wanted, bool) or isinstance(got, bool):
        return got is wanted
    if isinstance(wanted, int | float):
        return isinstance(got, float) and got == round(float(wanted), DIGITS)
    return got == wanted


def _sheet(sides: dict[str, Side], reference: object) -> Reference:
    """``0``, ``RI0``, ``RNSheet1``: the result's; ``EI0``, ``ENSheet1``: the expected book's."""
    side, key = "R", reference
    if isinstance(reference, str):
        if not re.match(r"[RE][IN]", reference):
            raise Unreadable("expected", f"{reference!r} names no sheet (0, RI0, RNname, EI0, ENname)")
        side = reference[0]
        key = int(reference[2:]) if reference[1] == "I" else reference[2:]
    book = sides.get(side)
    if book is None:
        raise Unreadable("expected", f"{reference!r}: the task has no expected workbook")
    names = list(book.sheets)
    name = names[key] if isinstance(key, int) and -len(names) <= key < len(names) else key
    if not isinstance(name, str) or name not in book.sheets:
        raise Unreadable("result" if side == "R" else "expected", f"there is no sheet {reference!r}")
    return book, name


def _position(coordinate: str) -> tuple[int, int]:
    from openpyxl.utils.cell import coordinate_to_tuple

    return coordinate_to_tuple(coordinate)


TABLE_RULES = frozenset({"sheet_name", "sheet_data", "check_cell", *PAIRS, *SINGLES})
_NAME_CHARS = 80


def _unsupported_rules(options: Mapping[str, Any]) -> list[str]:
    rules = options.get("rules", [])
    if not isinstance(rules, list):
        return ["the rules are not a list"]
    missing: list[str] = []
    for rule in rules:
        kind = rule.get("type") if isinstance(rule, dict) else None
        if not isinstance(kind, str) or kind not in TABLE_RULES:
            missing.append(f"rule {str(kind)[:_NAME_CHARS]}")
        elif kind == "check_cell":
            missing += _unsupported_cell(rule.get("props"))
        elif kind == "sheet_data" and rule.get("precision", DIGITS) not in range(DIGITS + 1):
            missing.append(f"rule sheet_data of precision {str(rule['precision'])[:_NAME_CHARS]}")
        else:
            missing += unsupported_parts(rule)
    return missing


def _unsupported_cell(properties: object) -> list[str]:
    if not isinstance(properties, dict):
        return ["rule check_cell without properties"]
    missing = [
        f"rule check_cell of {str(p)[:_NAME_CHARS]}" for p in properties if p not in {"value", *STYLES}
    ]
    methods = [unsupported_method(condition) for condition in properties.values()]
    return missing + [f"rule check_cell with {method}" for method in methods if method]


@metric(needs_expected=False, unsupported=_unsupported_rules)
def compare_table(result: Argument, expected: Argument, rules: list[dict[str, Any]] | None = None) -> Score:
    """The workbook fulfils every rule: names and data of sheets, single cells, and OSWorld's others."""
    file = as_file(result, "result")
    sides = {"R": Side(file, read_book(file))}
    if expected is not None:
        file = as_file(expected, "expected")
        sides["E"] = Side(file, read_book(file))
    for rule in rules or [{"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "EI0"}]:
        score = _apply(rule, sides)
        if score.score < 1:
            return score
    return Score(1.0)


def _apply(rule: dict[str, Any], sides: dict[str, Side]) -> Score:
    kind = rule["type"]
    if kind == "sheet_name":
        got, wanted = (list(sides[side].sheets) if side in sides else [] for side in "RE")
        return Score(1.0) if got == wanted else differ("the sheets", got, wanted)
    if kind == "check_cell":
        return _check_cell(rule, _sheet(sides, rule["sheet_idx"]))
    if kind in SINGLES:
        return SINGLES[kind](rule, _sheet(sides, rule["sheet_idx"]))
    a, b = _sheet(sides, rule["sheet_idx0"]), _sheet(sides, rule["sheet_idx1"])
    if kind in PAIRS:
        return PAIRS[kind](rule, a, b)
    return _compare_sheets(a[0].sheets[a[1]], b[0].sheets[b[1]], rule.get("precision", DIGITS))


def _check_cell(rule: dict[str, Any], reference: Reference) -> Score:
    side, name = reference
    for prop, condition in rule["props"].items():
        if prop == "value":
            value = side.sheets[name].get(_position(rule["coordinate"]))
        else:
            value = style(side.sheet(name)[rule["coordinate"]], prop)
        ref, method = condition["ref"], condition.get("method", "eq")
        same = _same(value, ref) if prop == "value" else value == ref
        holds = same if method == "eq" else matches(value, method, ref)
        if not holds:
            return differ(f"{prop} of {rule['coordinate']}", value, condition)
    return Score(1.0)


def _compare_sheets(got: Sheet, wanted: Sheet, digits: int) -> Score:
    def rounded(value: Cell) -> Cell:
        return round(value, digits) if isinstance(value, float) else value

    for place in sorted(got.keys() | wanted.keys()):
        if not _same(rounded(got.get(place)), rounded(wanted.get(place))):
            return differ(f"row {place[0]} column {place[1]}", got.get(place), wanted.get(place))
    return Score(1.0)


@metric()
def check_xlsx_cells(result: Argument, expected: Argument) -> Score:
    """``rules.cells`` maps ``B7`` or ``Sheet!B7`` to its value (null: empty); ``others_empty``: no others."""
    book, rules = read_book(as_file(result, "result")), rules_of(expected)
    named = set()
    for reference, wanted in rules["cells"].items():
        sheet_name, _, coordinate = str(reference).rpartition("!")
        sheet_name = sheet_name or next(iter(book), "")
        if sheet_name not in book:
            return Score(0.0, f"there is no sheet {sheet_name}")
        place = _position(coordinate)
        named.add((sheet_name, place))
        value = book[sheet_name].get(place)
        if not _same(value, wanted):
            return differ(f"cell {reference}", value, wanted)
    if rules.get("others_empty"):
        for name, cells in book.items():
            for place, value in cells.items():
                if (name, place) not in named:
                    row, column = place
                    return differ(f"row {row}, column {column} of the sheet {name}", value, None)
    return Score(1.0)


@metric()
def compare_csv(
    result: Argument, expected: Argument, strict: bool = True, ignore_case: bool = False
) -> Score:
    """Two csv files have the same lines; without ``strict`` blanks around a line do not count."""

    def lines(file: InputFile) -> list[str]:
        text = file.text()
        rows = text.splitlines()
        if not strict:
            rows = [row.strip() for row in rows if row.strip()]
        return [row.lower() for row in rows] if ignore_case else rows

    got, wanted = lines(as_file(result, "result")), lines(as_file(expected, "expected"))
    return Score(1.0) if got == wanted else differ("the lines", got, wanted)


@value_reader
def xlsx_last_row(value: Argument) -> list[Cell]:
    """Return the values of the last row of a workbook's first sheet."""
    sheet = next(iter(read_book(as_file(value, "result")).values()), {})
    row = max((r for r, _ in sheet), default=0)
    width = max((c for r, c in sheet if r == row), default=0)
    return [sheet.get((row, column)) for column in range(1, width + 1)]


@metric()
def compare_conference_city_in_order(result: Argument, expected: Argument) -> Score:
    """Cells C2 to C22 hold the cities of ``rules.expected``, each a name or a list of names, in order."""
    names = list(rules_of(expected)["expected"])
    if len(names) < len(_CITY_ROWS):
        raise Unreadable("expected", f"{len(names)} cities are fewer than {len(_CITY_ROWS)}")
    sheet = next(iter(read_book(as_file(result, "result")).values()), {})
    for row, choices in zip(_CITY_ROWS, names, strict=False):
        got = sheet.get((row, 3))
        known = [choices] if isinstance(choices, str) else list(choices)
        if not isinstance(got, str) or not any(name in got for name in known):
            return differ(f"C{row}", got, known)
    return Score(1.0)


def warm_up() -> None:
    import openpyxl

    buffer = io.BytesIO()
    book = openpyxl.Workbook()
    book.create_sheet("a").append([1, "a", 0.5, True])
    book.save(buffer)
    openpyxl.load_workbook(io.BytesIO(buffer.getvalue()), data_only=True)
