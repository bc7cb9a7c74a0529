"""Readers of single configuration values, from a key and a value to a typed value.

All raise `BadInput` with the key (in its namespace) as the field. Pure.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import math
import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

from osgym_infra.catalogue.shapes import Market
from osgym_infra.errors import BadInput
from osgym_protocol.codes import TextEnum

NAMESPACE = "osgym"
ADDRESS = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:_-]{0,251}[A-Za-z0-9])?")

Reader = Callable[[str, object], Any]


def full_key(name: str) -> str:
    """Return a key with its namespace, as users write it."""
    return f"{NAMESPACE}:{name}"


def text(name: str, value: object) -> str:
    """Read a line of text."""
    if not isinstance(value, str) or not value.strip() or len(value) > 2000 or not value.isprintable():
        raise BadInput(full_key(name), f"{short(value)} is not a text", "a line of text")
    return value.strip()


def matching(pattern: re.Pattern[str], fits: str) -> Reader:
    """Return a reader of lines that match a pattern; `fits` describes it to users."""

    def read(name: str, value: object) -> str:
        line = text(name, value)
        if not pattern.fullmatch(line):
            raise BadInput(full_key(name), f"{short(value)} does not fit", fits)
        return line

    return read


def number(low: float, high: float, unit: str, open_low: bool = True) -> Reader:
    """Return a reader of numbers in a range."""

    def read(name: str, value: object) -> float:
        try:
            number = float(value) if isinstance(value, str | int | float) else math.nan
        except ValueError:
            number = math.nan
        if isinstance(value, bool) or not (low < number if open_low else low <= number) or not number <= high:
            sign = "above" if open_low else "from"
            raise BadInput(
                full_key(name), f"{short(value)} does not fit", f"a number {sign} {low:g} to {high:g} {unit}"
            )
        return number

    return read


def integer(low: int, high: int, what: str) -> Reader:
    """Return a reader of whole numbers in a range, both ends included."""

    def read(name: str, value: object) -> int:
        text = str(value).strip()
        if isinstance(value, bool) or not re.fullmatch(r"\d{1,9}", text) or not low <= int(text) <= high:
            raise BadInput(
                full_key(name), f"{short(value)} does not fit", f"a whole number from {low} to {high} {what}"
            )
        return int(text)

    return read


def choice(kind: type[StrEnum | TextEnum]) -> Reader:
    """Return a reader of members of an enum."""

    def read(name: str, value: object) -> StrEnum | TextEnum:
        text = str(value).strip().replace("-", "_") if kind is Market else str(value).strip()
        if text not in set(kind):
            shown = " | ".join(member.replace("_", "-") for member in kind)
            raise BadInput(full_key(name), f"{short(value)} does not fit", shown)
        return kind(text)

    return read


def flag(name: str, value: object) -> bool:
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise BadInput(full_key(name), f"{short(value)} does not fit", "true | false")


def items(name: str, value: object) -> Sequence[object]:
    """Read a list, or the JSON of one."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise BadInput(full_key(name), f"{short(value)} is not a list", '["…", "…"]') from error
    if not isinstance(value, list | tuple):
        raise BadInput(full_key(name), f"{short(value)} is not a list", '["…", "…"]')
    return value


def json_object(value: object) -> object:
    """Parse the JSON of an object, as Pulumi passes objects; return anything else unchanged."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        with contextlib.suppress(ValueError):
            return json.loads(value)
    return value


def cidrs(name: str, value: object) -> tuple[str, ...]:
    """Read networks, none of which is the whole internet."""
    found = []
    for item in items(name, value):
        try:
            network = ipaddress.ip_network(str(item))
        except ValueError as error:
            raise BadInput(
                full_key(name), f"{short(item)} is not a network: {error}", "e.g. 203.0.113.0/24"
            ) from error
        if network.prefixlen == 0:
            raise BadInput(
                full_key(name), f"{item} is the whole internet", "the networks your trainers run in"
            )
        found.append(str(network))
    if not found:
        raise BadInput(full_key(name), "is empty", "the networks your trainers run in")
    return tuple(found)


def names(name: str, value: object) -> tuple[str, ...]:
    """Read host names, which may begin with `*.`."""
    found = tuple(str(item) for item in items(name, value))
    for item in found:
        if not ADDRESS.fullmatch(item.removeprefix("*.")):
            raise BadInput(full_key(name), f"{short(item)} is not a host name", "e.g. *.example.org")
    return found


def names_like(pattern: re.Pattern[str], fits: str) -> Reader:
    """Return a reader of lists of lines that match a pattern."""

    def read(name: str, value: object) -> tuple[str, ...]:
        line = matching(pattern, fits)
        return tuple(line(f"{name}[{index}]", item) for index, item in enumerate(items(name, value)))

    return read


def short(value: object) -> str:
    """Return a value shortened for a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
