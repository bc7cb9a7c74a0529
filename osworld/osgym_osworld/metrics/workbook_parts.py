"""Parts of workbooks other than values: charts, pivot tables, filters, styles, rows, columns, sparklines.

Each function reads one kind of part of a sheet of openpyxl's, in the properties that OSWorld's rules name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from osgym_host.tasks.metric_plugin import InputFile

Facts = Mapping[object, object]


def refuse_more_cells(file: InputFile, sheet: Any, most: int) -> None:
    """Raise an error if a sheet stores more cells than `most`; empty places between them do not count.

    Raises:
        Unreadable: It does.
    """
    if len(sheet._cells) > most:
        raise file.bad(f"the sheet {sheet.title} is too large")


def stored_cells(file: InputFile, sheet: Any, most: int) -> list[Any]:
    """Return the cells that a sheet stores, by rows.

    Raises:
        Unreadable: There are more than `most`.
    """
    refuse_more_cells(file, sheet, most)
    return [sheet._cells[place] for place in sorted(sheet._cells)]


def charts(sheet: Any, properties: Iterable[str]) -> Facts:
    """Return charts by the ranges of their series."""
    return {
        ";".join(f"{_source(s, 'val')},{_source(s, 'cat')}" for s in chart.series): {
            name: CHART_PROPERTIES[name](chart) for name in properties
        }
        for chart in sheet._charts
    }


def _source(series: Any, role: str) -> str:
    """Return the range of a series' values or categories, empty where there is none."""
    data = getattr(series, role, None)
    for kind in ("numRef", "strRef"):
        formula = getattr(getattr(data, kind, None), "f", None)
        if formula is not None:
            return str(formula)
    return ""


def _title(owner: Any) -> str | None:
    """Return the first run of the first paragraph of a chart's or an axis' title."""
    rich = getattr(getattr(getattr(owner, "title", None), "tx", None), "rich", None)
    runs = rich.p[0].r if rich is not None and rich.p else None
    return runs[0].t if runs else None


def _axis_title(name: str) -> Callable[[Any], object]:
    return lambda chart: _title(getattr(chart, name, None))


def _anchor(chart: Any) -> object:
    start, end = getattr(chart.anchor, "_from", None), getattr(chart.anchor, "to", None)
    edges = getattr(start, "col", None), getattr(end, "row", None), getattr(end, "col", None)
    return getattr(chart.anchor, "editAs", None), *edges


CHART_PROPERTIES: dict[str, Callable[[Any], object]] = {
    "title": _title,
    "legend": lambda chart: chart.legend.position if chart.legend is not None else None,
    "anchor": _anchor,
    "width": lambda chart: chart.width,
    "height": lambda chart: chart.height,
    "type": lambda chart: chart.tagname,
    "direction": lambda chart: getattr(chart, "barDir", None),
    "xtitle": _axis_title("x_axis"),
    "ytitle": _axis_title("y_axis"),
    "ztitle": _axis_title("z_axis"),
}

PIVOT_PROPERTIES = frozenset(
    [
        "name",
        "show_total",
        "show_empty_row",
        "show_empty_col",
        "show_headers",
        "location",
        "selection",
        "ordered",
        "filter",
        "col_fields",
        "row_fields",
        "data_fields",
        "data_fields_name",
    ]
)


def pivots(sheet: Any, properties: Iterable[str]) -> Facts:
    """Return pivot tables by their source, without columns that they do not use at both ends."""
    wanted = frozenset(properties)
    return dict(_pivot(pivot, wanted) for pivot in sheet._pivots)


def _pivot(pivot: Any, wanted: frozenset[str]) -> tuple[str, dict[str, object]]:
    items = [[(i.h, i.x) for i in field.items if i.x is not None] for field in pivot.pivotFields]
    used = [place for place, field in enumerate(items) if field]
    first, after = (used[0], used[-1] + 1) if used else (len(items), len(items))
    source = pivot.cache.cacheSource
    place = source.worksheetSource
    key = f"{source.type};{_shifted(place.ref, first, len(items) - after)};{place.sheet}"
    facts: dict[str, object] = {
        "name": pivot.name,
        "show_total": pivot.visualTotals,
        "show_empty_row": pivot.showEmptyRow,
        "show_empty_col": pivot.showEmptyCol,
        "show_headers": pivot.showHeaders,
        "location": pivot.location,
        "col_fields": [field.x - first for field in pivot.colFields],
        "row_fields": [field.x - first for field in pivot.rowFields],
        "data_fields": [
            (f.fld - first, f.name if "data_fields_name" in wanted else "", f.subtotal, f.showDataAs)
            for f in pivot.dataFields
        ],
    }
    facts = {name: value for name, value in facts.items() if name in wanted}
    if wanted & {"filter", "selection"}:
        kept = items[first:after]
        facts["selection"] = kept if "ordered" in wanted else [set(field) for field in kept]
    if "filter" in wanted:
        facts["filter_fields"] = {field.fld for field in pivot.pageFields}
    return key, facts


