"""Operators and functions of spreadsheet formulas, on numbers, texts and areas of cells."""

from __future__ import annotations

import math
import operator
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Failed:
    """The value of a formula with an error: a division by zero, nothing found."""


Scalar = float | str | bool | None | Failed


@dataclass(frozen=True, slots=True)
class Matrix:
    """Values of an area in rows, with the row and column of the first one."""

    rows: Sequence[Sequence[Scalar]]
    top: int
    left: int


Value = Scalar | Matrix

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "^": math.pow,
}


def combine(sign: str, operands: Sequence[Scalar]) -> Scalar:
    """Return the result of an operator on one value or two."""
    if any(isinstance(one, Failed) for one in operands):
        return Failed()
    try:
        if sign in _COMPARISONS:
            return _COMPARISONS[sign](*map(_ordered, operands))
        if sign == "&":
            return "".join(map(_text, operands))
        numbers = [_number(one) for one in operands]
        match sign:
            case "sign-":
                return -numbers[0]
            case "sign+":
                return numbers[0]
            case "%":
                return numbers[0] / 100
            case _:
                return _ARITHMETIC[sign](numbers[0], numbers[1])
    except (ValueError, ArithmeticError):
        return Failed()


def broadcast(function: Callable[..., Scalar], values: Sequence[Value]) -> Value:
    """Apply a function to single values, or to those at the same place of areas."""
    areas = [value for value in values if isinstance(value, Matrix)]
    if not areas:
        return function(*values)
    height, width = max(len(one.rows) for one in areas), max(len(one.rows[0]) for one in areas)
    rows = [
        [function(*(_at(value, down, across) for value in values)) for across in range(width)]
        for down in range(height)
    ]
    return Matrix(rows, areas[0].top, areas[0].left)


def _at(value: Value, down: int, across: int) -> Scalar:
    if not isinstance(value, Matrix):
        return value
    rows = value.rows
    down, across = (down if len(rows) > 1 else 0), (across if len(rows[0]) > 1 else 0)
    return rows[down][across] if down < len(rows) and across < len(rows[0]) else Failed()


def _number(value: Scalar) -> float:
    if value is None:
        return 0.0
    if isinstance(value, Failed):
        raise ValueError("an error is no number")
    return float(value)


def _text(value: Scalar) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def _ordered(value: Scalar) -> tuple[int, float | str]:
    """Return a key for comparisons: numbers before texts before truth values; letter case does not count."""
    if isinstance(value, str):
        return 1, value.lower()
    if isinstance(value, bool):
        return 2, float(value)
    return 0, _number(value)


def _flat(values: Iterable[Value]) -> Iterator[Scalar]:
    for value in values:
        if isinstance(value, Matrix):
            yield from (cell for row in value.rows for cell in row)
        else:
            yield value


def _numbers(*values: Value) -> list[float]:
    """Return the numbers in areas, where texts do not count, and single values.

    Raises:
        ValueError: One of them is an error.
    """
    found: list[float] = []
    for cell in _flat(values):
        if isinstance(cell, Failed):
            raise ValueError("an error is no number")
        if isinstance(cell, int | float) and not isinstance(cell, bool):
            found.append(float(cell))
    return found


def _fits(cell: Scalar, condition: Scalar) -> bool:
    """Return whether a cell fulfils a condition of SUMIF and the like: a value, ``">5"``, ``"a*"``."""
    sign, wanted = "=", condition
    if isinstance(condition, str):
        match = re.fullmatch(r"(<>|<=|>=|=|<|>)?(.*)", condition, re.DOTALL)
        assert match is not None
        sign, wanted = match[1] or "=", match[2]
        try:
            wanted = float(match[2])
        except ValueError:
            pattern = re.escape(match[2]).replace(r"\*", ".*").replace(r"\?", ".")
            is_like = isinstance(cell, str) and re.fullmatch(pattern, cell, re.IGNORECASE) is not None
            if sign in {"=", "<>"}:
                return is_like is (sign == "=")
    if cell is None or isinstance(cell, str) is not isinstance(wanted, str):
        return sign == "<>"
    return combine(sign, (cell, wanted)) is True


