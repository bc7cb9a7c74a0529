"""Contents of workbooks (xlsx) that are as good as the right one; each must earn 1."""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Callable
from functools import partial

import openpyxl
from lxml import etree
from openpyxl.formula.translate import Translator
from openpyxl.utils.cell import get_column_letter

from osgym_certify.ends.base import GoldenFile
from osgym_certify.ends.formula_variants import (
    absolute,
    area_listed,
    in_brackets,
    in_lower_case,
    over_rows,
    spaced,
    sum_as_chain,
)
from osgym_certify.ends.ooxml import PACKED_OTHERWISE, XML_SPACE, Change, Element, Package, integer
from osgym_certify.ends.workbook_scene import Mutation, Scene, change_of
from osgym_certify.ends.workbook_sheets import column_of
from osgym_certify.ends.xlsx_parts import Book, CellContent, Place, S, Sheet, as_number, set_in_font

_KEPT_BY_OPENPYXL = re.compile(
    r"\[Content_Types\]\.xml|_rels/\.rels|docProps/(app|core)\.xml|xl/workbook\.xml|xl/styles\.xml|"
    r"xl/sharedStrings\.xml|xl/_rels/workbook\.xml\.rels|xl/worksheets/sheet\d+\.xml|xl/theme/theme1\.xml"
)
_ELEMENTS_KEPT = frozenset(
    ("sheetPr", "dimension", "sheetViews", "sheetFormatPr", "cols", "sheetData", "mergeCells", "printOptions",
     "pageMargins", "pageSetup", "headerFooter")
)  # fmt: skip
_LAST_ROW = 1_048_576
"""Number of the last row that a sheet can have."""
_SPELLINGS = (
    ("0.00E+00", "0.00E+000"),
    ("[$$-409]#,##0.00", "[$$-409]#,##0.00;[RED]-[$$-409]#,##0.00", "[$USD] #,##0.00", '"$"#,##0.00'),
    ("yyyy-mm-dd", r"yyyy\-mm\-dd"),
)
"""Codes of number formats that LibreOffice offers for, or writes as, the same format."""


def _saved_by_openpyxl(package: Package, _: GoldenFile, __: object) -> bytes | bool:
    """Load and save the workbook, if openpyxl keeps all that is in it; it keeps no results of formulas."""
    book = Book(package)
    if not all(_KEPT_BY_OPENPYXL.fullmatch(name) for name in package.parts if name != "docProps/custom.xml"):
        return False
    tags = {etree.QName(one).localname for sheet in book.sheets for one in sheet.root}
    rich = [] if book.strings is None else list(book.strings.iter(f"{S}r", f"{S}rPh"))
    if next(book.formulas(), None) is not None or not tags <= _ELEMENTS_KEPT or rich:
        return False
    out = io.BytesIO()
    openpyxl.load_workbook(io.BytesIO(package.data())).save(out)
    saved = Package.read(out.getvalue())
    saved.remove("docProps/core.xml")  # it has the time
    relations = saved.relationships("")
    for one in [one for one in relations if one.get("Type", "").endswith("/core-properties")]:
        relations.remove(one)
    return saved.data()


def _strings_inline(scene: Scene) -> bool:
    """Store each text in its cell, as openpyxl's streaming writer and others do."""
    count = 0
    for sheet in scene.book.sheets:
        for place, cell in list(sheet.cells.items()):
            if cell.get("t") == "s":
                sheet.put(place, sheet.content(place), inline=True)
                count += 1
    return count > 0


def _strings_shared(scene: Scene) -> bool:
    """Store texts of cells in the table of shared strings."""
    count = 0
    scene.book.add_shared_strings()
    for sheet in scene.book.sheets:
        for place, cell in list(sheet.cells.items()):
            if cell.get("t") == "inlineStr":
                sheet.put(place, sheet.content(place))
                count += 1
    return count > 0


