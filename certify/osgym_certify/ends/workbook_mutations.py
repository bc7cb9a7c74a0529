"""Wrong contents of workbooks (xlsx), made from the right one; each must earn 0."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

from openpyxl.formula.translate import Translator
from openpyxl.utils.cell import get_column_letter

from osgym_certify.ends.base import Content, GoldenFile, Must
from osgym_certify.ends.ooxml import Element, Package
from osgym_certify.ends.workbook_scene import Mutation, Scene
from osgym_certify.ends.xlsx_parts import EMPTY, Book, CellContent, Place, S, Sheet, as_number, set_in_font

MAX_PUT_BACK = 6
"""Largest number of contents in each of which one cell has its value before."""
SMALL_PT = "4"
_ROW = re.compile(r"\$?[A-Z]{1,3}\$?(\d+)")


def put_back(package: Package, golden: GoldenFile, dice: random.Random) -> Iterator[Content]:
    """Yield workbooks in each of which one cell that the oracle changed has its content before."""
    changed = Scene.of(package, golden, dice).changed
    for change in dice.sample(changed, min(len(changed), MAX_PUT_BACK)):
        draft = Package.read(golden.data)
        sheet = Book(draft).sheet(change.sheet)
        assert sheet is not None
        sheet.put(change.place, change.before)
        yield Content("one changed cell put back", Must.EARN_NOTHING, draft.data())


def _replaced_formula(scene: Scene, formula: str) -> bool:
    """Write a formula with the result of another one instead of that one."""

    def fits(_: Sheet, __: Place, content: CellContent) -> bool:
        return bool(content.formula) and content.kind == "number" and bool(content.text)

    found = scene.draw_cell(fits)
    if found is None:
        return False
    sheet, place = found
    old = sheet.content(place)
    numbers = [p for p, c in sheet.filled().items() if c.kind == "number" and not c.formula]
    if "{cell}" in formula and not numbers:
        return False
    row, column = numbers[0] if numbers else (1, 1)
    text = formula.format(result=old.text, cell=f"{get_column_letter(column)}{row}")
    sheet.put(place, CellContent(old.kind, old.text, text))
    return True


def _all_formulas_replaced(scene: Scene) -> bool:
    formulas = [one for sheet in scene.book.sheets for one in sheet.root.iter(f"{S}f")]
    for formula in formulas:
        formula.getparent().remove(formula)
    return len(formulas) > 1


def _number_as_text(scene: Scene) -> bool:
    found = scene.draw_cell(lambda sheet, place, content: content.kind == "number" and bool(content.text))
    if found is None:
        return False
    sheet, place = found
    sheet.put(place, CellContent("text", sheet.content(place).text))
    return True


def _another_value(scene: Scene, *, is_changed: bool) -> bool:
    mine = scene.mine

    def fits(sheet: Sheet, place: Place, content: CellContent) -> bool:
        return (
            ((sheet.name, place) in mine) == is_changed
            and not content.formula
            and content.kind in ("text", "number")
        )

    found = scene.draw_cell(fits)
    if found is None:
        return False
    sheet, place = found
    old = sheet.content(place)
    number = as_number(old.text)
    new = f"{old.text}x" if old.kind == "text" or number is None else repr(number + 1).removesuffix(".0")
    sheet.put(place, CellContent(old.kind, new))
    return True


Row = dict[int, CellContent]
"""Contents of a row by column."""


def _rows(sheet: Sheet | None) -> dict[int, Row]:
    """Return the rows below the first with a content; none if a formula fills several cells."""
    found: dict[int, Row] = {}
    for (number, column), content in sheet.filled().items() if sheet is not None else ():
        found.setdefault(number, {})[column] = content
    return {} if sheet is None or sheet.array_places() else dict(list(found.items())[1:])


def _moved(row: Row, number: int, to: int) -> Row:
    """Return the contents of a row for another one: formulas over this row alone are over that one."""
    found: Row = {}
    for column, content in row.items():
        formula = content.formula
        if formula and set(_ROW.findall(formula)) == {str(number)}:
            origin, place = (f"{get_column_letter(column)}{one}" for one in (number, to))
            formula = Translator(f"={formula}", origin).translate_formula(place).removeprefix("=")
        found[column] = CellContent(content.kind, content.text, formula)
    return found


def _put_rows(sheet: Sheet, rows: dict[int, Row]) -> None:
    """Replace the contents of rows."""
    places = [place for place in sheet.cells if place[0] in rows]
    places += [(number, column) for number, row in rows.items() for column in row]
    for number, column in sorted(set(places)):
        sheet.put((number, column), rows[number].get(column, EMPTY))


def _row_removed(scene: Scene) -> bool:
    """Empty a row and move the contents of those below up by one."""
    sheet = scene.draw_sheet()
    rows = _rows(sheet)
    if sheet is None or not rows:
        return False
    first, last = scene.dice.choice(list(rows)), max(rows)
    _put_rows(
        sheet,
        {number: _moved(rows.get(number + 1, {}), number + 1, number) for number in range(first, last + 1)},
    )
    return True


def _row_doubled(scene: Scene) -> bool:
    """Insert a copy of a row below it."""
    sheet = scene.draw_sheet()
    rows = _rows(sheet)
    if sheet is None or not rows:
        return False
    first, last = scene.dice.choice(list(rows)), max(rows)
    _put_rows(
        sheet,
        {number + 1: _moved(rows.get(number, {}), number, number + 1) for number in range(first, last + 1)},
    )
    return True


def _rows_swapped(scene: Scene) -> bool:
    sheet = scene.draw_sheet()
    rows = _rows(sheet)
    numbers = list(rows)
    pairs = [(a, b) for a, b in pairwise(numbers) if _moved(rows[b], b, a) != rows[a]]
    if sheet is None or not pairs:
        return False
    a, b = scene.dice.choice(pairs)
    _put_rows(sheet, {a: _moved(rows[b], b, a), b: _moved(rows[a], a, b)})
    return True


def _header_emptied(scene: Scene) -> bool:
    sheet = scene.draw_sheet()
    if sheet is None or sheet.array_places():
        return False
    _put_rows(sheet, {min(row for row, _ in sheet.filled()): {}})
    return True


def _all_emptied(scene: Scene) -> bool:
    is_filled = any(sheet.filled() for sheet in scene.book.sheets)
    for sheet in scene.book.sheets:
        for row in list(sheet.data):
            sheet.data.remove(row)
    return is_filled


def _filled_outside(scene: Scene) -> bool:
    sheet = scene.draw_sheet()
    if sheet is None:
        return False
    row, column = sheet.last()
    sheet.put((row + scene.dice.randint(2, 5), column + scene.dice.randint(2, 4)), CellContent("text", "x"))
    return True


def _restyled(scene: Scene, change: Callable[[Book, Element], None]) -> bool:
    """Change the look of all cells that have a content."""
    cells = [sheet.cells[place] for sheet in scene.book.sheets for place in sheet.filled()]
    scene.book.restyle(cells, change)
    return bool(cells)


def _font(tag: str, **attributes: str) -> Mutation:
    def change(book: Book, form: Element) -> None:
        set_in_font(book.new_font(form), tag, **attributes)

    return partial(_restyled, change=change)


def _centre(_: Book, form: Element) -> None:
    alignment = form.find(f"{S}alignment")
    if alignment is None:
        alignment = form.makeelement(f"{S}alignment")
        form.insert(0, alignment)
    alignment.set("horizontal", "center")
    form.set("applyAlignment", "1")


def _number_format_changed(scene: Scene) -> bool:
    """Give a cell its number format before if the oracle changed one, else an unchanged cell another one."""
    places: list[tuple[Sheet, Place, str]] = []
    for sheet in scene.book.sheets:
        old = scene.before.sheet(sheet.name) if scene.before is not None else None
        for place, content in sheet.filled().items():
            if content.kind == "number" and old is not None and scene.before is not None:
                was = scene.before.number_format(old.cells.get(place))
                if was != scene.book.number_format(sheet.cells[place]):
                    places.append((sheet, place, was))
    if places:
        sheet, place, code = scene.dice.choice(places)
    else:
        mine = scene.mine  # their formats are often left open
        found = scene.draw_cell(
            lambda one, at, content: content.kind == "number" and (one.name, at) not in mine
        )
        if found is None:
            return False
        sheet, place = found
        code = "0.000%" if scene.book.number_format(sheet.cells[place]) != "0.000%" else "0.0"
    scene.book.restyle([sheet.cells[place]], lambda book, form: book.set_number_format(form, code))
    return True


MUTATIONS_OF_CELLS: dict[str, Mutation] = {
    "formula replaced by its value": partial(_replaced_formula, formula=""),
    "formula replaced by a sum of its result": partial(_replaced_formula, formula="SUM({result})"),
    "formula replaced by its result plus zero times a cell": partial(
        _replaced_formula, formula="{result}+0*{cell}"
    ),
    "all formulas replaced by their values": _all_formulas_replaced,
    "number stored as text": _number_as_text,
    "another value in a changed cell": partial(_another_value, is_changed=True),
    "another value in an unchanged cell": partial(_another_value, is_changed=False),
    "one row removed": _row_removed,
    "one row doubled": _row_doubled,
    "two rows swapped": _rows_swapped,
    "header emptied": _header_emptied,
    "all cells emptied": _all_emptied,
    "cell outside the table filled": _filled_outside,
    "all cells bold": _font("b", val="1"),
    "all cells in white text": _font("color", rgb="FFFFFFFF"),
    "all cells in 4 pt": _font("sz", val=SMALL_PT),
    "all cells centred": partial(_restyled, change=_centre),
    "one number format changed": _number_format_changed,
}
"""Mutations by the name of the content that they make."""
