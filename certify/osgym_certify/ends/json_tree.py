"""Places in JSON values: read, replaced, removed and compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, NoReturn

MAX_DEPTH = 40
"""Nesting above which a text is not read: bookmarks of people nest less deeply."""
MAX_PLACES = 20_000

Path = tuple[str | int, ...]
"""Keys and indices that lead from the whole value to a place in it."""


class _Missing(Enum):
    MISSING = "missing"


MISSING: Final = _Missing.MISSING
"""Value of a place that does not exist."""


def parse(text: str) -> Any:
    """Return the value of a JSON text; `MISSING` if it is none, is too deep or big, or has a key twice."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # refuses half surrogate pairs
    except (ValueError, RecursionError):
        return MISSING
    level, count = [value], 0
    for _ in range(MAX_DEPTH):
        level = [one for holder in level if isinstance(holder, dict | list) for one in _values(holder)]
        count += len(level)
    return MISSING if level or count > MAX_PLACES else value


def _values(holder: Any) -> Any:
    return holder.values() if isinstance(holder, dict) else holder


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key is written twice")
    return made


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def get(value: Any, path: Path) -> Any:
    """Return what a place holds; `MISSING` if the value has no such place."""
    for key in path:
        if isinstance(value, dict) and isinstance(key, str):
            value = value.get(key, MISSING)
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return MISSING
    return value


def put(value: Any, path: Path, new: Any) -> Any:
    """Return the value with another content of a place; `MISSING` removes the place."""
    if not path:
        return new
    key, rest = path[0], path[1:]
    if isinstance(key, int):
        changed = put(value[key], rest, new)
        return [*value[:key], *([] if changed is MISSING else [changed]), *value[key + 1 :]]
    changed = put(value.get(key, MISSING), rest, new)
    if changed is MISSING:
        return {name: one for name, one in value.items() if name != key}
    return {**value, key: changed}


def leaves(value: Any, start: Path = ()) -> Iterator[Path]:
    """Yield the places of texts, numbers and truth values in a value that lies at a place."""
    for path, one in _walk(value, start):
        if isinstance(one, str | int | float):
            yield path


def lists(value: Any, start: Path = ()) -> Iterator[Path]:
    """Yield the places of lists in a value that lies at a place."""
    for path, one in _walk(value, start):
        if isinstance(one, list):
            yield path


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    yield path, value
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, one in entries:
        yield from _walk(one, (*path, key))


def changes(before: Any, after: Any, path: Path = ()) -> list[Path]:
    """Return the smallest places that differ: keys, and elements of lists of which one begins with the other.

    If a list lost or gained elements elsewhere, the place is the whole list.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        keys = dict.fromkeys([*before, *after])
        return [
            place
            for key in keys
            for place in changes(before.get(key, MISSING), after.get(key, MISSING), (*path, key))
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        common = [
            changes(one, other, (*path, index))
            for index, (one, other) in enumerate(zip(before, after, strict=False))
        ]
        if len(before) == len(after) or not any(common):
            added = [(*path, index) for index in range(len(before), len(after))]
            return [*(place for places in common for place in places), *added]
    return [] if type(before) is type(after) and before == after else [path]
