"""Parser of spreadsheet formulas as xlsx files store them: from text to a tree of operations.

The tree has operators, calls, literals and references. Structured references of tables, arrays in braces,
unions, intersections and other workbooks are refused as `UnsupportedFormula`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

MAX_CHARS = 4000
MAX_DEPTH = 60
_PRECEDENCE = {
    "=": 1,
    "<>": 1,
    "<": 1,
    ">": 1,
    "<=": 1,
    ">=": 1,
    "&": 2,
    "+": 3,
    "-": 3,
    "*": 4,
    "/": 4,
    "^": 5,
}
_REFERENCE = re.compile(
    r"(?:(?P<sheet>'(?:[^']|'')+'|[^'!\[\]]+)!)?"
    r"(?:\$?(?P<c1>[A-Z]{1,3})\$?(?P<r1>\d{1,7})(?::\$?(?P<c2>[A-Z]{1,3})\$?(?P<r2>\d{1,7}))?"
    r"|\$?(?P<c3>[A-Z]{1,3}):\$?(?P<c4>[A-Z]{1,3})|\$?(?P<r3>\d{1,7}):\$?(?P<r4>\d{1,7}))",
    re.IGNORECASE,
)
LAST_ROW, LAST_COLUMN = 1 << 20, 1 << 14


class UnsupportedFormula(Exception):
    """A formula has a part that this module or the evaluation does not know."""


class MissingSheet(UnsupportedFormula):
    """A formula refers to a sheet that the workbook does not have."""


@dataclass(frozen=True, slots=True)
class Literal:
    value: float | str | bool


@dataclass(frozen=True, slots=True)
class Area:
    """A reference to cells; the sheet is empty for the formula's own."""

    sheet: str
    top: int
    left: int
    bottom: int
    right: int


@dataclass(frozen=True, slots=True)
class Name:
    """A defined name of the workbook."""

    name: str


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator with one operand (sign, per cent) or two."""

    operator: str
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A function's call; an argument that is left out is None."""

    function: str
    arguments: tuple[Node | None, ...]


Node = Literal | Area | Name | Operation | Call


def parse(formula: str) -> Node:
    """Return the tree of a formula, which begins with "=".

    Raises:
        UnsupportedFormula: The text is not a formula, is too long or too deep, or has an unknown part.
    """
    from openpyxl.formula.tokenizer import Tokenizer, TokenizerError

    if len(formula) > MAX_CHARS:
        raise UnsupportedFormula(f"a formula of more than {MAX_CHARS} characters")
    try:
        items = Tokenizer(formula).items
    except (TokenizerError, IndexError, ValueError) as error:
        raise UnsupportedFormula(f"{formula[:80]!r} is no formula: {error}") from error
    reader = _Reader([item for item in items if item.type != "WHITE-SPACE"])
    tree = reader.expression(0, 0)
    if reader.token is not None:
        raise UnsupportedFormula(f"{reader.token.value!r} in {formula[:80]!r}")
    return tree


def parse_area(text: str) -> Area | None:
    """Return the cells that a reference names; None if it has another form."""
    match = _REFERENCE.fullmatch(text)
    if match is None:
        return None
    sheet = (match["sheet"] or "").strip("'").replace("''", "'")
    if match["c1"]:
        c1, r1 = _column(match["c1"]), int(match["r1"])
        c2, r2 = (_column(match["c2"]), int(match["r2"])) if match["c2"] else (c1, r1)
    elif match["c3"]:
        c1, c2, r1, r2 = _column(match["c3"]), _column(match["c4"]), 1, LAST_ROW
    else:
        c1, c2, r1, r2 = 1, LAST_COLUMN, int(match["r3"]), int(match["r4"])
    return Area(sheet, min(r1, r2), min(c1, c2), max(r1, r2), max(c1, c2))


def _column(letters: str) -> int:
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - ord("A") + 1
    return number


class _Reader:
    """Reads the tokens of openpyxl's tokenizer by operator precedence."""

    def __init__(self, tokens: list[Any]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def token(self) -> Any | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> Any:
        token = self.token
        if token is None:
            raise UnsupportedFormula("a formula ends too early")
        self._at += 1
        return token

    def expression(self, least: int, depth: int) -> Node:
        """Return an expression whose operators bind at least this tightly."""
        if depth > MAX_DEPTH:
            raise UnsupportedFormula(f"a formula nested more than {MAX_DEPTH} deep")
        left = self._operand(depth)
        while (token := self.token) is not None and token.type == "OPERATOR-INFIX":
            binding = _PRECEDENCE.get(token.value)
            if binding is None:
                raise UnsupportedFormula(f"the operator {token.value!r}")
            if binding < least:
                break
            self._at += 1
            left = Operation(token.value, (left, self.expression(binding + 1, depth + 1)))
        return left

    def _operand(self, depth: int) -> Node:
        token = self._next()
        if token.type == "OPERATOR-PREFIX":
            if depth > MAX_DEPTH:
                raise UnsupportedFormula(f"a formula nested more than {MAX_DEPTH} deep")
            return Operation(f"sign{token.value}", (self._operand(depth + 1),))
        if token.type == "PAREN" and token.subtype == "OPEN":
            node = self.expression(0, depth + 1)
            self._close("PAREN")
        elif token.type == "FUNC" and token.subtype == "OPEN":
            node = self._call(token.value[:-1], depth)
        elif token.type == "OPERAND":
            node = _leaf(token)
        else:
            raise UnsupportedFormula(f"{token.value!r}")
        while (after := self.token) is not None and after.type == "OPERATOR-POSTFIX":
            self._at += 1
            node = Operation("%", (node,))
        return node

    def _call(self, name: str, depth: int) -> Node:
        arguments: list[Node | None] = []
        while True:
            token = self.token
            if token is not None and token.type == "FUNC" and token.subtype == "CLOSE":
                self._at += 1
                return Call(name.upper().removeprefix("_XLFN."), tuple(arguments))
            if token is not None and token.type == "SEP":
                self._at += 1
                if token.subtype != "ARG":
                    raise UnsupportedFormula("rows of an array")
                following = self.token
                if (
                    following is not None
                    and following.type in {"SEP", "FUNC"}
                    and following.subtype != "OPEN"
                ):
                    arguments.append(None)
                continue
            arguments.append(self.expression(0, depth + 1))

    def _close(self, kind: str) -> None:
        token = self._next()
        if token.type != kind or token.subtype != "CLOSE":
            raise UnsupportedFormula(f"{token.value!r} in place of a closing bracket")


def _leaf(token: Any) -> Node:
    match token.subtype:
        case "NUMBER":
            return Literal(float(token.value))
        case "TEXT":
            return Literal(token.value[1:-1].replace('""', '"'))
        case "LOGICAL":
            return Literal(token.value.upper() == "TRUE")
        case "RANGE":
            area = parse_area(token.value)
            if area is not None:
                return area
            if re.fullmatch(r"[A-Za-z_\\][\w.\\]*", token.value):
                return Name(token.value)
    raise UnsupportedFormula(f"{token.value[:80]!r}")
