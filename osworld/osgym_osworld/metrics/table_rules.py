"""Rules of ``compare_table`` over more than values, with OSWorld's names, options and meaning.

Two differ. ``style`` compares conditional formats as they are written, not by what their formulas give.
A sheet that is named and not there is wrong, where OSWorld finds two that are not there equal.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from osgym_host.tasks.metric_plugin import InputFile, Score, Unreadable, differ, reader, similarity
from osgym_osworld.metrics import workbook_parts as parts
from osgym_osworld.metrics.settings import matches, unsupported_method

MAX_STYLED_CELLS = 500_000
MAX_RANGE_CELLS = 200_000
_SPARKLINE = "{http://schemas.microsoft.com/office/spreadsheetml/2009/9/main}sparkline"
_XM = "{http://schemas.microsoft.com/office/excel/2006/main}"
_NAME_CHARS = 80


@dataclass
class Side:
    """The result, or the expected workbook, as a file and as openpyxl's workbook with its formulas."""

    file: InputFile
    sheets: dict[str, dict[tuple[int, int], Any]] = field(repr=False)
    """Values by sheet and (row, column)."""

    @cached_property
    def book(self) -> Any:
        """Raises Unreadable: not xlsx."""
        return _open(self.file)

    def sheet(self, name: str) -> Any:
        """Return a sheet of the workbook with formulas, styles and other parts."""
        if name not in self.book.sheetnames:
            raise self.file.bad(f"there is no sheet {name}")
        return self.book[name]


@reader
def _open(file: InputFile) -> Any:
    import openpyxl

    file.zip()
    book = openpyxl.load_workbook(io.BytesIO(file.data()))
    for sheet in book.worksheets:
        parts.refuse_more_cells(file, sheet, MAX_STYLED_CELLS)
    return book


Reference = tuple[Side, str]
"""A side and the name of one of its sheets."""
Pair = Callable[[Mapping[str, Any], Reference, Reference], Score]
Single = Callable[[Mapping[str, Any], Reference], Score]


def _equal(what: str, got: object, wanted: object) -> Score:
    return Score(1.0) if got == wanted else differ(what, got, wanted)


def _sheets(a: Reference, b: Reference) -> tuple[Any, Any]:
    return a[0].sheet(a[1]), b[0].sheet(b[1])


def _printed(rule: Mapping[str, Any], a: Reference, b: Reference) -> Score:
    got, wanted = _lines(*a), _lines(*b)
    if rule.get("ignore_case", False):
        got, wanted = [line.lower() for line in got], [line.lower() for line in wanted]
    return _equal("the printed lines", got, wanted)


