"""Wrong contents of OpenDocument workbooks (ods), made from the right one; each must earn 0."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from itertools import pairwise

from lxml import etree

from osgym_certify.ends.base import Content, GoldenFile, Must
from osgym_certify.ends.odf_parts import OFFICE, STYLE, TABLE, TEXT, Mutation, OpenDocument, Scene, opened
from osgym_certify.ends.ooxml import Element, Package, UnreadableFile, before_of, integer, remove_element

MAX_PUT_BACK = 6
"""Largest number of contents in each of which one cell has its value before."""
KIND = "spreadsheet"
_FORMULA = f"{TABLE}formula"
_TYPE = f"{OFFICE}value-type"
_VALUE = f"{OFFICE}value"
_REPEATED = {
    f"{TABLE}table-row": "rows",
    f"{TABLE}table-cell": "columns",
    f"{TABLE}covered-table-cell": "columns",
}

Cells = dict[tuple[str, int, int], Element]
"""Cells by sheet, row and column, from 0."""


def _repeat(element: Element) -> int:
    return integer(element, f"{TABLE}number-{_REPEATED[element.tag]}-repeated", 1)


def _is_filled(cell: Element) -> bool:
    return cell.get(_TYPE) is not None or cell.get(_FORMULA) is not None


def _tables(document: OpenDocument) -> list[Element]:
    return list(document.content.findall(f"{TABLE}table"))


def _cells(document: OpenDocument) -> Cells:
    """Return the filled cells that are written once; one that is repeated cannot be changed alone."""
    found: Cells = {}
    for table in _tables(document):
        row_number = 0
        for row in table.iter(f"{TABLE}table-row"):
            column = 0
            for cell in row:
                if cell.tag not in _REPEATED:
                    continue
                if _is_filled(cell) and _repeat(row) == _repeat(cell) == 1:
                    found[table.get(f"{TABLE}name", ""), row_number, column] = cell
                column += _repeat(cell)
            row_number += _repeat(row)
    return found


def _content(cell: Element | None) -> tuple[str, ...]:
    """Return the type, the value, the formula and the text of a cell."""
    if cell is None:
        return ()
    text = "\n".join("".join(one.itertext()) for one in cell.findall(f"{TEXT}p"))
    names = (_TYPE, _VALUE, f"{OFFICE}date-value", f"{OFFICE}boolean-value", _FORMULA)
    return (*(cell.get(name, "") for name in names), text)


def _put(cell: Element, other: Element | None) -> None:
    """Give a cell the content of another one; its style stays. None empties it."""
    for child in cell.findall(f"{TEXT}p"):
        cell.remove(child)
    for name in [
        name for name in cell.attrib if name.startswith(OFFICE) or "calcext" in name or name == _FORMULA
    ]:
        del cell.attrib[name]
    if other is not None:
        for name, text in other.attrib.items():
            if name.startswith(OFFICE) or name == _FORMULA:
                cell.set(name, text)
        cell.extend(copy.deepcopy(one) for one in other.findall(f"{TEXT}p"))


def _changed(document: OpenDocument, before: OpenDocument | None) -> list[tuple[str, int, int]]:
    """Return the cells that the oracle filled or changed."""
    if before is None:
        return []
    now, then = _cells(document), _cells(before)
    return [place for place, cell in now.items() if _content(cell) != _content(then.get(place))]


def put_back(package: Package, golden: GoldenFile, dice: random.Random) -> Iterator[Content]:
    """Yield workbooks in each of which one cell that the oracle changed has its content before."""
    parts = before_of(golden)
    if parts is None:
        return
    try:
        before = opened(parts, KIND)
    except UnreadableFile:
        return
    changed, then = _changed(opened(package, KIND), before), _cells(before)
    for place in dice.sample(changed, min(len(changed), MAX_PUT_BACK)):
        draft = Package.read(golden.data)
        _put(_cells(opened(draft, KIND))[place], then.get(place))
        yield Content("one changed cell put back", Must.EARN_NOTHING, draft.data())


def _draw(scene: Scene, fits: Callable[[Element], object]) -> Element | None:
    """Draw a cell that fits, one that the oracle changed if any does."""
    cells, mine = _cells(scene.document), _changed(scene.document, scene.before)
    found = [place for place, cell in cells.items() if fits(cell)]
    preferred = [place for place in found if place in mine]
    return cells[scene.dice.choice(preferred or found)] if found else None


def _formula_replaced(scene: Scene) -> bool:
    cell = _draw(scene, lambda one: one.get(_FORMULA))
    if cell is None:
        return False
    del cell.attrib[_FORMULA]
    return True


def _set_text(cell: Element, text: str) -> None:
    _put(cell, None)
    cell.set(_TYPE, "string")
    etree.SubElement(cell, f"{TEXT}p").text = text


def _number_as_text(scene: Scene) -> bool:
    cell = _draw(scene, lambda one: one.get(_TYPE) == "float")
    if cell is None:
        return False
    _set_text(cell, cell.get(_VALUE, ""))
    return True


def _another_value(scene: Scene) -> bool:
    cell = _draw(scene, lambda one: one.get(_TYPE) == "string" and not one.get(_FORMULA))
    if cell is None:
        return False
    _set_text(cell, f"{_content(cell)[-1]}x")
    return True


def _rows(scene: Scene) -> list[Element]:
    """Return the rows with a content below the first of each sheet, of those that are written once."""
    found: list[Element] = []
    for table in _tables(scene.document):
        rows = [row for row in table.iter(f"{TABLE}table-row") if any(map(_is_filled, row))]
        found += [row for row in rows[1:] if _repeat(row) == 1]
    return found


def _row_removed(scene: Scene) -> bool:
    rows = _rows(scene)
    if not rows:
        return False
    remove_element(scene.dice.choice(rows))
    return True


def _row_doubled(scene: Scene) -> bool:
    rows = _rows(scene)
    if not rows:
        return False
    row = scene.dice.choice(rows)
    row.addnext(copy.deepcopy(row))
    return True


def _rows_swapped(scene: Scene) -> bool:
    def values(row: Element) -> list[tuple[str, ...]]:
        return [_content(cell) for cell in row]

    pairs = [(a, b) for a, b in pairwise(_rows(scene)) if a.getnext() is b and values(a) != values(b)]
    if not pairs:
        return False
    a, b = scene.dice.choice(pairs)
    b.addnext(a)
    return True


def _all_emptied(scene: Scene) -> bool:
    found = [cell for cell in scene.document.content.iter(f"{TABLE}table-cell") if _is_filled(cell)]
    for cell in found:
        _put(cell, None)
    return bool(found)


def _new_name(scene: Scene, stem: str) -> str:
    taken = {table.get(f"{TABLE}name") for table in _tables(scene.document)}
    return next(name for number in range(2, len(taken) + 3) if (name := f"{stem} {number}") not in taken)


def _sheet_added(scene: Scene) -> bool:
    *_, last = _tables(scene.document) or [None]
    if last is None:
        return False
    made = etree.Element(f"{TABLE}table", {f"{TABLE}name": _new_name(scene, "Sheet")})
    etree.SubElement(etree.SubElement(made, f"{TABLE}table-row"), f"{TABLE}table-cell")
    last.addnext(made)
    return True


def _sheet_removed(scene: Scene) -> bool:
    tables = _tables(scene.document)
    if len(tables) < 2:
        return False
    remove_element(scene.dice.choice(tables))
    return True


def _sheet_moved(scene: Scene) -> bool:
    first, *rest = _tables(scene.document) or [None]
    if not rest:
        return False
    rest[-1].addnext(first)
    return True


def _sheet_hidden(scene: Scene) -> bool:
    tables = _tables(scene.document)
    if len(tables) < 2:
        return False
    table = scene.dice.choice(tables)
    style = scene.document.add_style("HiddenSheet", "table", table.get(f"{TABLE}style-name", ""))
    shown = style.find(f"{STYLE}table-properties")
    if shown is None:
        shown = etree.SubElement(style, f"{STYLE}table-properties")
    was_hidden = shown.get(f"{TABLE}display") == "false"
    shown.set(f"{TABLE}display", "false")
    table.set(f"{TABLE}style-name", "HiddenSheet")
    return not was_hidden


MUTATIONS: dict[str, Mutation] = {
    "formula replaced by its value": _formula_replaced,
    "number stored as text": _number_as_text,
    "another value in one cell": _another_value,
    "one row removed": _row_removed,
    "one row doubled": _row_doubled,
    "two rows swapped": _rows_swapped,
    "all cells emptied": _all_emptied,
    "sheet added": _sheet_added,
    "one sheet removed": _sheet_removed,
    "first sheet moved to the end": _sheet_moved,
    "one sheet hidden": _sheet_hidden,
}
"""Mutations by the name of the content that they make."""
