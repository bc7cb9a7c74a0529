"""Conversion between the engine's property values and Python's. Pure.

A value that is not known yet (in a preview) is `UNKNOWN`; what is secret stays so under its own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from pulumi.provider.experimental.property_value import Computed, PropertyValue
from pulumi.runtime.rpc import UNKNOWN as UNKNOWN_TEXT

Values = Mapping[str, PropertyValue]


class Unknown(Enum):
    UNKNOWN = "unknown"


UNKNOWN = Unknown.UNKNOWN


def plain(value: PropertyValue) -> Any:
    """Return a property value as Python has it."""
    match value.value:
        case Computed():
            return UNKNOWN
        # The SDK (3.272) hands on the text that stands for it between processes.
        case str() as text if text == UNKNOWN_TEXT:
            return UNKNOWN
        case Mapping() as items:
            return {name: plain(item) for name, item in items.items()}
        case list() | tuple() as items:
            return [plain(item) for item in items]
        case other:
            return other


def plain_all(values: Values) -> dict[str, Any]:
    """Return property values as Python has them, without nulls."""
    return {name: plain(value) for name, value in values.items() if value.value is not None}


def wrapped(value: Any, *, secret: bool = False) -> PropertyValue:
    """Return a Python value as a property value, whose numbers are floats."""
    match value:
        case bool() | str() | None:
            return PropertyValue(value, is_secret=secret)
        case int() | float():
            return PropertyValue(float(value), is_secret=secret)
        case Mapping():
            return PropertyValue({str(k): wrapped(v) for k, v in value.items()}, is_secret=secret)
        case list() | tuple():
            return PropertyValue([wrapped(item) for item in value], is_secret=secret)
    raise TypeError(f"{type(value).__name__} is not a type of the engine")


def has_unknown(value: Any) -> bool:
    """Return whether any part of a value is unknown."""
    match value:
        case Unknown():
            return True
        case Mapping():
            return any(map(has_unknown, value.values()))
        case list() | tuple():
            return any(map(has_unknown, value))
    return False
