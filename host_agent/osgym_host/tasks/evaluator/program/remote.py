"""The test's side: modules, functions and objects of a program that runs in another process.

A test imports the program's modules as usual and gets stand-ins (proxies). Each operation on a stand-in is
carried out in the program's process; numbers, texts and containers come back as copies and are compared here.
An object of a subclass of these is compared by the plain value that it holds, not by its own methods.
"""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import operator
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from osgym_host.tasks.evaluator.program.wire import ERRORS, MUTABLE, Channel, ProgramEnded, decode, encode

TEST_MODULE = "osgym_test_suite"
_OPERATORS: dict[str, Callable[..., Any]] = {
    name: getattr(operator, f"{name}_" if name in {"and", "or"} else name)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
                 "lshift", "rshift")
} | {"divmod": divmod}  # fmt: skip
_ORDERS: dict[str, Callable[..., Any]] = {name: getattr(operator, name) for name in ("lt", "le", "gt", "ge")}
_CONVERSIONS: dict[str, Callable[..., Any]] = {
    "neg": operator.neg, "pos": operator.pos, "invert": operator.invert, "abs": abs, "int": int,
    "float": float, "complex": complex, "round": round, "bytes": bytes,
}  # fmt: skip
_LIVE: dict[str, type] = {kind.__name__: kind for kind in MUTABLE}