def _explicit_fonts(scene: Scene) -> bool:
    """State in each font that is neither bold nor italic that it is not."""
    count = 0
    for font in scene.book.styles.iterfind(f"{S}fonts/{S}font"):
        for tag in ("i", "b"):
            if font.find(f"{S}{tag}") is None:
                place = 1 if tag == "i" and font.find(f"{S}b") is not None else 0
                font.insert(place, etree.Element(f"{S}{tag}", val="0"))
                count += 1
    return count > 0


def _unused_style(scene: Scene) -> bool:
    """Add a format that no cell has."""
    formats = scene.book.cell_formats()
    new = copy.deepcopy(formats[0])
    formats.append(new)
    formats.set("count", str(len(formats)))
    set_in_font(scene.book.new_font(new), "strike", val="1")
    return True


def _empty_rows(scene: Scene) -> bool:
    """Store empty cells of the usual format below the table."""
    sheet = scene.draw_sheet()
    if sheet is None:
        return False
    last = integer(sheet.data[-1], "r")
    added = scene.dice.randint(2, 5)
    if last + added > _LAST_ROW:
        return False
    for number in range(last + 1, last + 1 + added):
        row = etree.SubElement(sheet.data, f"{S}row", r=str(number))
        etree.SubElement(row, f"{S}c", r=f"A{number}", s="0")
    return True


def _column_wider(scene: Scene) -> bool:
    sheet = scene.draw_sheet()
    if sheet is None:
        return False
    column = column_of(sheet, scene.dice.choice(sorted({column for _, column in sheet.filled()})))
    width = as_number(column.get("width", "9.14"))
    if column.get("hidden") in {"1", "true"} or width is None:
        return False
    column.set("width", f"{width + 1.5:g}")
    column.set("customWidth", "1")
    return True


def _views(sheet: Sheet) -> list[Element]:
    views = sheet.child("sheetViews", "sheetFormatPr", "cols", "sheetData")
    if views.find(f"{S}sheetView") is None:
        etree.SubElement(views, f"{S}sheetView", workbookViewId="0")
    return list(views.findall(f"{S}sheetView"))


def _zoomed(scene: Scene) -> bool:
    for sheet in scene.book.sheets:
        for view in _views(sheet):
            zoom = scene.dice.choice([z for z in ("85", "120", "150") if z != view.get("zoomScale")])
            view.set("zoomScale", zoom)
            view.set("zoomScaleNormal", zoom)
    return bool(scene.book.sheets)


def _another_cell_selected(scene: Scene) -> bool:
    sheet = scene.draw_sheet()
    if sheet is None:
        return False
    row, column = scene.dice.choice(sorted(sheet.filled()))
    cell = f"{get_column_letter(column)}{row}"
    for view in _views(sheet):
        if view.find(f"{S}pane") is not None:
            return False
        for old in view.findall(f"{S}selection"):
            view.remove(old)
        view.insert(0, etree.Element(f"{S}selection", activeCell=cell, sqref=cell))
    return True


def _another_sheet_shown(scene: Scene) -> bool:
    book = scene.book
    entries = list(book.list.findall(f"{S}sheet"))
    shown = book.root.find(f"{S}bookViews/{S}workbookView")
    if shown is None:
        return False
    now = integer(shown, "activeTab")
    others = [sheet for sheet in book.visible if entries.index(sheet.entry) != now]
    if not others:
        return False
    chosen = scene.dice.choice(others)
    shown.set("activeTab", str(entries.index(chosen.entry)))
    for sheet in book.sheets:
        for view in _views(sheet):
            view.set("tabSelected", "1" if sheet is chosen else "0")
    return True


def _number_formats_respelled(scene: Scene) -> bool:
    """Give number formats that the oracle set another code for the same format."""
    book, before, count = scene.book, scene.before, 0
    for sheet in book.sheets:
        old = before.sheet(sheet.name) if before is not None else None
        for place, cell in sheet.cells.items():
            code = book.number_format(cell)
            if before is not None and (old is None or before.number_format(old.cells.get(place)) == code):
                continue
            group = next((codes for codes in _SPELLINGS if code in codes), ())
            if group:
                new = next(one for one in group[group.index(code) + 1 :] + group if one != code)
                book.restyle([cell], partial(_set_code, code=new))
                count += 1
    return count > 0