def _chosen(area: Value, conditions: Sequence[Value]) -> list[float]:
    """Return the numbers of an area whose cells fulfil pairs of an area and a condition."""
    cells, kept = list(_flat([area])), []
    tested = [list(_flat([one])) for one in conditions[::2]]
    wanted = list(_flat(conditions[1::2]))
    for at, cell in enumerate(cells):
        if all(_fits(column[at], one) for column, one in zip(tested, wanted, strict=True)):
            kept.append(cell)
    return _numbers(*kept)


def _if_pairs(area: Value, condition: Value, result: Value = None) -> list[float]:
    return _chosen(area if result is None else result, (area, condition))


def _product_sum(*areas: Value) -> float:
    columns = [[_number(c) if not isinstance(c, str) else 0.0 for c in _flat([one])] for one in areas]
    return math.fsum(math.prod(row) for row in zip(*columns, strict=True))


def _found(cells: Sequence[Scalar], wanted: Scalar, mode: Scalar) -> int:
    """Return the place of a value: equal for 0, else the last one that is not larger (smaller for -1).

    Raises:
        LookupError: No cell has the wanted value.
    """
    if not mode:
        same = [
            at for at, cell in enumerate(cells) if cell is not None and _ordered(cell) == _ordered(wanted)
        ]
        return same[0]
    sign = "<=" if _number(mode) > 0 else ">="
    fitting = [
        at
        for at, cell in enumerate(cells)
        if isinstance(cell, str) is isinstance(wanted, str) and combine(sign, (cell, wanted)) is True
    ]
    return fitting[-1]


def _lookup_in(lines: Sequence[Sequence[Scalar]], wanted: Scalar, number: Scalar, mode: Scalar) -> Scalar:
    at = _found(lines[0], wanted, mode)
    return lines[int(_number(number)) - 1][at]


def _vlookup(wanted: Scalar, area: Matrix, number: Scalar, is_sorted: Scalar = True) -> Scalar:
    return _lookup_in(list(zip(*area.rows, strict=True)), wanted, number, is_sorted)


def _hlookup(wanted: Scalar, area: Matrix, number: Scalar, is_sorted: Scalar = True) -> Scalar:
    return _lookup_in(area.rows, wanted, number, is_sorted)


def _lookup(wanted: Scalar, keys: Value, results: Value = None) -> Scalar:
    cells = list(_flat([keys]))
    return list(_flat([keys if results is None else results]))[_found(cells, wanted, 1)]


def _xlookup(wanted: Scalar, keys: Value, results: Value, missing: Scalar = None) -> Scalar:
    try:
        return list(_flat([results]))[_found(list(_flat([keys])), wanted, 0)]
    except LookupError:
        return Failed() if missing is None else missing


def _match(wanted: Scalar, cells: Value, mode: Scalar = 1) -> float:
    return _found(list(_flat([cells])), wanted, mode) + 1.0


def _index(area: Matrix, row: Scalar, column: Scalar = None) -> Value:
    down, across = int(_number(row)), int(_number(column))
    if len(area.rows) == 1 and column is None:
        down, across = 1, down
    rows = area.rows if down == 0 else [area.rows[down - 1]]
    cells = rows if across == 0 and len(area.rows[0]) > 1 else [[one[max(across, 1) - 1]] for one in rows]
    if min(down, across) < 0:
        raise LookupError
    is_cell = len(cells) == len(cells[0]) == 1
    return cells[0][0] if is_cell else Matrix(cells, area.top, area.left)


def _if(condition: Scalar, then: Scalar = True, other: Scalar = False) -> Scalar:
    if isinstance(condition, Failed):
        return condition
    return then if _number(condition) else other


def _rounded(value: Scalar, digits: Scalar = 0) -> float:
    scale = 10.0 ** int(_number(digits))
    return math.copysign(math.floor(abs(_number(value)) * scale + 0.5) / scale, _number(value))


def _subtotal(kind: Scalar, *areas: Value) -> float:
    name = {1: "AVERAGE", 2: "COUNT", 4: "MAX", 5: "MIN", 6: "PRODUCT", 9: "SUM"}[int(_number(kind)) % 100]
    return float(FUNCTIONS[name].run(*areas))


