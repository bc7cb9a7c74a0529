"""Evaluation of spreadsheet formulas: the functions that sum, count, compare and look up.

It gives what Calc and Excel give for the operators and `formula_functions.FUNCTIONS`. Anything else is
`UnsupportedFormula`: dates, texts, references that a function computes.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

from osgym_osworld.metrics.formula_functions import (
    FUNCTIONS,
    Failed,
    Matrix,
    Scalar,
    Value,
    broadcast,
    combine,
)
from osgym_osworld.metrics.formula_parser import (
    Area,
    Call,
    Literal,
    MissingSheet,
    Name,
    Node,
    Operation,
    UnsupportedFormula,
)

MAX_WORK = 3_000_000
"""Number of cells that the evaluation of one workbook may read."""
MAX_CHAIN = 60
"""Number of formulas that may depend on each other in a row."""

Place = tuple[str, int, int]
"""Sheet, row and column of a cell."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula of a cell.

    Attributes:
        tree: Parsed formula; a text says why it is not supported.
        offset: Row and column of the cell in the area of its array formula; None for a usual formula.
    """

    tree: Node | str
    offset: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A workbook as the evaluation needs it.

    Attributes:
        constants: Values of cells without a formula.
        names: Trees of defined names, by name in lower case.
        ends: Last row and column of each sheet.
    """

    constants: Mapping[Place, Scalar]
    formulas: Mapping[Place, Formula]
    names: Mapping[str, Node]
    ends: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Context:
    """Cell that a formula stands in, and how areas in place of single values are read there.

    Attributes:
        is_array: Operators work on each cell of an area. Otherwise the cell of the formula's row or column
            is taken.
        is_inner: The result goes to a function that takes areas.
    """

    place: Place
    offset: tuple[int, int] | None
    is_array: bool
    is_inner: bool = False


class Evaluation:
    """Values of a model whose constants some changes replace; each formula is evaluated once."""

    def __init__(self, model: Model, changes: Mapping[Place, Scalar]) -> None:
        self._model = model
        self._changes = changes
        self._known: dict[Place, Scalar] = {}
        self._chain: list[Place] = []
        self._work = 0

    def value(self, place: Place) -> Scalar:
        """Return the value of a cell.

        Raises:
            UnsupportedFormula: A formula that it needs is not supported, or needs itself.
        """
        formula = self._model.formulas.get(place)
        if formula is None:
            return self._changes.get(place, self._model.constants.get(place))
        if place not in self._known:
            if place in self._chain or len(self._chain) >= MAX_CHAIN:
                raise UnsupportedFormula("formulas that depend on themselves, or a long chain of formulas")
            self._chain.append(place)
            self._known[place] = self.result(formula, place)
            self._chain.pop()
        return self._known[place]

    def result(self, formula: Formula, place: Place) -> Scalar:
        """Return what a formula gives in a cell.

        Raises:
            UnsupportedFormula: As `value`.
        """
        if isinstance(formula.tree, str):
            raise UnsupportedFormula(formula.tree)
        context = _Context(place, formula.offset, is_array=formula.offset is not None)
        return _single(self._value(formula.tree, context), context)

    def _value(self, node: Node, context: _Context) -> Value:
        match node:
            case Literal():
                return node.value
            case Area():
                return self._area(node, context.place)
            case Name():
                if node.name.lower() not in self._model.names:
                    raise UnsupportedFormula(f"the name {node.name[:80]!r}")
                return self._value(self._model.names[node.name.lower()], context)
            case Operation():
                operands = [self._value(one, context) for one in node.operands]
                if not context.is_array:
                    operands = [_single(one, context) for one in operands]
                return broadcast(lambda *values: combine(node.operator, values), operands)
            case Call():
                return self._call(node, context)

    def _area(self, area: Area, place: Place) -> Value:
        sheet = area.sheet or place[0]
        if sheet not in self._model.ends:
            raise MissingSheet(f"the sheet {sheet[:80]!r}, which the workbook does not have")
        last_row, last_column = self._model.ends[sheet]
        bottom, right = (
            min(area.bottom, max(last_row, area.top)),
            min(area.right, max(last_column, area.left)),
        )
        self._work += (bottom - area.top + 1) * (right - area.left + 1)
        if self._work > MAX_WORK:
            raise UnsupportedFormula("formulas over too many cells")
        rows = [
            [self.value((sheet, row, column)) for column in range(area.left, right + 1)]
            for row in range(area.top, bottom + 1)
        ]
        is_cell = (area.top, area.left) == (area.bottom, area.right)
        return rows[0][0] if is_cell else Matrix(rows, area.top, area.left)

    def _call(self, call: Call, context: _Context) -> Value:
        known = FUNCTIONS.get(call.function)
        if known is None:
            raise UnsupportedFormula(f"the function {call.function[:40]}")
        arguments: list[Value] = []
        for at, node in enumerate(call.arguments):
            if node is None:
                arguments.append(None)
                continue
            takes_area = known.areas is None or at in known.areas
            inner = replace(context, is_inner=context.is_inner or takes_area)
            inner = replace(inner, is_array=context.is_array or known.is_array)
            value = self._value(node, inner)
            arguments.append(value if takes_area or known.is_mapped else _single(value, context))
        if any(isinstance(one, Failed) for one in arguments) and not known.takes_failures:
            return Failed()
        try:
            if known.is_mapped and context.is_array:
                return broadcast(known.run, arguments)
            if known.is_mapped:
                arguments = [_single(one, context) for one in arguments]
            found: Value = known.run(*arguments)
        except (TypeError, ValueError, LookupError, ArithmeticError, statistics.StatisticsError):
            return Failed()
        return found


def _single(value: Value, context: _Context) -> Scalar:
    """Return the value of an area that counts in one cell."""
    if not isinstance(value, Matrix):
        return value
    rows = value.rows
    if context.offset is not None:
        if context.is_inner:
            raise UnsupportedFormula("a function of single values over an area")
        down, across = context.offset
        down, across = (down if len(rows) > 1 else 0), (across if len(rows[0]) > 1 else 0)
    elif context.is_array:
        raise UnsupportedFormula("a function of single values over an area")
    else:
        _, row, column = context.place
        down = row - value.top if len(rows) > 1 else 0
        across = column - value.left if len(rows[0]) > 1 else 0
    return rows[down][across] if 0 <= down < len(rows) and 0 <= across < len(rows[0]) else Failed()
