"""Other spellings of a spreadsheet's formula that compute the same.

Formulas here have no equals sign, as in the XML of a workbook. Each function returns None where it does not
apply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from openpyxl.formula import Tokenizer
from openpyxl.formula.tokenizer import Token, TokenizerError
from openpyxl.utils.cell import get_column_letter, range_boundaries

MAX_LISTED = 30
"""Largest number of cells that an area is spelled out with: spreadsheets bound a function's arguments."""
_AGGREGATES = ("SUM", "MIN", "MAX", "AVERAGE", "COUNT")
_AREA = re.compile(r"\$?([A-Z]{1,3})\$?(\d+):\$?([A-Z]{1,3})\$?(\d+)")
_CELL = re.compile(r"([A-Z]{1,3})(\d+)")
_OF_AREA = re.compile(rf"({'|'.join(_AGGREGATES)})\(({_AREA.pattern})\)")
_ARITHMETIC = frozenset("+-*/")

IsNumber = Callable[[int, int], bool]
"""Whether the cell of a row and column of the formula's own sheet holds a number."""


def _tokens(formula: str) -> list[Token]:
    try:
        return list(Tokenizer(f"={formula}").items)
    except TokenizerError:
        return []


def _joined(formula: str, texts: Iterable[str]) -> str | None:
    new = "".join(texts)
    return new if new and new != formula else None


def _cells(area: str) -> list[str]:
    left, top, right, bottom = range_boundaries(area)
    assert left is not None and top is not None and right is not None and bottom is not None
    count = (right - left + 1) * (bottom - top + 1)
    return [
        f"{get_column_letter(column)}{row}"
        for row in range(top, (bottom if count <= MAX_LISTED else top - 1) + 1)
        for column in range(left, right + 1)
    ]


def area_listed(formula: str) -> str | None:
    """Spell out a small area that is the only argument of an aggregate: ``SUM(B2,B3,B4)``."""

    def listed(match: re.Match[str]) -> str:
        cells = _cells(match[2])
        return f"{match[1]}({','.join(cells)})" if len(cells) > 1 else match[0]

    if '"' in formula:
        return None
    return _joined(formula, [re.sub(rf"(?<![\w.]){_OF_AREA.pattern}", listed, formula)])


def sum_as_chain(formula: str, is_number: IsNumber) -> str | None:
    """Write a formula that is one sum of numbers as a chain of additions: ``B2+B3+B4``."""
    match = _OF_AREA.fullmatch(formula)
    if match is None or match[1] != "SUM":
        return None
    left, top, right, bottom = range_boundaries(match[2])
    assert left is not None and top is not None and right is not None and bottom is not None
    cells = _cells(match[2])
    if len(cells) < 2 or not all(
        is_number(row, column) for row in range(top, bottom + 1) for column in range(left, right + 1)
    ):
        return None
    return "+".join(cells)


def spaced(formula: str) -> str | None:
    """Put spaces around operators and behind separators of arguments."""
    return _joined(
        formula,
        (
            f" {token.value} "
            if token.type == Token.OP_IN
            else f"{token.value} "
            if token.type == Token.SEP
            else token.value
            for token in _tokens(formula)
        ),
    )


def in_lower_case(formula: str) -> str | None:
    """Write names of functions and references of cells in lower case."""

    def is_free(token: Token) -> bool:
        is_function = token.type == Token.FUNC and token.subtype == Token.OPEN and "." not in token.value
        return is_function or _is_plain_reference(token)

    return _joined(
        formula, (token.value.lower() if is_free(token) else token.value for token in _tokens(formula))
    )


def absolute(formula: str) -> str | None:
    """Write references as absolute ones."""
    return _joined(
        formula,
        (
            re.sub(r"\$?([A-Z]{1,3})\$?(\d+)", r"$\1$\2", token.value)
            if _is_plain_reference(token)
            else token.value
            for token in _tokens(formula)
        ),
    )


def in_brackets(formula: str) -> str | None:
    """Put the whole formula into brackets."""
    return f"({formula})" if _tokens(formula) else None


def _is_plain_reference(token: Token) -> bool:
    is_cell = re.fullmatch(r"\$?[A-Z]{1,3}\$?\d+(:\$?[A-Z]{1,3}\$?\d+)?", token.value) is not None
    return bool(token.type == Token.OPERAND and token.subtype == Token.RANGE and is_cell)


def over_rows(formula: str, first: int, last: int) -> str | None:
    """Return the array formula for rows first to last of a formula of the first row.

    Only for arithmetic over numbers and relative references of the row.
    """
    texts: list[str] = []
    references = 0
    for token in _tokens(formula):
        match = _CELL.fullmatch(token.value)
        if token.type == Token.OPERAND and token.subtype == Token.NUMBER:
            texts.append(token.value)
        elif token.type == Token.OPERAND and match is not None and int(match[2]) == first:
            texts.append(f"{match[1]}{first}:{match[1]}{last}")
            references += 1
        elif token.type == Token.OP_IN and token.value in _ARITHMETIC:
            texts.append(token.value)
        else:
            return None
    return _joined(formula, texts) if references else None