def _lines(side: Side, sheet: str) -> list[str]:
    """Return the lines of ``<name of the workbook>-<sheet>.csv`` beside it, without empty ones at the end."""
    stem = side.file.name.rpartition(".")[0] or side.file.name
    file = side.file.beside.get(f"{stem}-{sheet}.csv")
    if file is None:
        raise side.file.bad(f"there is no file {stem}-{sheet}.csv beside it")
    data = file.data()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    lines = [line.strip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines


FUZZY = frozenset({"includes", "included_by", "fuzzy_match", "exact_match"})


def _fuzzy(rule: Mapping[str, Any], a: Reference, b: Reference) -> Score:
    from openpyxl.worksheet.cell_range import MultiCellRange

    got, wanted = (side.sheets[name] for side, name in (a, b))
    for condition in rule["rules"]:
        areas = condition["range"]
        ranges = MultiCellRange(areas if isinstance(areas, list) else str(areas)).ranges
        if sum(area.size["rows"] * area.size["columns"] for area in ranges) > MAX_RANGE_CELLS:
            raise Unreadable("expected", f"more than {MAX_RANGE_CELLS} cells are compared")
        for area in ranges:
            for place in area.cells:
                one, other = (_normal(cells.get(place), condition) for cells in (got, wanted))
                if not _fits(one, other, condition):
                    return differ(f"row {place[0]} column {place[1]}", one, other)
    return Score(1.0)


def _normal(value: object, condition: Mapping[str, Any]) -> str:
    text = "None" if isinstance(value, bool) else str(value)
    for old, new in condition.get("normalization", []):
        text = text.replace(old, new)
    if "trim_leadings" in condition:
        text = text.lstrip(condition["trim_leadings"])
    if "trim_trailings" in condition:
        text = text.rstrip(condition["trim_trailings"])
    text = "".join(char for char in text if char not in condition.get("ignore_chars", ""))
    return text.lower() if condition.get("ignore_case", False) else text


def _fits(got: str, wanted: str, condition: Mapping[str, Any]) -> bool:
    match condition["type"]:
        case "includes":
            return wanted in got
        case "included_by":
            return got in wanted
        case "fuzzy_match":
            return 100 * similarity(got, wanted) >= float(condition.get("threshold", 85.0))
        case _:
            return got == wanted


def _chart(rule: Mapping[str, Any], a: Reference, b: Reference) -> Score:
    got, wanted = (parts.charts(sheet, rule.get("chart_props", [])) for sheet in _sheets(a, b))
    return _equal("the charts", got, wanted)


def _pivot(rule: Mapping[str, Any], a: Reference, b: Reference) -> Score:
    got, wanted = (parts.pivots(sheet, rule.get("pivot_props", [])) for sheet in _sheets(a, b))
    return _equal("the pivot tables", got, wanted)


def _style(rule: Mapping[str, Any], a: Reference, b: Reference) -> Score:
    sheets = _sheets(a, b)
    got, wanted = (parts.styles(sheet, rule.get("props", [])) for sheet in sheets)
    for place in sorted(got.keys() | wanted.keys(), key=str):
        if got.get(place) != wanted.get(place):
            return differ(f"the style of {place}", got.get(place), wanted.get(place))
    formats = [parts.conditional_formats(sheet) for sheet in sheets]
    return _equal("the conditional formats, as they are written", formats[0], formats[1])


def _freeze(rule: Mapping[str, Any], a: Reference, b: Reference) -> Score:
    got, wanted = (sheet.freeze_panes for sheet in _sheets(a, b))
    return _equal("the first cell that is not frozen", got, wanted)


def _filter(rule: Mapping[str, Any], a: Reference, b: Reference) -> Score:
    got, wanted = (parts.filters(sheet) for sheet in _sheets(a, b))
    return _equal("the filter", got, wanted)


def _rows(rule: Mapping[str, Any], a: Reference, b: Reference) -> Score:
    names = rule.get("props", [])
    got, wanted = (parts.dimensions(sheet.row_dimensions, names) for sheet in _sheets(a, b))
    return _equal("the rows", got, wanted)


def _columns(rule: Mapping[str, Any], a: Reference, b: Reference) -> Score:
    names = rule.get("props", [])
    got, wanted = (parts.dimensions(sheet.column_dimensions, names) for sheet in _sheets(a, b))
    return _equal("the columns", got, wanted)


def _sparkline(rule: Mapping[str, Any], a: Reference, b: Reference) -> Score:
    got, wanted = _sparklines(*a), _sparklines(*b)
    return _equal("the sparklines", got, wanted)


def _sparklines(side: Side, name: str) -> dict[str, str]:
    """Return ranges of sparklines by the cell that they stand in."""
    number = list(side.book.sheetnames).index(side.sheet(name).title) + 1
    archive = side.file.zip()
    root = side.file.xml(side.file.member(archive, f"xl/worksheets/sheet{number}.xml"))
    return {line.findtext(f"{_XM}sqref", ""): line.findtext(f"{_XM}f", "") for line in root.iter(_SPARKLINE)}


def _zoom(rule: Mapping[str, Any], a: Reference) -> Score:
    got = a[0].sheet(a[1]).sheet_view.zoomScale or 100.0
    return Score(1.0) if matches(got, rule["method"], rule["ref"]) else differ("the zoom", got, rule["ref"])


VALIDATION = frozenset(
    [
        "ranges",
        "type",
        "formula1",
        "formula2",
        "operator",
        "allowBlank",
        "showDropDown",
        "showInputMessage",
        "showErrorMessage",
        "error",
        "errorTitle",
        "errorStyle",
        "prompt",
        "promptTitle",
        "imeMode",
    ]
)


def _validation(rule: Mapping[str, Any], a: Reference) -> Score:
    """Each validation fulfils one of ``dv_props``, of which there are no more than validations."""
    found = a[0].sheet(a[1]).data_validations.dataValidation
    wanted = rule["dv_props"]
    if len(found) < len(wanted):
        return differ("the number of validations", len(found), len(wanted))
    for validation in found:
        if not any(_fulfils(validation, properties) for properties in wanted):
            return Score(0.0, f"the validation of {validation.sqref} is none that is expected")
    return Score(1.0)


def _fulfils(validation: Any, properties: Mapping[str, Any]) -> bool:
    return all(matches(getattr(validation, k), v["method"], v["ref"]) for k, v in properties.items())


PAIRS: dict[str, Pair] = {
    "sheet_print": _printed,
    "sheet_fuzzy": _fuzzy,
    "sparkline": _sparkline,
    "chart": _chart,
    "style": _style,
    "freeze": _freeze,
    "row_props": _rows,
    "col_props": _columns,
    "filter": _filter,
    "pivot_table": _pivot,
}
"""Rules over ``sheet_idx0`` and ``sheet_idx1``."""
SINGLES: dict[str, Single] = {"zoom": _zoom, "data_validation": _validation}
"""Rules over ``sheet_idx``."""

_KNOWN: dict[str, tuple[str, frozenset[str]]] = {
    "chart": ("chart_props", frozenset(parts.CHART_PROPERTIES)),
    "style": ("props", frozenset(parts.STYLES)),
    "row_props": ("props", parts.ROW_PROPERTIES),
    "col_props": ("props", parts.COLUMN_PROPERTIES),
    "pivot_table": ("pivot_props", parts.PIVOT_PROPERTIES),
}


def unsupported_parts(rule: Mapping[str, Any]) -> list[str]:
    """Return the parts of a rule of `PAIRS` or `SINGLES` that are not supported."""
    kind = str(rule.get("type"))
    missing: list[str] = []
    if kind in _KNOWN:
        option, known = _KNOWN[kind]
        asked = rule.get(option, [])
        missing = [str(name)[:_NAME_CHARS] for name in asked if name not in known]
    elif kind == "sheet_fuzzy":
        kinds = [c.get("type") if isinstance(c, dict) else None for c in rule.get("rules", [])]
        missing = [f"type {str(k)[:_NAME_CHARS]}" for k in kinds if k not in FUZZY]
    elif kind == "data_validation":
        entries = [(k, v) for p in rule.get("dv_props", []) if isinstance(p, dict) for k, v in p.items()]
        missing = [str(k)[:_NAME_CHARS] for k, _ in entries if k not in VALIDATION]
        missing += [name for _, v in entries if (name := unsupported_method(v))]
    elif kind == "zoom" and (name := unsupported_method(rule)):
        missing = [name]
    return [f"rule {kind} of {name}" for name in missing]