@dataclass(frozen=True, slots=True)
class Function:
    """A function of formulas.

    Attributes:
        areas: Places of the arguments that may be areas; None: all.
        is_array: Operators in its arguments work on each cell of an area.
        is_mapped: In an array formula it works on each cell of an area.
        takes_failures: True if the function is also called with an argument that is an error.
    """

    run: Callable[..., Any]
    areas: frozenset[int] | None = None
    is_array: bool = False
    is_mapped: bool = False
    takes_failures: bool = False


_PAIRS_AFTER_FIRST = frozenset({0, *range(1, 60, 2)})
"""Places of areas in the arguments of SUMIFS and the like; the others are conditions."""


def _mapped(run: Callable[..., Any], *, takes_failures: bool = False) -> Function:
    return Function(run, frozenset(), is_mapped=True, takes_failures=takes_failures)


FUNCTIONS: dict[str, Function] = {
    "TRUE": Function(lambda: True),
    "FALSE": Function(lambda: False),
    "SUM": Function(lambda *v: math.fsum(_numbers(*v))),
    "AVERAGE": Function(lambda *v: statistics.fmean(_numbers(*v))),
    "MEDIAN": Function(lambda *v: statistics.median(_numbers(*v))),
    "MAX": Function(lambda *v: max(_numbers(*v), default=0.0)),
    "MIN": Function(lambda *v: min(_numbers(*v), default=0.0)),
    "PRODUCT": Function(lambda *v: math.prod(_numbers(*v))),
    "COUNT": Function(lambda *v: float(len(_numbers(*v)))),
    "COUNTA": Function(lambda *v: float(sum(cell is not None for cell in _flat(v)))),
    "LARGE": Function(lambda v, n: sorted(_numbers(v), reverse=True)[int(n) - 1], frozenset({0})),
    "SMALL": Function(lambda v, n: sorted(_numbers(v))[int(n) - 1], frozenset({0})),
    "QUARTILE": Function(lambda v, n: _quantile(_numbers(v), n / 4), frozenset({0})),
    "PERCENTILE": Function(lambda v, n: _quantile(_numbers(v), n), frozenset({0})),
    "SUBTOTAL": Function(_subtotal, frozenset(range(1, 30))),
    "AGGREGATE": Function(lambda kind, _, *v: _subtotal(kind, *v), frozenset(range(2, 30))),
    "SUMPRODUCT": Function(_product_sum, is_array=True),
    "SUMIF": Function(lambda *v: math.fsum(_if_pairs(*v)), frozenset({0, 2})),
    "AVERAGEIF": Function(lambda *v: statistics.fmean(_if_pairs(*v)), frozenset({0, 2})),
    "SUMIFS": Function(lambda area, *c: math.fsum(_chosen(area, c)), _PAIRS_AFTER_FIRST),
    "AVERAGEIFS": Function(lambda area, *c: statistics.fmean(_chosen(area, c)), _PAIRS_AFTER_FIRST),
    "VLOOKUP": Function(_vlookup, frozenset({1})),
    "HLOOKUP": Function(_hlookup, frozenset({1})),
    "LOOKUP": Function(_lookup, frozenset({1, 2})),
    "XLOOKUP": Function(_xlookup, frozenset({1, 2})),
    "MATCH": Function(_match, frozenset({1})),
    "INDEX": Function(_index, frozenset({0})),
    "IF": _mapped(_if, takes_failures=True),
    "IFERROR": _mapped(lambda v, other: other if isinstance(v, Failed) else v, takes_failures=True),
    "IFNA": _mapped(lambda v, other: other if isinstance(v, Failed) else v, takes_failures=True),
    "ROUND": _mapped(_rounded),
    "ABS": _mapped(lambda v: abs(_number(v))),
    "VALUE": _mapped(_number),
    "N": _mapped(lambda v: 0.0 if isinstance(v, str) else _number(v)),
    "INT": _mapped(lambda v: float(math.floor(_number(v)))),
    "POWER": _mapped(lambda a, b: math.pow(_number(a), _number(b))),
    "SUMSQ": Function(lambda *v: math.fsum(one * one for one in _numbers(*v))),
}


def _quantile(numbers: Sequence[float], share: float) -> float:
    ordered = sorted(numbers)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
