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
from dataclasses import dataclass
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


def bad_key(name: str, problem: str, fits: str = "") -> BadInput:
    """Return the error of a key's value."""
    return BadInput(full_key(name), problem, fits)


def text(name: str, value: object) -> str:
    """Read a line of text."""
    if not isinstance(value, str) or not value.strip() or len(value) > 2000 or not value.isprintable():
        raise bad_key(name, f"{short(value)} is not a text", "a line of text")
    return value.strip()


def matching(pattern: re.Pattern[str], fits: str) -> Reader:
    """Return a reader of lines that match a pattern; `fits` describes it to users."""

    def read(name: str, value: object) -> str:
        line = text(name, value)
        if not pattern.fullmatch(line):
            raise bad_key(name, f"{short(value)} does not fit", fits)
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
            raise bad_key(name, f"{short(value)} does not fit", f"a number {sign} {low:g} to {high:g} {unit}")
        return number

    return read


def integer(low: int, high: int, what: str) -> Reader:
    """Return a reader of whole numbers in a range, both ends included."""

    def read(name: str, value: object) -> int:
        text = str(value).strip()
        if isinstance(value, bool) or not re.fullmatch(r"\d{1,9}", text) or not low <= int(text) <= high:
            raise bad_key(name, f"{short(value)} does not fit", f"a whole number from {low} to {high} {what}")
        return int(text)

    return read


def choice(kind: type[StrEnum | TextEnum]) -> Reader:
    """Return a reader of members of an enum."""

    def read(name: str, value: object) -> StrEnum | TextEnum:
        text = str(value).strip().replace("-", "_") if kind is Market else str(value).strip()
        if text not in set(kind):
            shown = " | ".join(member.replace("_", "-") for member in kind)
            raise bad_key(name, f"{short(value)} does not fit", shown)
        return kind(text)

    return read


def flag(name: str, value: object) -> bool:
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise bad_key(name, f"{short(value)} does not fit", "true | false")


def items(name: str, value: object) -> Sequence[object]:
    """Read a list, or the JSON of one."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise bad_key(name, f"{short(value)} is not a list", '["…", "…"]') from error
    if not isinstance(value, list | tuple):
        raise bad_key(name, f"{short(value)} is not a list", '["…", "…"]')
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
            raise bad_key(name, f"{short(item)} is not a network: {error}", "e.g. 203.0.113.0/24") from error
        if network.prefixlen == 0:
            raise bad_key(name, f"{item} is the whole internet", "the networks your trainers run in")
        found.append(str(network))
    if not found:
        raise bad_key(name, "is empty", "the networks your trainers run in")
    return tuple(found)


def names(name: str, value: object) -> tuple[str, ...]:
    """Read host names, which may begin with `*.`."""
    found = tuple(str(item) for item in items(name, value))
    for item in found:
        if not ADDRESS.fullmatch(item.removeprefix("*.")):
            raise bad_key(name, f"{short(item)} is not a host name", "e.g. *.example.org")
    return found


def names_like(pattern: re.Pattern[str], fits: str) -> Reader:
    """Return a reader of lists of lines that match a pattern."""

    def read(name: str, value: object) -> tuple[str, ...]:
        line = matching(pattern, fits)
        return tuple(line(f"{name}[{index}]", item) for index, item in enumerate(items(name, value)))

    return read


def check_offered(name: str, value: int, least: int, most: int, what: str) -> None:
    """Raise `BadInput` for a value that a cloud does not offer."""
    if not least <= value <= most:
        raise bad_key(name, f"{value} is not offered", f"{least} to {most} {what}")


def short(value: object) -> str:
    """Return a value shortened for a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


MOST_HOSTS = 10_000


@dataclass(frozen=True, slots=True)
class CountOrPercent:
    """Number of hosts, or a percentage of all of them."""

    count: int = 0
    percent: int = 0

    def of(self, hosts: int) -> int:
        """Return the number for `hosts` hosts: at least 1, at most all, rounded down.

        Down, because it bounds what is away at a time (as Kubernetes' `maxUnavailable` does).
        """
        wanted = self.count or hosts * self.percent // 100
        return max(1, min(wanted, hosts))

    def __str__(self) -> str:
        return str(self.count) if self.count else f"{self.percent}%"


def count_or_percent(name: str, value: object) -> CountOrPercent:
    """Read a count (`3`) or a percentage (`25%`)."""
    found = re.fullmatch(r"(\d{1,5})(%?)", str(value).strip(), re.ASCII)
    number = int(found[1]) if found and not isinstance(value, bool) else 0
    is_percent = bool(found and found[2])
    if not 1 <= number <= (100 if is_percent else MOST_HOSTS):
        raise bad_key(name, f"{short(value)} does not fit", f"1 to {MOST_HOSTS} hosts, or 1% to 100%")
    return CountOrPercent(percent=number) if is_percent else CountOrPercent(count=number)


class TrajectoryDetail(StrEnum):
    """Detail in which a host records episodes (the host agent's setting `trajectory`)."""

    OFF = "off"
    STEPS = "steps"
    FRAMES = "frames"
