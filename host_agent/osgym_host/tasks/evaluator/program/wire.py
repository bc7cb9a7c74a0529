"""Messages between the test's process and the program's process: JSON, with values as plain data.

A value arrives either as a copy built from Python's own numbers, texts and containers, or as a reference to
an object that stays in the sender's process. Types of the sender are never trusted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_MESSAGE_BYTES = 16 << 20
_LENGTH_BYTES = 4
_JSON_INTEGER = 1 << 63

ERRORS: dict[str, type[BaseException]] = {
    name: kind
    for name, kind in vars(__import__("builtins")).items()
    if isinstance(kind, type)
    and issubclass(kind, Exception)
    and not issubclass(kind, MemoryError | StopIteration | StopAsyncIteration)
}
"""Exceptions that are raised as their own class in the receiving process. Those left out, such as
`MemoryError`, would be taken for errors of the receiving process itself."""
ERRORS["SystemExit"] = SystemExit
MUTABLE = (list, dict, set, bytearray)
Encode = Callable[[object], dict[str, Any]]
Decode = Callable[[dict[str, Any]], Any]


class ProgramEnded(Exception):
    """The other process ended, or sent a malformed message."""


class Channel:
    """A stream of messages over a descriptor that is read and written."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, message: dict[str, Any]) -> None:
        """Send one message.

        Raises:
            ProgramEnded: The other end is closed, or the message is too long.
        """
        text = json.dumps(message).encode()
        if len(text) > MAX_MESSAGE_BYTES:
            raise ProgramEnded(f"a message of {len(text)} bytes is too long to be sent")
        data = memoryview(len(text).to_bytes(_LENGTH_BYTES, "big") + text)
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise ProgramEnded("the program ended its process") from error

    def receive(self) -> dict[str, Any]:
        """Wait for the next message.

        Raises:
            ProgramEnded: The other end is closed, or the message is too long or malformed.
        """
        length = int.from_bytes(self._exactly(_LENGTH_BYTES), "big")
        if length > MAX_MESSAGE_BYTES:
            raise ProgramEnded(f"the program's process sent a message of {length} bytes")
        try:
            message = json.loads(self._exactly(length))
        except (ValueError, RecursionError) as error:
            raise ProgramEnded(f"the program's process sent a malformed message: {error}") from error
        if not isinstance(message, dict):
            raise ProgramEnded("the program's process sent a malformed message")
        return message

    def _exactly(self, count: int) -> bytes:
        read = bytearray()
        while len(read) < count:
            try:
                piece = os.read(self._fd, min(count - len(read), 1 << 16))
            except OSError as error:
                raise ProgramEnded("the program ended its process") from error
            if not piece:
                raise ProgramEnded("the program ended its process")
            read += piece
        return bytes(read)


def encode(value: object, other: Encode) -> Any:
    """Encode a value as JSON; ``other`` encodes values that are not exactly of a plain type."""
    kind = type(value)
    if value is None or kind in (bool, str, float):
        return value
    if kind is int:
        assert isinstance(value, int)
        return value if -_JSON_INTEGER < value < _JSON_INTEGER else {"int": hex(value)}
    if kind in (list, tuple, set, frozenset):
        assert isinstance(value, list | tuple | set | frozenset)
        return {kind.__name__: [encode(item, other) for item in value]}
    if kind is dict:
        assert isinstance(value, dict)
        return {"dict": [[encode(key, other), encode(item, other)] for key, item in value.items()]}
    if kind in (bytes, bytearray):
        assert isinstance(value, bytes | bytearray)
        return {kind.__name__: value.hex()}
    return _encode_scalar(value) or other(value)


def _encode_scalar(value: object) -> dict[str, Any] | None:
    """Encode numbers and times of Python's standard library; return None for other values."""
    kind = type(value)
    if kind is complex:
        assert isinstance(value, complex)
        return {"complex": [value.real, value.imag]}
    if kind in (Decimal, Fraction):
        return {kind.__name__: str(value)}
    if kind in (date, datetime):
        assert isinstance(value, date)
        return {kind.__name__: value.isoformat()}
    if kind is timedelta:
        assert isinstance(value, timedelta)
        return {"timedelta": [value.days, value.seconds, value.microseconds]}
    return None


_BUILT: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 16),
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "complex": lambda parts: complex(*parts),
    "Decimal": Decimal,
    "Fraction": Fraction,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
}
_CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "list": list, "tuple": tuple, "set": set, "frozenset": frozenset,
}  # fmt: skip


def decode(data: Any, other: Decode) -> Any:
    """Decode a value that `encode` encoded; ``other`` decodes the output of `encode`'s ``other``.

    Raises:
        ProgramEnded: The data is malformed.
    """
    if not isinstance(data, dict):
        if isinstance(data, list):
            raise ProgramEnded("the program's process sent a malformed value")
        return data
    try:
        for name, build in _BUILT.items():
            if name in data:
                return build(data[name])
        for name, build in _CONTAINERS.items():
            if name in data:
                return build([decode(item, other) for item in data[name]])
        if "dict" in data:
            return {decode(key, other): decode(item, other) for key, item in data["dict"]}
        return other(data)
    except (TypeError, ValueError, ArithmeticError, KeyError, RecursionError) as error:
        raise ProgramEnded(f"the program's process sent a malformed value: {error}") from error
