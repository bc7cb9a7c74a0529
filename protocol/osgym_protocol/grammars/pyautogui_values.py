"""Values in pyautogui source: literals and arithmetic on them, computed within bounds."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from osgym_protocol.grammars.base import Builder, UnreadableAction, shown
from osgym_protocol.limits import MAX_ACTIONS, MAX_TEXT_CHARS

_MAX_NUMBER = 10**9
_MAX_DEPTH = 64
_MAX_NODES = 20_000
_MAX_MADE_CHARS = 5 * MAX_TEXT_CHARS
"""Length of all texts together that `+` and `*` make."""
_CONSTANTS = {
    "pyautogui.LEFT": "left", "pyautogui.MIDDLE": "middle", "pyautogui.RIGHT": "right",
    "pyautogui.PRIMARY": "primary", "pyautogui.SECONDARY": "secondary",
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
"""Operators without the power, which exceeds the bounds or could be written out."""


class Values:
    """Assigned names, imported modules, and the values of expressions."""

    def __init__(self, to: Builder) -> None:
        self.names: dict[str, Any] = {}
        self.modules: dict[str, str] = {"pyautogui": "pyautogui", "time": "time"}
        self.functions: dict[str, str] = {}
        self._to = to
        self._left = _MAX_NODES
        self._chars_left = _MAX_MADE_CHARS

    def of(self, node: ast.expr, depth: int = 0) -> Any:
        """Return the value of an expression: a number, a text, a truth value, None, or a list of these.

        Raises:
            UnreadableAction: It is not made of literals, or out of bounds.
        """
        self._left -= 1
        if depth > _MAX_DEPTH or self._left < 0:
            raise self._refuse(node, "the expression is too long")
        match node:
            case ast.Constant(value) if value is None or isinstance(value, (str, bool, int, float)):
                return self._bounded(node, value)
            case ast.Name(name):
                if name in self.names:
                    return self.names[name]
                raise self._refuse(node, f"the name {name[:40]!r} has no value here")
            case ast.UnaryOp(ast.USub() | ast.UAdd(), inner):
                value = self._number(inner, self.of(inner, depth + 1))
                return -value if isinstance(node.op, ast.USub) else value
            case ast.Tuple(parts) | ast.List(parts):
                if len(parts) > MAX_ACTIONS:
                    raise self._refuse(node, f"a list has at most {MAX_ACTIONS} parts")
                return [self.of(part, depth + 1) for part in parts]
            case ast.BinOp(left, op, right):
                return self._binary(node, op, self.of(left, depth + 1), self.of(right, depth + 1))
            case ast.Call(func, [], []) if self.name_of(func) == "pyautogui.size":
                return list(self._to.context.space(self._default()).size)
            case ast.Attribute() if self.name_of(node) in _CONSTANTS:
                return _CONSTANTS[self.name_of(node)]
        raise self._refuse(
            node, f"{type(node).__name__} is not a supported value", "literals, arithmetic, names"
        )

    def _default(self) -> tuple[int, int]:
        return self._to.context.image or self._to.context.screen

    def name_of(self, node: ast.expr) -> str:
        """Return `pyautogui.click` for any name under which it was imported; empty for others."""
        match node:
            case ast.Name(name) if name not in self.names:
                return self.functions.get(name, "")
            case ast.Attribute(ast.Name(module), name) if module not in self.names:
                known = self.modules.get(module, module if module == "computer" else "")
                return f"{known}.{name}" if known else ""
        return ""

    def _binary(self, node: ast.BinOp, op: ast.operator, left: Any, right: Any) -> Any:
        function = _ARITHMETIC.get(type(op))
        if function is None:
            raise self._refuse(node, f"{type(op).__name__} is not a supported operator", "+ - * / // %")
        if isinstance(op, ast.Add) and isinstance(left, str) and isinstance(right, str):
            self._count(node, len(left) + len(right))
            return left + right
        if isinstance(op, ast.Mult) and isinstance(left, str) and type(right) is int:
            self._count(node, len(left) * max(right, 0))
            return left * right
        self._number(node, left)
        self._number(node, right)
        try:
            return self._bounded(node, function(left, right))
        except ZeroDivisionError:
            raise self._refuse(node, "the expression divides by zero") from None

    def _count(self, node: ast.expr, chars: int) -> None:
        """Count the characters of a text before it is made, and check the bound."""
        self._chars_left -= chars
        if chars > MAX_TEXT_CHARS or self._chars_left < 0:
            raise self._refuse(node, f"a text has at most {MAX_TEXT_CHARS} characters")

    def _number(self, node: ast.expr, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._refuse(node, f"arithmetic is on numbers, not {shown(value)}")
        return value

    def _bounded(self, node: ast.expr, value: Any) -> Any:
        if isinstance(value, str):
            if len(value) > MAX_TEXT_CHARS:
                raise self._refuse(node, f"a text has at most {MAX_TEXT_CHARS} characters")
        elif value is not None and not -_MAX_NUMBER <= value <= _MAX_NUMBER:
            raise self._refuse(node, f"a number is from -{_MAX_NUMBER} to {_MAX_NUMBER}")
        return value

    def _refuse(self, node: ast.expr, why: str, allowed: str = "") -> UnreadableAction:
        return self._to.refuse(why, f"line {node.lineno}", allowed=allowed)