def _set_code(book: Book, form: Element, code: str) -> None:
    book.set_number_format(form, code)


def _asked(scene: Scene) -> list[tuple[Sheet, Place, CellContent]]:
    """Return the formulas that the oracle wrote, all if there was no workbook before."""
    mine, is_new = scene.mine, scene.before is None
    found: list[tuple[Sheet, Place, CellContent]] = []
    for sheet in scene.book.sheets:
        fixed = sheet.array_places()
        found += [
            (sheet, place, content)
            for place, content in sheet.filled().items()
            if content.formula and place not in fixed and (is_new or (sheet.name, place) in mine)
        ]
    return found


def _formulas(spell: Callable[[str], str | None]) -> Mutation:
    """Return a change that spells the formulas differently that the oracle wrote."""

    def change(scene: Scene) -> bool:
        count = 0
        for sheet, place, old in _asked(scene):
            if formula := spell(old.formula):
                sheet.put(place, CellContent(old.kind, old.text, formula))
                count += 1
        return count > 0

    return change


def _sums_as_chains(scene: Scene) -> bool:
    count = 0
    contents = {sheet.name: sheet.filled() for sheet in scene.book.sheets}
    for sheet, place, old in _asked(scene):
        here = contents[sheet.name]

        def is_number(row: int, column: int, here: dict[Place, CellContent] = here) -> bool:
            content = here.get((row, column))
            return content is not None and content.kind == "number"

        if formula := sum_as_chain(old.formula, is_number):
            sheet.put(place, CellContent(old.kind, old.text, formula))
            count += 1
    return count > 0


def _column_as_array(scene: Scene) -> bool:
    """Replace formulas that were filled down a column by one array formula over its rows."""
    count = 0
    asked = {(sheet.name, place): (sheet, content) for sheet, place, content in _asked(scene)}
    for (name, (row, column)), (sheet, content) in asked.items():
        if (name, (row - 1, column)) in asked:
            continue
        last = row
        origin = f"{get_column_letter(column)}{row}"
        while below := asked.get((name, (last + 1, column))):
            moved = Translator(f"={content.formula}", origin).translate_formula(
                f"{get_column_letter(column)}{last + 1}"
            )
            if moved.removeprefix("=").upper() != below[1].formula.upper():
                break
            last += 1
        formula = over_rows(content.formula, row, last) if last > row else None
        if formula is None or (name, (last + 1, column)) in asked:
            continue
        for number in range(row, last + 1):
            cell = sheet.cells[number, column]
            cell.remove(cell.find(f"{S}f"))
        first = etree.Element(f"{S}f", t="array", ref=f"{origin}:{get_column_letter(column)}{last}")
        first.text = formula
        first.set(XML_SPACE, "preserve")
        sheet.cells[row, column].insert(0, first)
        count += 1
    return count > 0


EQUIVALENTS: dict[str, Change] = {
    **PACKED_OTHERWISE,
    "saved by openpyxl": _saved_by_openpyxl,
    **{
        name: change_of(change)
        for name, change in {
            "texts stored in their cells": _strings_inline,
            "texts stored in the shared table": _strings_shared,
            "fonts stated as neither bold nor italic": _explicit_fonts,
            "unused format added": _unused_style,
            "empty rows stored below the table": _empty_rows,
            "one column wider": _column_wider,
            "other zoom": _zoomed,
            "other cell selected": _another_cell_selected,
            "other sheet shown": _another_sheet_shown,
            "number formats spelled otherwise": _number_formats_respelled,
            "areas of aggregates listed": _formulas(area_listed),
            "sums as chains of additions": _sums_as_chains,
            "formulas with spaces": _formulas(spaced),
            "formulas in lower case": _formulas(in_lower_case),
            "formulas with absolute references": _formulas(absolute),
            "formulas in brackets": _formulas(in_brackets),
            "column as one array formula": _column_as_array,
        }.items()
    },
}
"""Equivalents by the name of the content that they make."""