def _shifted(reference: str, left: int, right: int) -> str:
    from openpyxl.utils.cell import range_boundaries

    first_column, first_row, last_column, last_row = range_boundaries(reference)
    assert first_column is not None and last_column is not None
    return f"{first_row},{first_column + left}:{last_row},{last_column - right}"


def filters(sheet: Any) -> object:
    """Return the automatic filter: its range, its columns, its order."""
    auto = sheet.auto_filter
    columns = sorted(auto.filterColumn, key=lambda column: column.colId)
    return auto.ref, [_filter_column(column) for column in columns], _order(auto.sortState)


def _filter_column(column: Any) -> object:
    plain, custom = column.filters, column.customFilters
    return (
        (column.colId, column.hiddenButton, column.showButton),
        None if plain is None else (plain.blank, set(plain.filter)),
        None if custom is None else (custom._and, {(f.operator, f.val) for f in custom.customFilter}),
    )


def _order(state: Any) -> object:
    if state is None:
        return None
    names = ("descending", "sortBy", "ref", "customList", "dxfId", "iconSet", "iconId")
    conditions = [tuple(getattr(condition, name) for name in names) for condition in state.sortCondition]
    return state.columnSort, state.caseSensitive, state.sortMethod, state.ref, conditions


def _font(name: str) -> Callable[[Any], object]:
    return lambda cell: getattr(cell.font, name) if cell.value is not None else None


def _fill_color(cell: Any) -> object:
    return getattr(getattr(cell.fill, "fgColor", None), "rgb", None)


def _font_color(cell: Any) -> object:
    return getattr(cell.font.color, "rgb", None) if cell.value is not None else None


def _is_merged(cell: Any) -> bool:
    from openpyxl.cell.cell import MergedCell

    return isinstance(cell, MergedCell)


STYLES: dict[str, Callable[[Any], object]] = {
    "number_format": lambda c: c.number_format if c.value is not None and c.data_type == "n" else None,
    "font_name": _font("name"),
    "font_family": _font("family"),
    "font_color": _font_color,
    "font_bold": _font("bold"),
    "font_italic": _font("italic"),
    "font_underline": _font("underline"),
    "font_size": _font("size"),
    "fill_type": lambda cell: getattr(cell.fill, "tagname", None),
    "bgcolor": _fill_color,
    "fgcolor": _fill_color,
    "hyperlink": lambda cell: _link(cell) if cell.value is not None else None,
    "merge": _is_merged,
}


def _link(cell: Any) -> str:
    return "" if cell.hyperlink is None else str(cell.hyperlink.target or cell.hyperlink.location or "")


def style(cell: Any, name: str) -> object:
    """One property of how a cell looks; a colour of a theme is no colour, as in OSWorld it is an error."""
    value = STYLES[name](cell)
    return value if isinstance(value, str | int | float | None) else None


def styles(sheet: Any, properties: Iterable[str]) -> Facts:
    names = list(properties)
    return {cell.coordinate: [style(cell, name) for name in names] for row in sheet.rows for cell in row}


def conditional_formats(sheet: Any) -> list[tuple[object, ...]]:
    """Return conditional formats as they are written: their ranges, conditions and what they change."""
    return sorted(
        (str(area.sqref), str(rule.type), str(rule.operator), tuple(rule.formula), _changes(rule.dxf))
        for area in sheet.conditional_formatting
        for rule in area.rules
    )


def _changes(changed: Any) -> tuple[str, ...]:
    fill, font = getattr(changed, "fill", None), getattr(changed, "font", None)
    background = getattr(getattr(fill, "bgColor", None), "rgb", None)
    letters = [getattr(font, name, None) for name in ("b", "i", "u")]
    return tuple(str(v) for v in (background, getattr(getattr(font, "color", None), "rgb", None), *letters))


ROW_PROPERTIES = frozenset({"hidden", "collapsed", "height", "customHeight", "outlineLevel"})
COLUMN_PROPERTIES = frozenset(
    {"width", "auto_size", "hidden", "collapsed", "min", "max", "customWidth", "outlineLevel"}
)


def dimensions(holder: Any, properties: Iterable[str]) -> Facts:
    """Return rows by number, or columns by letter, that have settings of their own."""
    names = list(properties)
    return {key: {name: getattr(entry, name) for name in names} for key, entry in holder.items()}
