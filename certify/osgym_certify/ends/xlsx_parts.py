"""Workbooks (xlsx) as XML that may be changed: sheets, contents of cells, styles of cells."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lxml import etree
from openpyxl.styles.numbers import BUILTIN_FORMATS
from openpyxl.utils.cell import column_index_from_string, coordinate_from_string, get_column_letter
from openpyxl.utils.exceptions import CellCoordinatesException

from osgym_certify.ends.ooxml import XML_SPACE, Element, Package, R, UnreadableFile, integer

S = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
MAX_CELLS = 200_000
_STRINGS = "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
_FIRST_OWN_FORMAT = 164

Place = tuple[int, int]
"""Row and column of a cell, from 1."""


@dataclass(frozen=True, slots=True)
class CellContent:
    """Content of a cell.

    Attributes:
        kind: "" if empty, else "number", "text", "bool" or "error".
        text: Value, which a formula had when the file was saved.
        formula: Formula without its equals sign; empty if the cell has none.
    """

    kind: str = ""
    text: str = ""
    formula: str = ""

    @property
    def comparable(self) -> tuple[str, ...]:
        """Content as other programs may write it differently."""
        if self.formula:
            return ("formula", self.formula.replace(" ", "").upper())
        if self.kind == "number":
            return ("number", repr(as_number(self.text)))
        return (self.kind, self.text)


EMPTY = CellContent()


def as_number(text: str) -> float | None:
    """Return the number of a cell's value; None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None


class Sheet:
    """A worksheet of a workbook.

    Attributes:
        entry: Element of the list of sheets.
        part: Name of its part in the package.
        root: Root of that part.
        cells: Elements of its cells.
    """

    def __init__(self, book: Book, entry: Element, part: str) -> None:
        self._book = book
        self.entry = entry
        self.part = part
        self.root = book.package.root(part)
        self.cells = dict(self._numbered())

    @property
    def name(self) -> str:
        return str(self.entry.get("name", ""))

    @property
    def data(self) -> Element:
        """Element with the rows.

        Raises:
            UnreadableFile: The sheet has none.
        """
        found = self.root.find(f"{S}sheetData")
        if found is None:
            raise UnreadableFile(f"the sheet {self.name!r} has no rows")
        return found

    def _numbered(self) -> Iterator[tuple[Place, Element]]:
        """Yield the cells; rows and cells that do not state their place get it."""
        row_number = count = 0
        for row in self.data.findall(f"{S}row"):
            row_number = integer(row, "r", row_number + 1)
            row.set("r", str(row_number))
            column = 0
            for cell in row.findall(f"{S}c"):
                column = _column(cell.get("r")) or column + 1
                cell.set("r", f"{get_column_letter(column)}{row_number}")
                count += 1
                if count > MAX_CELLS:
                    raise UnreadableFile(f"the sheet {self.name!r} is too large")
                yield (row_number, column), cell

    def content(self, place: Place) -> CellContent:
        """Return the content of a cell; a cell inside an array formula has only its value."""
        cell = self.cells.get(place)
        if cell is None:
            return EMPTY
        formula = cell.find(f"{S}f")
        shown = "" if formula is None else (formula.text or f"shared {formula.get('si')}")
        value = cell.findtext(f"{S}v") or ""
        match cell.get("t", "n"):
            case "s":
                kind, value = "text", self._book.shared_text(value)
            case "inlineStr":
                kind, value = "text", "".join(t.text or "" for t in cell.iterfind(f"{S}is//{S}t"))
            case "str" | "d":
                kind = "text"
            case "b":
                kind = "bool"
            case "e":
                kind = "error"
            case _:
                kind = "number"
        return CellContent(kind, value, shown) if value or shown else EMPTY

    def filled(self) -> dict[Place, CellContent]:
        """Return the contents of all cells that have any, by row and column."""
        found = {place: self.content(place) for place in sorted(self.cells)}
        return {place: content for place, content in found.items() if content != EMPTY}

    def last(self) -> Place:
        """Return the last row and the last column with a content; 0, 0 if the sheet is empty."""
        places = self.filled()
        return max((row for row, _ in places), default=0), max((column for _, column in places), default=0)

    def put(self, place: Place, content: CellContent, *, inline: bool = False) -> None:
        """Replace the content of a cell, which is made if it does not exist; its style stays.

        Args:
            inline: Store a text in the cell, even if the workbook has a table of shared strings.
        """
        cell = self.cells.get(place)
        if cell is None:
            if content == EMPTY:
                return
            cell = self._new_cell(place)
        style = cell.get("s")
        for child in list(cell):
            cell.remove(child)
        cell.attrib.pop("t", None)
        if content.formula:
            etree.SubElement(cell, f"{S}f").text = content.formula
        is_plain = content.kind == "text" and not content.formula
        is_inline = is_plain and (inline or self._book.strings is None)
        text = self._book.share(content.text) if is_plain and not is_inline else content.text
        kinds = {"bool": "b", "error": "e", "text": "inlineStr" if is_inline else "s" if is_plain else "str"}
        if content.kind in kinds:
            cell.set("t", kinds[content.kind])
        if is_inline:
            _add_text(etree.SubElement(cell, f"{S}is"), text)
        elif text:
            etree.SubElement(cell, f"{S}v").text = text
        if style is not None:
            cell.set("s", style)

    def _new_cell(self, place: Place) -> Element:
        number, column = place
        rows = {integer(row, "r"): row for row in self.data.findall(f"{S}row")}
        row = rows.get(number)
        if row is None:
            row = etree.Element(f"{S}row", r=str(number))
            self.data.insert(sum(one < number for one in rows), row)
        cell = etree.Element(f"{S}c", r=f"{get_column_letter(column)}{number}")
        row.insert(sum((_column(one.get("r")) or 0) < column for one in row.findall(f"{S}c")), cell)
        self.cells[place] = cell
        return cell

    def array_places(self) -> set[Place]:
        """Return the cells of array formulas that fill more than one cell, and of shared formulas' first."""
        found: set[Place] = set()
        for formula in self.root.iter(f"{S}f"):
            if formula.get("t") in {"array", "shared", "dataTable"} and formula.get("ref"):
                found |= _places_of(formula.get("ref"))
        return found

    def child(self, name: str, *later: str) -> Element:
        """Return a child of the sheet's root, made before these elements if it does not exist."""
        found = self.root.find(f"{S}{name}")
        if found is None:
            found = etree.Element(f"{S}{name}")
            after = [one for one in self.root if etree.QName(one).localname in later]
            if after:
                after[0].addprevious(found)
            else:
                self.root.append(found)
        return found


