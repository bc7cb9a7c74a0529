"""The program's process: imports a result's files and carries out the operations of the test's process.

The program can replace all of this code, which therefore protects nothing. The test's process accepts only
plain values from it.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import operator
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from osgym_host.tasks.evaluator.program.wire import ERRORS, MUTABLE, Channel, decode, encode

_OPERATORS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift",
    "rshift", "neg", "pos", "invert", "eq", "lt", "le", "gt", "ge", "contains", "getitem", "setitem",
    "delitem",
)  # fmt: skip
_OPERATIONS: dict[str, Callable[..., object]] = {
    **{name: getattr(operator, name) for name in _OPERATORS},
    **{name: getattr(builtins, name) for name in (
        "abs", "bool", "bytes", "complex", "delattr", "dir", "divmod", "float", "format", "getattr", "int",
        "isinstance", "issubclass", "iter", "len", "next", "repr", "round", "setattr", "str",
    )},
    "import": importlib.import_module,
    "items": list,
    "plain": lambda value: value,
    "call": lambda function, *arguments, **named: function(*arguments, **named),
    "enter": lambda manager: manager.__enter__(),
    "exit": lambda manager, *error: manager.__exit__(*(error or (None, None, None))),
}  # fmt: skip
LIVE = frozenset({"getattr", "getitem", "enter"})
"""Operations that return containers by reference, so that the test sees how they change later."""
_MAX_PRINTED = 1 << 20
_SEQUENCES = ("pygame", "numpy")
"""Packages whose sequences are compared as lists."""


def serve(channel: Channel) -> None:
    """Serve operations until the test's process ends."""
    _Program(channel).serve()


class _Program:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._objects: dict[int, object] = {}
        self._numbers: dict[int, int] = {}
        self._printed = io.StringIO()
        sys.stdout = self._printed
        builtins.input = lambda prompt="": self._ask_back("input", (prompt,), {})

    def serve(self) -> None:
        sys.meta_path.insert(0, GivenFiles(self._channel.receive()["modules"]))
        while True:
            self._answer(self._channel.receive())

    def _answer(self, message: Mapping[str, Any]) -> None:
        name = str(message["do"])
        try:
            arguments = [self._value(item) for item in message["arguments"]]
            named = {key: self._value(item) for key, item in message["named"].items()}
            before = [self._plain(item) for item in (*arguments, *named.values())]
            got = _OPERATIONS[name](*arguments, **named)
            after = [self._plain(item) for item in (*arguments, *named.values())]
            changed = [new if new != old else None for old, new in zip(before, after, strict=True)]
            answer = {"value": self._answered(name, got), "changed": changed}
        except BaseException as error:  # noqa: BLE001 - all errors are raised again in the test's process
            answer = {"raised": self._error(error)}
        printed = self._printed.getvalue()[:_MAX_PRINTED]
        self._printed.seek(0)
        self._printed.truncate()
        self._channel.send({**answer, "printed": printed})

    def _answered(self, name: str, got: Any) -> Any:
        if name == "plain":
            return encode(got, self._reference)
        if name == "items":
            return {"list": [self._said(item, live=True) for item in got]}
        return self._said(got, live=name in LIVE)

    def _plain(self, value: object) -> Any:
        """Encode a container that the test passed as a copy, to find what a call changes in it."""
        known = id(value) in self._numbers
        return encode(value, self._reference) if type(value) in MUTABLE and not known else None

    def _said(self, value: object, *, live: bool) -> Any:
        if type(value) in MUTABLE and (live or id(value) in self._numbers):
            return self._reference(value)
        return encode(value, self._reference)

    def _reference(self, value: object) -> dict[str, Any]:
        """Encode a reference to an object that stays here: its number and its kind."""
        if (number := self._numbers.get(id(value))) is None:
            number = self._numbers[id(value)] = len(self._objects)
            self._objects[number] = value
        said: dict[str, Any] = {"at": number, "callable": callable(value)}
        if type(value) in MUTABLE:
            return {**said, "live": type(value).__name__}
        if isinstance(value, type) and issubclass(value, BaseException):
            return {**said, "error": self._class(value)}
        if (plain := self._as_plain(value)) is not None:
            said["plain"] = plain
        return said

    def _as_plain(self, value: object) -> Any:
        """Encode the plain value of an object of a subclass, by the base type's own methods."""
        for kind in (int, float, str, bytes, tuple, frozenset):
            if isinstance(value, kind) and type(value) is not kind:
                build: Any = {int: int.__int__, float: float.__float__, str: str.__str__}.get(kind, kind)
                return encode(build(value), self._reference)
        if isinstance(value, list | set | dict):
            base = next(kind for kind in (list, set, dict) if isinstance(value, kind))
            return encode(base(value), self._reference)
        if type(value).__module__.partition(".")[0] in _SEQUENCES:
            try:
                sequence: Any = value
                plain = sequence.tolist() if hasattr(sequence, "tolist") else tuple(sequence)
            except TypeError:
                return None
            return encode(plain, self._reference)
        return None

    def _class(self, kind: type[BaseException]) -> Any:
        """Encode an exception class: Python's own by its name, the program's with its bases."""
        if ERRORS.get(kind.__name__) is kind:
            return kind.__name__
        below = next((base for base in kind.__mro__[1:] if issubclass(base, BaseException)), Exception)
        return (
            {"name": kind.__name__, "at": self._number(kind), "base": self._class(below)}
            if (below is not BaseException)
            else "Exception"
        )

    def _number(self, value: object) -> int:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._objects)
            self._objects[len(self._objects)] = value
        return self._numbers[id(value)]

    def _error(self, error: BaseException) -> dict[str, Any]:
        try:
            text = str(error)
        except Exception:  # noqa: BLE001 - the program's own `__str__`
            text = ""
        stop = {"stop": True} if isinstance(error, StopIteration) else {}
        with_fields = {key: item for key, item in vars(error).items() if not key.startswith("__")}
        try:
            fields = {key: self._said(item, live=False) for key, item in with_fields.items()}
            given = [self._said(item, live=False) for item in error.args]
        except RecursionError:
            fields, given = {}, [text]
        kind = type(error).__name__
        return {"kind": kind, "class": self._class(type(error)), "arguments": given, "fields": fields,
                "text": text, **stop}  # fmt: skip

    def _value(self, data: Any) -> Any:
        return decode(data, self._received)

    def _received(self, data: dict[str, Any]) -> Any:
        if "at" in data:
            return self._objects[data["at"]]
        if "callback" in data:
            number = data["callback"]
            return lambda *arguments, **named: self._ask_back(number, arguments, named)
        return pickle.loads(bytes.fromhex(data["pickle"]))  # noqa: S301 - it comes from the task's test

    def _ask_back(self, number: int | str, arguments: Sequence[object], named: Mapping[str, object]) -> Any:
        """Call a function of the test's process; serve its operations until it returns."""
        given = [self._said(item, live=True) for item in arguments]
        self._channel.send(
            {
                "callback": number,
                "arguments": given,
                "named": {key: self._said(item, live=True) for key, item in named.items()},
            }
        )
        while True:
            message = self._channel.receive()
            if "do" in message:
                self._answer(message)
            elif "raised" in message:
                raise ERRORS.get(message["raised"]["class"], Exception)(message["raised"]["text"])
            else:
                return self._value(message["value"])


class GivenFiles(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An importer of a result's files from memory, since the process has no folder to import from."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._texts:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=f"{fullname}.py")

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = f"{module.__name__}.py"
        code = compile(self._texts[module.__name__], module.__file__, "exec")
        exec(code, module.__dict__)  # noqa: S102 - the process is confined
