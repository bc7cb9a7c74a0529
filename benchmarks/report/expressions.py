"""Expressions that read numbers from result files, and templates of text with such expressions.

An expression is a piece of Python that only looks: `file('reset').reset_ms` is a field of
`benchmarks/results/reset.json`, a field of a list of rows is the column (lists within are joined),
`where(rows, way='exact')` takes the rows that agree, and `median`, `mean`, `p95`, `least`, `most`, `total`,
`count`, `low` and `high` (the 95 % interval of the median) make one number of a series; `share`, `share_low`
and `share_high` the percentage of what is true in it, with Wilson's interval. Numbers may be added,
subtracted, multiplied and divided. Nothing else of Python is understood.

A template is text with `{expression|format}`, the format as of `str.format`; `|n` is three digits.
"""

from __future__ import annotations

import ast
import fnmatch
import functools
import json
import math
import operator
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, quantile
from benchmarks.compare import median_interval
from benchmarks.settle.stats import wilson

HOLE = re.compile(r"\{([^{}|]+)\|([^{}]*)\}")
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class BadReference(ValueError):
    """An expression leads nowhere; the message has the expression."""


@functools.cache
def load(name: str, folder: Path = RESULTS) -> Any:
    """Return a result file by its name below benchmarks/results, without the suffix.

    Raises:
        BadReference: There is no such file.
    """
    path = folder / f"{name}.json"
    if not path.is_file():
        raise BadReference(f"no result file {name}.json")
    return json.loads(path.read_text(encoding="utf-8"))


def where(rows: Sequence[Mapping[str, Any]], **wanted: Any) -> list[Mapping[str, Any]]:
    """Return the rows whose fields equal the value, are one of the values, or match it (`'*-flow'`)."""
    return [row for row in rows if all(_fits(row.get(name), value) for name, value in wanted.items())]


def _fits(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, tuple):
        return found in wanted if wanted else found == []
    if isinstance(wanted, str) and "*" in wanted:
        return fnmatch.fnmatchcase(str(found), wanted)
    return bool(found == wanted)


def column(found: Any, name: str) -> Any:
    """Return a field; for a list of rows that of each, with lists joined to one.

    Raises:
        BadReference: It is not there.
    """
    if isinstance(found, Mapping):
        if name not in found:
            raise BadReference(f"no field {name!r} beside {', '.join(found)}")
        return found[name]
    if isinstance(found, list):
        values = [column(row, name) for row in found]
        if values and all(isinstance(value, list) for value in values):
            return [one for value in values for one in value]
        return values
    raise BadReference(f"{name!r} of something that has no fields")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "file": load,
    "where": where,
    "median": statistics.median,
    "mean": statistics.fmean,
    "p95": lambda values: quantile(values, 0.95),
    "least": min,
    "most": max,
    "total": sum,
    "count": len,
    "low": lambda values: median_interval(values)[0],
    "high": lambda values: median_interval(values)[1],
    "share": lambda values: 100 * sum(values) / len(values),
    "share_low": lambda values: 100 * wilson(sum(values), len(values))[0],
    "share_high": lambda values: 100 * wilson(sum(values), len(values))[1],
}


def evaluate(text: str) -> Any:
    """Return the value of an expression.

    Raises:
        BadReference: It leads nowhere, or is no expression of the kind described above.
    """
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (
        BadReference,
        SyntaxError,
        TypeError,
        KeyError,
        IndexError,
        ValueError,
        ZeroDivisionError,
    ) as error:
        raise BadReference(f"{text.strip()}: {error}") from error


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return tuple(_value(part) for part in parts)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(left), _value(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.Attribute(value=inner, attr=name):
            return column(_value(inner), name)
        case ast.Subscript(value=inner, slice=place):
            found, key = _value(inner), _value(place)
            return column(found, key) if isinstance(key, str) else found[key]
        case ast.Call(func=ast.Name(id=name), args=given, keywords=named) if name in FUNCTIONS:
            wanted = {str(one.arg): _value(one.value) for one in named}
            return FUNCTIONS[name](*(_value(one) for one in given), **wanted)
    raise BadReference(f"{ast.unparse(node)} is not supported")


def number(value: float) -> str:
    """Return a number with three digits, or all of those before the point; thousands with a comma."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadReference(f"{value!r} is not a number")
    if value != value:
        return "–"
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    if value == 0:
        return "0"
    text = f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def filled(template: str) -> str:
    """Return a template with its numbers.

    Raises:
        BadReference: One of them leads nowhere.
    """

    def one(match: re.Match[str]) -> str:
        value, form = evaluate(match[1]), match[2]
        return number(value) if form == "n" else format(value, form)

    return HOLE.sub(one, template)


def files_of(template: str) -> Iterator[str]:
    """Yield the names of the result files that a template or an expression mentions, each once."""
    yield from dict.fromkeys(re.findall(r"file\('([^']+)'\)", template))
