"""Interpreter of expressions over one JSON value, in a small subset of Python's syntax.

Task sets of others bring criteria such as ``float(result['duration']) <= 6.15``. Python's own `eval` would
run any code. This interpreter walks the syntax tree instead: it knows literals, comparisons, boolean and
arithmetic operators, subscripts, comprehensions, some functions, and some methods of texts, lists and
objects. All other syntax is refused by its name, before anything is computed. Pure.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MAX_EXPRESSION_CHARS = 4000
MAX_NODES = 400
MAX_LENGTH = 1_000_000
"""Longest text or list that an expression may make."""
_MAX_BITS = 4096
"""Bits of the largest whole number that an expression may make."""

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        abs, all, any, bool, dict, enumerate, float, int, isinstance, len, list, max, min, round, set,
        sorted, str, sum, tuple, zip,
    )
}  # fmt: skip
_TYPES = frozenset({"bool", "dict", "float", "int", "list", "str"})
"""Functions whose names may also stand alone, as the second argument of ``isinstance``."""
_METHODS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("get", "items", "keys", "values"), (dict,)),
    **dict.fromkeys(("count", "index"), (str, list, tuple)),
    **dict.fromkeys(
        (
            "casefold", "endswith", "find", "isdigit", "join", "lower", "lstrip", "replace", "rstrip",
            "split", "splitlines", "startswith", "strip", "title", "upper",
        ),
        (str,),
    ),
}  # fmt: skip
"""Methods by name, with the types that they are called on."""


class ExpressionRefused(ValueError):
    """An expression uses syntax, a name or a method outside the subset."""


def check_expression(text: str) -> None:
    """Check that an expression is within the subset.

    Raises:
        ExpressionRefused: It is not; the message names the first thing outside.
    """
    _parsed(text)


def evaluate_expression(text: str, result: Any) -> Any:
    """Return the value of an expression, in which ``result`` is a JSON value.

    Raises:
        ExpressionRefused: The expression is outside the subset.
        Exception: What Python raises for such an operation on such a value, e.g. KeyError.
    """
    return _Interpreter({"result": result}).value(_parsed(text))


def _parsed(text: str) -> ast.expr:
    if len(text) > MAX_EXPRESSION_CHARS:
        raise ExpressionRefused(f"the expression has more than {MAX_EXPRESSION_CHARS} characters")
    try:
        body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionRefused(f"the expression is not Python: {error}") from None
    nodes = list(ast.walk(body))
    if len(nodes) > MAX_NODES:
        raise ExpressionRefused(f"the expression has more than {MAX_NODES} parts")
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if why := _outside(node, bound, called):
            raise ExpressionRefused(why)
    return body


_PLAIN = (
    ast.BoolOp, ast.boolop, ast.IfExp, ast.Dict, ast.List, ast.Tuple, ast.Set, ast.Subscript, ast.Slice,
    ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp, ast.expr_context, ast.keyword,
)  # fmt: skip


def _outside(node: ast.AST, bound: set[str], called: set[int]) -> str:
    """Return why a part is outside the subset; an empty text if it is inside."""
    match node:
        case ast.Constant(value=value):
            plain = value is None or isinstance(value, bool | int | float | str)
            return "" if plain else f"a literal of the type {type(value).__name__}"
        case ast.Name(id=name):
            callee = id(node) in called and name in _FUNCTIONS
            return "" if callee or name in {"result", *bound, *_TYPES} else f"the name {name}"
        case ast.Attribute(attr=name):
            allowed = id(node) in called and name in _METHODS
            return "" if allowed else f"the attribute {name}"
        case ast.Call(func=function, keywords=keywords):
            direct = isinstance(function, ast.Name | ast.Attribute)
            return "" if direct and all(k.arg for k in keywords) else "a call of a computed function"
        case ast.comprehension(is_async=is_async):
            return "an asynchronous comprehension" if is_async else ""
        case ast.operator():
            return "" if type(node) in _BINARY else f"the operator {type(node).__name__}"
        case ast.unaryop():
            return "" if type(node) in _UNARY else f"the operator {type(node).__name__}"
        case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.cmpop():
            return ""
    return "" if isinstance(node, _PLAIN) else f"the syntax {type(node).__name__}"


class _Interpreter:
    """Computes the value of a checked expression."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = dict(names)

    def value(self, node: ast.expr) -> Any:
        """Return the value of one part."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._names[name] if name in self._names else _FUNCTIONS[name]
            case ast.BoolOp(op=op, values=values):
                return self._boolean(isinstance(op, ast.And), values)
            case ast.UnaryOp(op=op, operand=operand):
                return _UNARY[type(op)](self.value(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return _bounded(_BINARY[type(op)], self.value(left), self.value(right))
            case ast.Compare():
                return self._compared(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self.value(test) else orelse)
            case ast.Call():
                return self._called(node)
            case ast.Subscript(value=container, slice=index):
                return self.value(container)[self._index(index)]
            case _:
                return self._container(node)

    def _boolean(self, is_and: bool, values: list[ast.expr]) -> Any:
        value: Any = None
        for part in values:
            value = self.value(part)
            if bool(value) is not is_and:
                break
        return value

    def _compared(self, node: ast.Compare) -> bool:
        left = self.value(node.left)
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = self.value(part)
            if not _COMPARE[type(op)](left, right):
                return False
            left = right
        return True

    def _called(self, node: ast.Call) -> Any:
        arguments = [self.value(argument) for argument in node.args]
        named = {keyword.arg: self.value(keyword.value) for keyword in node.keywords if keyword.arg}
        if isinstance(node.func, ast.Name):
            return _FUNCTIONS[node.func.id](*arguments, **named)
        assert isinstance(node.func, ast.Attribute)
        name = node.func.attr
        owner: Any = self.value(node.func.value)
        if not isinstance(owner, _METHODS[name]):
            raise AttributeError(f"{type(owner).__name__} has no {name}")
        text: Any = owner
        if name == "replace" and len(str(arguments[1])) * (len(text) + 1) > MAX_LENGTH:
            raise ValueError("the text is too long")
        return getattr(owner, name)(*arguments, **named)

    def _index(self, node: ast.expr) -> Any:
        if not isinstance(node, ast.Slice):
            return self.value(node)
        return slice(
            *(None if part is None else self.value(part) for part in (node.lower, node.upper, node.step))
        )

    def _container(self, node: ast.expr) -> Any:
        match node:
            case ast.List(elts=parts):
                return [self.value(part) for part in parts]
            case ast.Tuple(elts=parts):
                return tuple(self.value(part) for part in parts)
            case ast.Set(elts=parts):
                return {self.value(part) for part in parts}
            case ast.Dict(keys=keys, values=values):
                return {
                    self.value(k): self.value(v) for k, v in zip(keys, values, strict=True) if k is not None
                }
            case ast.ListComp(elt=part) | ast.GeneratorExp(elt=part):
                return [self.value(part) for _ in self._rounds(node.generators)]
            case ast.SetComp(elt=part):
                return {self.value(part) for _ in self._rounds(node.generators)}
            case ast.DictComp(key=key, value=part):
                return {self.value(key): self.value(part) for _ in self._rounds(node.generators)}
        raise ExpressionRefused(f"the syntax {type(node).__name__}")

    def _rounds(self, generators: list[ast.comprehension]) -> Iterator[None]:
        """Bind the names of a comprehension, once for each of its rounds."""
        if not generators:
            yield
            return
        first, *rest = generators
        for item in self.value(first.iter):
            self._bind(first.target, item)
            if all(self.value(condition) for condition in first.ifs):
                yield from self._rounds(rest)

    def _bind(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self._names[target.id] = value
            return
        if not isinstance(target, ast.Tuple | ast.List):
            raise ExpressionRefused(f"the syntax {type(target).__name__} as a target")
        for part, item in zip(target.elts, value, strict=True):
            self._bind(part, item)


def _bounded(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Carry out an operation whose result fits the limits.

    Raises:
        ValueError: The result would be too large.
    """
    if operation is operator.mod and isinstance(left, str):
        raise ValueError("% formats no texts here")
    if operation is operator.mul:
        for value, times in ((left, right), (right, left)):
            if not isinstance(value, str | list | tuple) or not isinstance(times, int):
                continue
            if len(value) * times > MAX_LENGTH:
                raise ValueError("the repeated value is too long")
        whole = isinstance(left, int) and isinstance(right, int)
        if whole and left.bit_length() + right.bit_length() > _MAX_BITS:
            raise ValueError("the number is too large")
    return operation(left, right)
