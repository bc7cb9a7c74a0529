"""Wrong contents of workbooks (xlsx): sheets added or removed, hidden columns, comments; each must earn 0."""

from __future__ import annotations

import re

from lxml import etree
from openpyxl.utils.cell import get_column_letter

from osgym_certify.ends.ooxml import Element, R, UnreadableFile, integer
from osgym_certify.ends.workbook_scene import Mutation, Scene
from osgym_certify.ends.xlsx_parts import Book, S, Sheet

_MAIN = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_MAX_NAME = 31
"""Largest number of characters in the name of a sheet."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BEHIND_COMMENTS = ("legacyDrawingHF", "picture", "oleObjects", "controls", "tableParts", "extLst")
_BEHIND_MERGED = (
    *("phoneticPr", "conditionalFormatting", "dataValidations", "hyperlinks", "printOptions", "pageMargins"),
    *("pageSetup", "headerFooter", "rowBreaks", "colBreaks", "drawing", "legacyDrawing", *_BEHIND_COMMENTS),
)
_NOTES = (
    '<comments xmlns="{space}"><authors><author/></authors><commentList><comment ref="{cell}" authorId="0">'
    "<text><r><t>Check this.</t></r></text></comment></commentList></comments>"
)
_NOTE_SHAPE = (
    '<xml xmlns:v="urn:schemas-microsoft-com:vml" xmlns:o="urn:schemas-microsoft-com:office:office" '
    'xmlns:x="urn:schemas-microsoft-com:office:excel"><v:shape id="note" type="#_x0000_t202" '
    'style="position:absolute;width:108pt;height:59pt;visibility:hidden"><x:ClientData ObjectType="Note">'
    "<x:Row>{row}</x:Row><x:Column>{column}</x:Column></x:ClientData></v:shape></xml>"
)


def _new_name(book: Book, stem: str) -> str:
    taken = {sheet.name.lower() for sheet in book.sheets}
    names = [f"{stem[: _MAX_NAME - 3]} {number}" for number in range(2, len(taken) + 3)]
    return next(name for name in names if name.lower() not in taken)


def _added(scene: Scene) -> bool:
    book = scene.book
    part = book.package.new_name("xl/worksheets/sheet{}.xml")
    book.package.put(part, f'<worksheet xmlns="{S[1:-1]}"><sheetData/></worksheet>'.encode())
    book.package.declare(part, f"{_MAIN}.worksheet+xml")
    key = book.package.relate(book.main, "worksheet", part)
    number = max((integer(entry, "sheetId") for entry in book.list), default=0) + 1
    entry = etree.SubElement(book.list, f"{S}sheet", name=_new_name(book, "Sheet"), sheetId=str(number))
    entry.set(f"{R}id", key)
    return True


def _entries(book: Book) -> list[Element]:
    return list(book.list.findall(f"{S}sheet"))


def _reordered(book: Book, entries: list[Element]) -> None:
    """Set the list of sheets; names that are defined for one sheet, and the sheet shown, follow it."""
    old = _entries(book)
    for entry in old:
        book.list.remove(entry)
    book.list.extend(entries)
    moved = {number: entries.index(entry) for number, entry in enumerate(old) if entry in entries}
    for name in list(book.root.iter(f"{S}definedName")):
        if name.get("localSheetId") is not None:
            number = moved.get(integer(name, "localSheetId"))
            if number is None:
                name.getparent().remove(name)
            else:
                name.set("localSheetId", str(number))
    shown = [n for n, entry in enumerate(entries) if entry.get("state", "visible") == "visible"]
    for view in book.root.iter(f"{S}workbookView"):
        number = moved.get(integer(view, "activeTab"), shown[0])
        view.set("activeTab", str(number if number in shown else shown[0]))
        view.set("firstSheet", "0")


def _removed(book: Book, sheets: list[Sheet]) -> None:
    gone = [sheet.entry for sheet in sheets]
    _reordered(book, [entry for entry in _entries(book) if entry not in gone])
    for sheet in sheets:
        book.package.unrelate(book.main, sheet.entry.get(f"{R}id"))
        book.package.remove(sheet.part)


def _one_removed(scene: Scene) -> bool:
    book = scene.book
    free = [sheet for sheet in book.sheets if len(book.visible) > 1 or sheet not in book.visible]
    if len(book.sheets) < 2 or not free:
        return False
    _removed(book, [scene.dice.choice(free)])
    return True


def _only_first_kept(scene: Scene) -> bool:
    book = scene.book
    if len(book.sheets) < 3 or book.sheets[0] not in book.visible:
        return False
    _removed(book, book.sheets[1:])
    return True


def _renamed(scene: Scene) -> bool:
    """Rename a sheet; formulas name it anew."""
    sheet = scene.dice.choice(scene.book.sheets)
    old, new = sheet.name, _new_name(scene.book, sheet.name)
    sheet.entry.set("name", new)
    quoted = "'{}'!".format(old.replace("'", "''"))
    said = "'{}'!".format(new.replace("'", "''"))
    for formula in scene.book.formulas():
        text = (formula.text or "").replace(quoted, said)
        if _PLAIN_NAME.fullmatch(old):
            text = re.sub(rf"(?<![\w.'!]){re.escape(old)}!", lambda _: said, text)
        formula.text = text or None
    return True


def _hidden(scene: Scene) -> bool:
    if len(scene.book.visible) < 2:
        return False
    scene.dice.choice(scene.book.visible).entry.set("state", "hidden")
    _reordered(scene.book, _entries(scene.book))
    return True


def _shown(scene: Scene) -> bool:
    hidden = [sheet for sheet in scene.book.sheets if sheet not in scene.book.visible]
    if not hidden:
        return False
    scene.dice.choice(hidden).entry.set("state", "visible")
    return True


def _moved(scene: Scene) -> bool:
    first, *rest = _entries(scene.book)
    _reordered(scene.book, [*rest, first])
    return bool(rest)


def column_of(sheet: Sheet, number: int) -> Element:
    """Return the element with the width of one column alone, made if it does not exist."""
    columns = sheet.child("cols", "sheetData")
    for one in list(columns):
        low, high = integer(one, "min"), integer(one, "max")
        if low <= number <= high:
            for start, end, is_before in ((low, number - 1, True), (number + 1, high, False)):
                if start <= end:
                    rest = etree.Element(one.tag, {**one.attrib, "min": str(start), "max": str(end)})
                    (one.addprevious if is_before else one.addnext)(rest)
            one.set("min", str(number))
            one.set("max", str(number))
            return one
    new = etree.Element(f"{S}col", min=str(number), max=str(number), width="9.14", customWidth="1")
    columns.insert(sum(integer(one, "max") < number for one in columns), new)
    return new


def _column_hidden(scene: Scene) -> bool:
    sheet = scene.draw_sheet()
    if sheet is None:
        return False
    columns = sorted({column for _, column in sheet.filled()})
    column = column_of(sheet, scene.dice.choice(columns))
    was_hidden = column.get("hidden") in {"1", "true"}
    column.set("hidden", "1")
    return not was_hidden


def _row_hidden(scene: Scene) -> bool:
    sheet = scene.draw_sheet()
    if sheet is None:
        return False
    filled = {row for row, _ in sheet.filled()}
    rows = [row for row in sheet.data if integer(row, "r") in filled]
    rows = [row for row in rows if row.get("hidden") not in {"1", "true"}]
    if not rows:
        return False
    scene.dice.choice(rows).set("hidden", "1")
    return True


def _panes(scene: Scene) -> bool:
    """Release frozen rows and columns."""
    panes = [pane for sheet in scene.book.sheets for pane in sheet.root.iter(f"{S}pane")]
    for pane in panes:
        view = pane.getparent()
        view.remove(pane)
        for selection in view.findall(f"{S}selection"):
            view.remove(selection)
    return bool(panes)


def _merged(scene: Scene) -> bool:
    """Merge a cell of the last row with the empty cell right of the table."""
    sheet = scene.draw_sheet()
    if sheet is None or sheet.root.find(f"{S}mergeCells") is not None:
        return False
    row, column = sheet.last()
    area = f"{get_column_letter(column)}{row}:{get_column_letter(column + 1)}{row}"
    merged = sheet.child("mergeCells", *_BEHIND_MERGED)
    merged.set("count", "1")
    etree.SubElement(merged, f"{S}mergeCell", ref=area)
    return True


def _commented(scene: Scene) -> bool:
    sheet, package = scene.draw_sheet(), scene.book.package
    if sheet is None or sheet.root.find(f"{S}legacyDrawing") is not None:
        return False
    if package.related(sheet.part, "comments"):
        return False
    row, column = scene.dice.choice(sorted(sheet.filled()))
    notes, shape = package.new_name("xl/comments{}.xml"), package.new_name("xl/drawings/vmlDrawing{}.vml")
    cell = f"{get_column_letter(column)}{row}"
    package.put(notes, _NOTES.format(space=S[1:-1], cell=cell).encode())
    package.put(shape, _NOTE_SHAPE.format(row=row - 1, column=column - 1).encode())
    package.declare(notes, f"{_MAIN}.comments+xml")
    package.declare(shape, "application/vnd.openxmlformats-officedocument.vmlDrawing")
    package.relate(sheet.part, "comments", notes)
    drawing = sheet.child("legacyDrawing", *_BEHIND_COMMENTS)
    drawing.set(f"{R}id", package.relate(sheet.part, "vmlDrawing", shape))
    return True


def _frozen(scene: Scene) -> bool:
    """Freeze the first row of a sheet that has none frozen."""
    sheet = scene.draw_sheet()
    if sheet is None or next(sheet.root.iter(f"{S}pane"), None) is not None:
        return False
    views = sheet.child("sheetViews", "sheetFormatPr", "cols", "sheetData")
    view = views.find(f"{S}sheetView")
    if view is None:
        view = etree.SubElement(views, f"{S}sheetView", workbookViewId="0")
    for selection in view.findall(f"{S}selection"):
        view.remove(selection)
    pane = etree.Element(f"{S}pane", ySplit="1", topLeftCell="A2", activePane="bottomLeft", state="frozen")
    view.insert(0, pane)
    return True


def _with_sheets(mutation: Mutation) -> Mutation:
    """Return a mutation that refuses workbooks without a visible sheet."""

    def change(scene: Scene) -> bool:
        if not scene.book.visible:
            raise UnreadableFile("the workbook has no visible sheet")
        return mutation(scene)

    return change


MUTATIONS_OF_SHEETS: dict[str, Mutation] = {
    name: _with_sheets(mutation)
    for name, mutation in {
        "sheet added": _added,
        "one sheet removed": _one_removed,
        "only the first sheet kept": _only_first_kept,
        "one sheet renamed": _renamed,
        "one sheet hidden": _hidden,
        "hidden sheet shown": _shown,
        "first sheet moved to the end": _moved,
        "one column hidden": _column_hidden,
        "one row hidden": _row_hidden,
        "frozen rows released": _panes,
        "first row frozen": _frozen,
        "last cell merged": _merged,
        "comment added": _commented,
    }.items()
}
"""Mutations by the name of the content that they make."""