class Program:
    """The client of a program's process."""

    def __init__(self, fd: int, modules: Mapping[str, str]) -> None:
        self._channel = Channel(fd)
        self._stand_ins: dict[int, StandIn] = {}
        self._errors: dict[int, type[BaseException]] = {}
        self._callbacks: list[Callable[..., object]] = []
        self._channel.send({"modules": dict(modules)})

    def do(self, name: str, *arguments: object, **named: object) -> Any:
        """Carry out an operation in the program's process and return its value.

        Raises:
            ProgramEnded: The program's process ended.
            BaseException: The error that the program raised.
        """
        given = (*arguments, *named.values())
        said = {key: encode(item, self._reference) for key, item in named.items()}
        self._channel.send(
            {"do": name, "arguments": [encode(item, self._reference) for item in arguments], "named": said}
        )
        while "callback" in (answer := self._channel.receive()):
            self._channel.send(self._called_back(answer))
        if printed := answer.get("printed"):
            sys.stdout.write(str(printed))
        if "raised" in answer:
            raise self._error(answer["raised"], stops=name == "next")
        for item, changed in zip(given, answer.get("changed") or (), strict=False):
            if changed is not None and type(item) in MUTABLE:
                _refill(item, self.value(changed))
        return self.value(answer.get("value"))

    def value(self, data: Any) -> Any:
        """Rebuild a value that the program's process sent."""
        return decode(data, self._received)

    def _reference(self, value: object) -> dict[str, Any]:
        if isinstance(value, _Module):
            value = value._osgym_stand_in
        if issubclass(type(value), StandIn):
            return {"at": value._osgym_number}  # type: ignore[attr-defined]  # a stand-in, by its real type
        if isinstance(value, type) and type(number := vars(value).get("_osgym_number")) is int:
            return {"at": number}
        of_the_test = getattr(value, "__module__", None) == TEST_MODULE
        try:
            if callable(value) and of_the_test:
                raise TypeError("the object exists only in this process")
            return {"pickle": pickle.dumps(value).hex()}
        except Exception as error:
            if callable(value):
                self._callbacks.append(value)
                return {"callback": len(self._callbacks) - 1}
            message = f"a {type(value).__name__} of the test cannot be given to a program in another process"
            raise TypeError(message) from error

    def _received(self, data: dict[str, Any]) -> Any:
        number = int(data["at"])
        if (error := data.get("error")) is not None:
            return self._class(error)
        if number not in self._stand_ins:
            kind = _Callable if data.get("callable") is True else StandIn
            self._stand_ins[number] = kind(self, number, _LIVE.get(str(data.get("live"))))
        stand_in = self._stand_ins[number]
        if "plain" in data:
            object.__setattr__(stand_in, "_osgym_plain", (self.value(data["plain"]),))
        return stand_in

    def _class(self, said: Any) -> type[BaseException]:
        """Return an exception class: Python's own, or a local one for the program's."""
        if not isinstance(said, dict):
            return ERRORS.get(str(said), Exception)
        number = int(said["at"])
        if number not in self._errors:
            members = {"_osgym_number": number}
            self._errors[number] = type(str(said["name"]), (self._class(said["base"]),), members)
        return self._errors[number]

    def _error(self, said: Mapping[str, Any], *, stops: bool) -> BaseException:
        if stops and said.get("stop") is True:
            return StopIteration()
        try:
            error = self._class(said["class"])(*(self.value(item) for item in said["arguments"]))
            for name, item in said["fields"].items():
                if not str(name).startswith("_"):
                    setattr(error, str(name), self.value(item))
        except Exception:  # noqa: BLE001 - some of Python's own exceptions reject other arguments than theirs
            error = Exception(f"{said.get('kind')}: {said.get('text')}")
        return error

    def _called_back(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        number = asked["callback"]
        function = builtins.input if number == "input" else self._callbacks[int(number)]
        try:
            arguments = [self.value(item) for item in asked["arguments"]]
            named = {str(key): self.value(item) for key, item in asked["named"].items()}
            return {"value": encode(function(*arguments, **named), self._reference)}
        except ProgramEnded:
            raise
        except Exception as error:  # noqa: BLE001 - it is raised again in the program's process
            return {"raised": {"class": type(error).__name__, "text": str(error)}}


def _refill(container: Any, content: Any) -> None:
    """Apply the changes that the program made in its copy of a container to the test's original."""
    if type(content) is not type(container):
        raise ProgramEnded("the program's process sent a malformed value")
    container.clear()
    container.extend(content) if isinstance(container, list | bytearray) else container.update(content)


class StandIn:
    """A proxy of an object of the program: its operations are carried out in the program's process."""

    __slots__ = ("_osgym_kind", "_osgym_number", "_osgym_plain", "_osgym_program")

    def __init__(self, program: Program, number: int, kind: type | None) -> None:
        """Stand for the object with this number; ``kind`` is its exact type if that is a container."""
        for name, value in (("program", program), ("number", number), ("kind", kind), ("plain", ())):
            object.__setattr__(self, f"_osgym_{name}", value)

    def _osgym_do(self, name: str, *arguments: object, **named: object) -> Any:
        return self._osgym_program.do(name, *arguments, **named)

    @property  # type: ignore[misc]  # Python reads it as an attribute, mypy knows it as a class variable
    def __class__(self) -> type:
        """Type of the plain value, so that `isinstance` is true of it."""
        kind: type | None = self._osgym_kind
        if kind is not None:
            return kind
        return type(self._osgym_plain[0]) if self._osgym_plain else type(self)

    def __getattr__(self, name: str) -> Any:
        return self._osgym_do("getattr", self, name)

    def __setattr__(self, name: str, value: object) -> None:
        self._osgym_do("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._osgym_do("delattr", self, name)

    def __dir__(self) -> list[str]:
        return [name for name in self._osgym_do("dir", self) if isinstance(name, str)]

    def __hash__(self) -> int:
        return hash(self._osgym_plain[0]) if self._osgym_plain else self._osgym_number

    def __bool__(self) -> bool:
        held = plain(self)
        return bool(held) if held is not self else self._osgym_do("bool", self) is True

    def __reversed__(self) -> Iterator[Any]:
        return iter(list(self)[::-1])

    def __len__(self) -> int:
        held = plain(self)
        return len(held) if held is not self else _exactly(int, self._osgym_do("len", self))

    def __str__(self) -> str:
        return str(_exactly(str, self._osgym_do("str", self)))

    def __repr__(self) -> str:
        return str(_exactly(str, self._osgym_do("repr", self)))

    def __format__(self, spec: str) -> str:
        return str(_exactly(str, self._osgym_do("format", self, spec)))

    def __iter__(self) -> Iterator[Any]:
        if self._osgym_kind is not None or self._osgym_plain:
            return iter(self._osgym_do("items", self))
        made: Iterator[Any] = self._osgym_do("iter", self)
        return made

    def __next__(self) -> Any:
        return self._osgym_do("next", self)

    def __contains__(self, item: object) -> bool:
        held = plain(self)
        return item in held if held is not self else self._osgym_do("contains", self, item) is True

    def __getitem__(self, key: object) -> Any:
        return self._osgym_do("getitem", self, key)

    def __setitem__(self, key: object, value: object) -> None:
        self._osgym_do("setitem", self, key, value)

    def __delitem__(self, key: object) -> None:
        self._osgym_do("delitem", self, key)

    def __enter__(self) -> Any:
        return self._osgym_do("enter", self)

    def __exit__(self, *error: object) -> bool:
        raised = error[1]
        given = (None, None, None) if raised is None else (type(raised), raised, None)
        return self._osgym_do("exit", self, *given) is True

    def __instancecheck__(self, instance: object) -> bool:
        return self._osgym_do("isinstance", instance, self) is True

    def __subclasscheck__(self, kind: type) -> bool:
        return self._osgym_do("issubclass", kind, self) is True


class _Callable(StandIn):
    """A stand-in of a function, a class or another callable object."""

    __slots__ = ()

    def __call__(self, *arguments: object, **named: object) -> Any:
        return self._osgym_do("call", self, *arguments, **named)


def plain(value: Any) -> Any:
    """Return a copy of the plain value of a stand-in; other objects are returned as they are."""
    if not issubclass(type(value), StandIn):
        return value
    if value._osgym_kind is not None:
        return value._osgym_do("plain", value)
    return value._osgym_plain[0] if value._osgym_plain else value


def _exactly(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"the program did not return {kind.__name__}")
    return value


def _equal(one: StandIn, other: object) -> Any:
    """Compare plain copies in this process. The program decides only about two objects of its own."""
    mine, theirs = plain(one), plain(other)
    if mine is not one or theirs is not other:
        return mine == theirs if mine is not one else NotImplemented
    if not issubclass(type(other), StandIn):
        return NotImplemented
    return one is other or one._osgym_do("eq", one, other) is True


def _ordered(name: str, compare: Callable[..., Any]) -> Callable[[StandIn, object], Any]:
    def method(one: StandIn, other: object) -> Any:
        mine, theirs = plain(one), plain(other)
        if mine is not one and theirs is not None:
            return compare(mine, theirs)
        if not issubclass(type(other), StandIn):  # a program may not judge a comparison with the test's value
            return NotImplemented
        return one._osgym_do(name, one, other) is True

    return method


def _calculated(
    name: str, calculate: Callable[..., Any], *, reflected: bool
) -> Callable[[StandIn, object], Any]:
    asked = f"{name}_" if name in {"and", "or"} else name

    def method(one: StandIn, other: object) -> Any:
        mine, theirs = plain(one), plain(other)
        if mine is not one:
            return calculate(theirs, mine) if reflected else calculate(mine, theirs)
        got = one._osgym_do(asked, *((other, one) if reflected else (one, other)))
        if not issubclass(type(got), StandIn) and not issubclass(type(other), StandIn):
            raise TypeError(f"{name} of a program's object that is no number must not return a plain value")
        return got

    return method


def _converted(name: str, convert: Callable[..., Any]) -> Callable[..., Any]:
    def method(one: StandIn, *arguments: object) -> Any:
        held = plain(one)
        return convert(held, *arguments) if held is not one else one._osgym_do(name, one, *arguments)

    return method


def _declare_operators() -> None:
    StandIn.__eq__ = _equal  # type: ignore[assignment, method-assign]  # as the other operators below
    for name, compare in _ORDERS.items():
        setattr(StandIn, f"__{name}__", _ordered(name, compare))
    for name, calculate in _OPERATORS.items():
        setattr(StandIn, f"__{name}__", _calculated(name, calculate, reflected=False))
        setattr(StandIn, f"__r{name}__", _calculated(name, calculate, reflected=True))
    for name, convert in _CONVERSIONS.items():
        setattr(StandIn, f"__{name}__", _converted(name, convert))


_declare_operators()


class _Module(ModuleType):
    """A stand-in of a module; attributes of the import system (``__…__``) are set only here."""

    def __init__(self, name: str, program: Program, stand_in: StandIn) -> None:
        super().__init__(name)
        self.__dict__.update(_osgym_program=program, _osgym_stand_in=stand_in)

    def __getattr__(self, name: str) -> Any:
        program, stand_in = self.__dict__["_osgym_program"], self.__dict__["_osgym_stand_in"]
        try:
            return program.do("getattr", stand_in, name)
        except AttributeError:
            if name != "__all__":
                raise
            return [public for public in dir(stand_in) if not public.startswith("_")]

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("__"):
            self.__dict__[name] = value
        else:
            self._osgym_program.do("setattr", self._osgym_stand_in, name, value)

    def __delattr__(self, name: str) -> None:
        self._osgym_program.do("delattr", self._osgym_stand_in, name)


class ProgramModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An importer that runs the program's modules in its process and returns stand-ins."""

    def __init__(self, program: Program, names: Sequence[str]) -> None:
        self._program = program
        self._names = frozenset(names)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._names:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=f"{fullname}.py")

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Import the file in the program's process."""
        return _Module(spec.name, self._program, self._program.do("import", spec.name))

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: `create_module` has run the file."""