def _add_text(parent: Element, text: str) -> None:
    element = etree.SubElement(parent, f"{S}t")
    element.text = text
    element.set(XML_SPACE, "preserve")


def _column(reference: str | None) -> int:
    if reference is None:
        return 0
    try:
        return column_index_from_string(coordinate_from_string(reference)[0])
    except (CellCoordinatesException, ValueError) as error:
        raise UnreadableFile(f"{reference[:40]!r} is no cell") from error


def _places_of(reference: str) -> set[Place]:
    from openpyxl.utils.cell import range_boundaries

    try:
        left, top, right, bottom = range_boundaries(reference)
    except ValueError as error:
        raise UnreadableFile(f"{reference[:40]!r} is no area") from error
    if left is None or top is None or right is None or bottom is None:
        raise UnreadableFile(f"{reference[:40]!r} has no ends")
    if (right - left + 1) * (bottom - top + 1) > MAX_CELLS:
        raise UnreadableFile(f"{reference!r} is too large")
    return {(row, column) for row in range(top, bottom + 1) for column in range(left, right + 1)}


class Book:
    """A workbook.

    Attributes:
        main: Name of the part with the list of sheets.
        sheets: Its worksheets in order.

    Raises:
        UnreadableFile: The package is no workbook.
    """

    def __init__(self, package: Package) -> None:
        self.package = package
        self.main = package.related("", "officeDocument")
        self.root = package.root(self.main)
        self.list = self.root.find(f"{S}sheets")
        if self.root.tag != f"{S}workbook" or self.list is None:
            raise UnreadableFile("the file is no workbook")
        strings = package.related(self.main, "sharedStrings")
        self.strings = package.root(strings) if strings else None
        entries = () if self.strings is None else self.strings.findall(f"{S}si")
        self._texts = ["".join(t.text or "" for t in one.iter(f"{S}t")) for one in entries]
        self._indexes = {text: number for number, text in enumerate(self._texts)}
        targets = package.targets(self.main)
        for key, (kind, part) in targets.items():
            if kind == "calcChain":  # it is computed from the formulas, and must fit them
                package.remove(part)
                package.unrelate(self.main, key)
        self.sheets: list[Sheet] = []
        for entry in self.list.findall(f"{S}sheet"):
            kind, part = targets.get(entry.get(f"{R}id"), ("", ""))
            if kind == "worksheet":
                self.sheets.append(Sheet(self, entry, part))

    def shared_text(self, index: str) -> str:
        """Return a text of the table of shared strings.

        Raises:
            UnreadableFile: The table has no such text.
        """
        if not index.isdecimal() or int(index) >= len(self._texts):
            raise UnreadableFile(f"there is no shared string {index[:40]!r}")
        return self._texts[int(index)]

    def add_shared_strings(self) -> None:
        """Add a table of shared strings, unless there is one."""
        if self.strings is None:
            part = self.package.new_name("xl/sharedStrings{}.xml")
            self.package.put(part, f'<sst xmlns="{S[1:-1]}"/>'.encode())
            self.package.declare(part, _STRINGS)
            self.package.relate(self.main, "sharedStrings", part)
            self.strings = self.package.root(part)

    def share(self, text: str) -> str:
        """Return the index of a text in the table of shared strings, to which it is added if it is new."""
        assert self.strings is not None
        if text not in self._indexes:
            _add_text(etree.SubElement(self.strings, f"{S}si"), text)
            self._indexes[text] = len(self._texts)
            self._texts.append(text)
            for name in ("count", "uniqueCount"):  # optional, and no longer right
                self.strings.attrib.pop(name, None)
        return str(self._indexes[text])

    def sheet(self, name: str) -> Sheet | None:
        return next((sheet for sheet in self.sheets if sheet.name == name), None)

    @property
    def visible(self) -> list[Sheet]:
        return [sheet for sheet in self.sheets if sheet.entry.get("state", "visible") == "visible"]

    def formulas(self) -> Iterator[Element]:
        """Yield all elements that hold a formula, and those of defined names."""
        for sheet in self.sheets:
            yield from sheet.root.iter(f"{S}f", f"{S}formula", f"{S}formula1", f"{S}formula2")
        yield from self.root.iter(f"{S}definedName")

    @property
    def styles(self) -> Element:
        """Root of the styles.

        Raises:
            UnreadableFile: The workbook has none.
        """
        return self.package.root(self.package.related(self.main, "styles"))

    def cell_formats(self) -> Element:
        """Return the list of formats that cells refer to by number."""
        found = self.styles.find(f"{S}cellXfs")
        if found is None:
            raise UnreadableFile("the workbook has no formats of cells")
        return found

    def format_of(self, cell: Element | None) -> Element:
        formats = self.cell_formats()
        index = 0 if cell is None else integer(cell, "s")
        if not 0 <= index < len(formats):
            raise UnreadableFile(f"there is no format {index}")
        return formats[index]

    def number_format(self, cell: Element | None) -> str:
        """Return the code of a cell's number format."""
        number = integer(self.format_of(cell), "numFmtId")
        for one in self.styles.iterfind(f"{S}numFmts/{S}numFmt"):
            if integer(one, "numFmtId") == number:
                return str(one.get("formatCode", ""))
        return BUILTIN_FORMATS.get(number, "General")

    def restyle(self, cells: list[Element], change: Callable[[Book, Element], None]) -> None:
        """Give cells formats of their own: copies of those they have, changed."""
        formats = self.cell_formats()
        made: dict[str, str] = {}
        for cell in cells:
            old = cell.get("s", "0")
            if old not in made:
                new = copy.deepcopy(self.format_of(cell))
                formats.append(new)
                change(self, new)
                made[old] = str(len(formats) - 1)
            cell.set("s", made[old])
        formats.set("count", str(len(formats)))

    def new_font(self, form: Element) -> Element:
        """Give a format a copy of its font, and return the copy."""
        fonts = self.styles.find(f"{S}fonts")
        index = integer(form, "fontId")
        if fonts is None or not 0 <= index < len(fonts):
            raise UnreadableFile(f"there is no font {index}")
        font = copy.deepcopy(fonts[index])
        fonts.append(font)
        fonts.set("count", str(len(fonts)))
        form.set("fontId", str(len(fonts) - 1))
        form.set("applyFont", "1")
        return font

    def set_number_format(self, form: Element, code: str) -> None:
        """Give a format a number format of its own."""
        styles = self.styles
        known = styles.find(f"{S}numFmts")
        if known is None:
            known = etree.Element(f"{S}numFmts")
            styles.insert(0, known)
        numbers = [integer(one, "numFmtId") for one in known]
        number = max([_FIRST_OWN_FORMAT - 1, *numbers]) + 1
        etree.SubElement(known, f"{S}numFmt", numFmtId=str(number), formatCode=code)
        known.set("count", str(len(known)))
        form.set("numFmtId", str(number))
        form.set("applyNumberFormat", "1")


_FONT_ORDER = ("b", "i", "strike", "condense", "extend", "outline", "shadow", "u", "vertAlign", "sz", "color")


def set_in_font(font: Element, tag: str, **attributes: Any) -> None:
    """Set a property of a font, in the place that the format's schema gives it."""
    for old in font.findall(f"{S}{tag}"):
        font.remove(old)
    earlier = _FONT_ORDER[: _FONT_ORDER.index(tag)]
    place = sum(etree.QName(one).localname in earlier for one in font)
    font.insert(place, etree.Element(f"{S}{tag}", **attributes))
