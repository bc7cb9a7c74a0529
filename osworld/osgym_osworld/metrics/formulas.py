"""Metric over formulas of xlsx files: whether they compute what they are asked to, not only show it.

A formula is evaluated with the numbers of the workbook changed, and must then give what the formula that the
task states gives: ``=6505``, ``=SUM(6505)`` and ``=6505+0*D2`` do not. Where a formula has a part that
`formula_values` does not know, its references are followed instead: it must depend on every number that the
stated formula depends on, and have no literal number that equals its value. Such a formula may still ignore
an input that it refers to.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from typing import Any

from osgym_host.tasks.metric_plugin import (
    Argument,
    InputFile,
    Score,
    Unreadable,
    as_file,
    metric,
    reader,
    rules_of,
)
from osgym_osworld.metrics.formula_functions import Failed, Scalar
from osgym_osworld.metrics.formula_parser import (
    Area,
    Call,
    Literal,
    MissingSheet,
    Name,
    Node,
    Operation,
    UnsupportedFormula,
    parse,
    parse_area,
)
from osgym_osworld.metrics.formula_values import Evaluation, Formula, Model, Place
from osgym_osworld.metrics.workbook_parts import stored_cells

CHANGES = 3
"""Number of times that the numbers are changed."""
MAX_CELLS = 200_000
MAX_CHECKED = 5000
_TOLERANCE = 1e-6


@metric()
def check_formulas(result: Argument, expected: Argument) -> Score:
    """Each cell of ``rules.cells`` has a formula that computes the same as the stated one.

    The keys are cells or areas (``Data!H2:H9``), the values formulas ("=SUM(D2:D9)"), which stand for the
    first cell of the area and are moved for the others as by filling. Cells of an array formula have one.
    """
    model = _model(as_file(result, "result"))
    stated = dict(_stated(rules_of(expected)["cells"]))
    missing = [place for place in stated if place not in model.formulas]
    if missing:
        return Score(0.0, f"{_said(missing[0])} has no formula")
    for number in range(CHANGES + 1):
        changes = _changed(model, number)
        evaluation = Evaluation(model, changes)
        for place, formula in stated.items():
            try:
                wanted = evaluation.result(formula, place)
            except MissingSheet as error:  # the stated formula is right where the sheets are kept
                return Score(0.0, f"the formula of {_said(place)} needs {error}")
            except UnsupportedFormula as error:
                raise Unreadable("expected", f"the formula of {_said(place)} has {error}") from error
            try:
                got = evaluation.value(place)
            except UnsupportedFormula as error:
                problem = _dependence(model, place, formula)
                if problem:
                    return Score(0.0, f"{_said(place)} {problem} (it is not recalculated: {error})")
                continue
            if not _equal(got, wanted):
                when = "with the numbers as they are" if number == 0 else "with other numbers"
                return Score(0.0, f"{_said(place)} gives {got!r} {when}, not {wanted!r}")
    return Score(1.0)


@reader
def _model(file: InputFile) -> Model:
    """Return the workbook's constants and formulas.

    Raises:
        Unreadable: The file is not readable as xlsx, or is too large.
    """
    import openpyxl

    file.zip()
    book = openpyxl.load_workbook(io.BytesIO(file.data()), keep_links=False)
    constants: dict[Place, Scalar] = {}
    formulas: dict[Place, Formula] = {}
    ends: dict[str, tuple[int, int]] = {}
    for sheet in book.worksheets:
        full = [cell for cell in stored_cells(file, sheet, MAX_CELLS) if cell.value is not None]
        ends[sheet.title] = (
            max((one.row for one in full), default=1),
            max((one.column for one in full), default=1),
        )
        for cell in full:
            place = str(sheet.title), int(cell.row or 0), int(cell.column or 0)
            if hasattr(cell.value, "ref"):
                formulas.update(_array(sheet.title, cell.value))
            elif cell.data_type == "f":
                formulas[place] = Formula(_tree(str(cell.value)))
            elif place not in formulas and isinstance(cell.value, str | int | float):
                is_number = isinstance(cell.value, int | float) and not isinstance(cell.value, bool)
                constants[place] = float(cell.value) if is_number else cell.value
    for place in formulas:
        constants.pop(place, None)
    names = {name.lower(): _tree(f"={defined.attr_text}") for name, defined in book.defined_names.items()}
    known = {name: tree for name, tree in names.items() if not isinstance(tree, str)}
    return Model(constants, formulas, known, ends)


def _array(sheet: str, value: Any) -> Iterator[tuple[Place, Formula]]:
    """Yield the formulas of the cells of an array formula."""
    area, tree = parse_area(str(value.ref)), _tree(str(getattr(value, "text", "") or ""))
    if area is None or (area.bottom - area.top + 1) * (area.right - area.left + 1) > MAX_CELLS:
        return
    for row in range(area.top, area.bottom + 1):
        for column in range(area.left, area.right + 1):
            yield (sheet, row, column), Formula(tree, (row - area.top, column - area.left))


def _tree(text: str) -> Node | str:
    try:
        return parse(text)
    except UnsupportedFormula as error:
        return str(error)


def _stated(cells: dict[str, str]) -> Iterator[tuple[Place, Formula]]:
    """Yield the stated formula of each cell.

    Raises:
        Unreadable: The rules are wrong.
    """
    from openpyxl.formula.translate import Translator
    from openpyxl.utils.cell import get_column_letter

    count = 0
    for reference, text in cells.items():
        area = parse_area(str(reference))
        if area is None or not area.sheet:
            raise Unreadable("expected", f"{str(reference)[:80]!r} is no cell or area of a named sheet")
        origin = f"{get_column_letter(area.left)}{area.top}"
        count += (area.bottom - area.top + 1) * (area.right - area.left + 1)
        if count > MAX_CHECKED:
            raise Unreadable("expected", f"more than {MAX_CHECKED} cells are checked")
        for row in range(area.top, area.bottom + 1):
            for column in range(area.left, area.right + 1):
                moved = Translator(str(text), origin).translate_formula(f"{get_column_letter(column)}{row}")
                tree = _tree(moved)
                if isinstance(tree, str):
                    raise Unreadable("expected", f"the formula of {str(reference)[:80]} has {tree}")
                yield (area.sheet, row, column), Formula(tree)


def _changed(model: Model, number: int) -> dict[Place, Scalar]:
    """Return other values for all numbers; none for 0, which leaves the workbook as it is."""
    if number == 0:
        return {}
    dice = random.Random(number)  # noqa: S311 - the same changes at every check
    places = [place for place, value in model.constants.items() if type(value) is float]
    return {place: float(dice.randint(1, 100_000)) for place in sorted(places)}


def _equal(got: Scalar, wanted: Scalar) -> bool:
    if type(got) is float and type(wanted) is float:
        return abs(got - wanted) <= _TOLERANCE * max(1.0, abs(wanted))
    return type(got) is type(wanted) and got == wanted and not isinstance(got, Failed)


def _dependence(model: Model, place: Place, stated: Formula) -> str:
    """Return what is wrong with the references of a formula that cannot be evaluated."""
    found = model.formulas[place]
    if isinstance(found.tree, str) or isinstance(stated.tree, str):
        return "has a formula that cannot be read"
    needed = {
        one for one in _inputs(model, stated.tree, place[0], set()) if type(model.constants[one]) is float
    }
    lacking = needed - _inputs(model, found.tree, place[0], set())
    if lacking:
        return f"does not depend on {_said(min(lacking))}"
    value = Evaluation(model, {}).result(stated, place)
    if any(_equal(one.value, value) for one in _nodes(found.tree) if isinstance(one, Literal)):
        return "has its result as a number"
    return ""


def _inputs(model: Model, tree: Node, sheet: str, seen: set[Place]) -> set[Place]:
    """Return the constants that a formula refers to, also by other formulas."""
    found: set[Place] = set()
    for node in _nodes(tree):
        if isinstance(node, Name) and node.name.lower() in model.names:
            node = model.names[node.name.lower()]
        if not isinstance(node, Area):
            continue
        at = node.sheet or sheet
        for place in (*model.constants, *model.formulas):
            _, row, column = place
            inside = node.top <= row <= node.bottom and node.left <= column <= node.right
            if place[0] != at or not inside or place in seen:
                continue
            seen.add(place)
            formula = model.formulas.get(place)
            if formula is None:
                found.add(place)
            elif not isinstance(formula.tree, str):
                found |= _inputs(model, formula.tree, at, seen)
    return found


def _nodes(tree: Node) -> Iterator[Node]:
    yield tree
    match tree:
        case Operation():
            parts: tuple[Node | None, ...] = tree.operands
        case Call():
            parts = tree.arguments
        case _:
            parts = ()
    for part in parts:
        if part is not None:
            yield from _nodes(part)


def _said(place: Place) -> str:
    from openpyxl.utils.cell import get_column_letter

    return f"{place[0]}!{get_column_letter(place[2])}{place[1]}"


def warm_up() -> None:
    import openpyxl

    buffer = io.BytesIO()
    book = openpyxl.Workbook()
    sheet = book.create_sheet("a")
    sheet.append([1, 2, "=SUM(A1:B1)"])
    book.save(buffer)
    rules = {"cells": {"a!C1": "=A1+B1"}}
    check_formulas(InputFile(-1, "a.xlsx", "result", buffer.getvalue()), rules)
