"""Conversion of values of trainers, tasks and guests to values that files hold. Pure; raises nothing."""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
import math
import os
from collections.abc import Mapping, Sequence, Set
from typing import Any

MAX_DEPTH = 32
MAX_TEXT_CHARS = 4 * 1024 * 1024
_INT64 = 2**63


def text(value: Any) -> str | None:
    """Return text that every reader can decode: a lone surrogate stands as its escape."""
    if value is None:
        return None
    try:
        found = value if type(value) is str else str(value.value if isinstance(value, enum.Enum) else value)
    except Exception as exc:  # noqa: BLE001 - an object of the user's may do anything
        found = f"({type(value).__name__} without a text: {type(exc).__name__})"
    return found[:MAX_TEXT_CHARS].encode("utf-8", "backslashreplace").decode("utf-8")


def integer(value: Any) -> int | None:
    """Return a number that 64 bits hold, else None."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return int(value) if -_INT64 <= value < _INT64 else None


def number(value: Any) -> float | None:
    """Return a float, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def boolean(value: Any) -> bool | None:
    """Return a truth value, else None."""
    return value if isinstance(value, bool) else None


def integers(value: Any) -> list[int] | None:
    """Return a flat list of integers, else None."""
    found: list[int] | None = _listed(value, integer)
    return found


def numbers(value: Any) -> list[float] | None:
    """Return a flat list of floats, else None; infinities and NaN stay."""
    found: list[float] | None = _listed(value, number)
    return found


def as_json(value: Any) -> str | None:
    """Return strict JSON. What JSON has no word for becomes text; NaN and infinities do, too."""
    if value is None:
        return None
    return json.dumps(plain(value), ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def plain(value: Any, depth: int = 0) -> Any:
    """Return the same in JSON's types."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value, depth + 1)
    if isinstance(value, str):
        return str(value)[:MAX_TEXT_CHARS]
    if isinstance(value, int):
        return int(value) if abs(value) < 2**1024 else text(hex(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if depth >= MAX_DEPTH:
        return f"({type(value).__name__}, too deep)"
    return _plain_object(value, depth)


def _plain_object(value: Any, depth: int) -> Any:
    try:
        if isinstance(value, Mapping):
            return {text(key) or "": plain(one, depth + 1) for key, one in list(value.items())}
        if isinstance(value, (bytes, bytearray, memoryview)):
            return {"base64": base64.b64encode(value).decode("ascii")}
        if isinstance(value, (Sequence, Set)):
            return [plain(one, depth + 1) for one in list(value)]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            found = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
            return plain(found, depth + 1)
        if isinstance(value, os.PathLike):
            return text(os.fspath(value))
        if callable(getattr(value, "tolist", None)):  # numpy, torch, jax
            return plain(value.tolist(), depth + 1)
    except Exception as exc:  # noqa: BLE001 - an object of the user's may do anything
        return f"({type(value).__name__}, unreadable: {type(exc).__name__})"
    return text(value)


def _listed(value: Any, convert: Any) -> Any:
    if callable(getattr(value, "tolist", None)):
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        return None
    found = [convert(one) for one in value]
    return None if None in found else found
