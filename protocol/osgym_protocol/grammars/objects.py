"""Strict reading of the JSON objects in which providers send actions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from osgym_protocol.grammars.base import (
    MAX_DEPTH,
    MAX_NODES,
    MAX_OUTPUT_CHARS,
    Builder,
    UnreadableAction,
    shown,
)
from osgym_protocol.grammars.chords import ChordError, listed_chord, split_chord
from osgym_protocol.grammars.space import Space
from osgym_protocol.limits import MAX_DURATION_MS, MAX_KEYS

_MISSING = object()
_PLAIN = (str, int, float, bool, type(None))
DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
"""Directions of a scroll as internal actions have them: to the right and down."""


def plain(value: Any, grammar: str) -> Any:
    """Return an output as dictionaries, lists and plain values.

    Objects of the providers' own SDKs are converted by their ``model_dump``; text is left alone.

    Raises:
        UnreadableAction: It holds something else, or is too deep or too large.
    """
    left = [MAX_NODES]

    def walk(item: Any, depth: int, path: str) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise UnreadableAction(grammar, f"the output has more than {MAX_NODES} parts")
        if depth > MAX_DEPTH:
            raise UnreadableAction(
                grammar, f"the output is nested more than {MAX_DEPTH} levels deep", position=path[:200]
            )
        if isinstance(item, str) and len(item) > MAX_OUTPUT_CHARS:
            why = f"a text has {len(item)} characters; at most {MAX_OUTPUT_CHARS} are allowed"
            raise UnreadableAction(grammar, why, position=path[:200])
        if type(item) is int and item.bit_length() > 1024:  # such numbers cannot even be shown
            raise UnreadableAction(grammar, "the number is too large", position=path[:200], read=shown(item))
        if isinstance(item, _PLAIN):
            return item
        dump = None if isinstance(item, (Mapping, Sequence)) else getattr(item, "model_dump", None)
        if callable(dump):
            item = dump(exclude_none=True, mode="json")
        if isinstance(item, Mapping):
            return {
                _name(key): walk(inner, depth + 1, f"{path[:200]}.{key[:40]}") for key, inner in item.items()
            }
        if isinstance(item, Sequence) and not isinstance(item, (bytes, bytearray)):
            return [walk(inner, depth + 1, f"{path[:200]}[{place}]") for place, inner in enumerate(item)]
        raise UnreadableAction(grammar, "it must be JSON", position=path[:200], read=shown(item))

    def _name(key: Any) -> str:
        if not isinstance(key, str):
            raise UnreadableAction(grammar, "the name of a field must be text", read=shown(key))
        return key

    return walk(value, 0, "")


def from_json(text: str, grammar: str, position: str = "") -> Any:
    """Parse a JSON text.

    Raises:
        UnreadableAction: It is not JSON, names a field twice, or is too long or too deep.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            raise ValueError("a field is given twice")
        return made

    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is not a number")

    if len(text) > MAX_OUTPUT_CHARS:
        why = f"the output has {len(text)} characters; at most {MAX_OUTPUT_CHARS} are allowed"
        raise UnreadableAction(grammar, why, position=position)
    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except RecursionError:
        raise UnreadableAction(grammar, "the output is nested too deep", position=position) from None
    except ValueError as exc:
        why = f"it must be JSON ({str(exc)[:120]})"
        raise UnreadableAction(grammar, why, position=position, read=shown(text)) from None


def objects_in(given: Any, path: str, what: str, to: Builder) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each object of a list with its position. A single object is a list of one.

    Args:
        given: List or object.
        path: Position in the output; empty: it is the output.
        what: Name of one object, with its article, for the error.
        to: Builder, whose grammar the error names.

    Raises:
        UnreadableAction: An item is no object.
    """
    for place, item in enumerate(given if isinstance(given, list) else [given]):
        at = f"{path}[{place}]" if isinstance(given, list) else path
        if not isinstance(item, dict):
            raise to.refuse(f"{what} must be an object", at, shown(item))
        yield at, item


class Fields:
    """Fields of one object; fields that nothing took are refused at the end. None counts as absent."""

    def __init__(self, raw: Any, path: str, to: Builder, what: str = "an action") -> None:
        self.path = path
        self._to = to
        if not isinstance(raw, Mapping):
            raise to.refuse(f"{what} must be an object", path, shown(raw))
        self._raw = {name: value for name, value in raw.items() if value is not None}
        self._known: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._raw

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def refuse(self, name: str, why: str, read: object = _MISSING, allowed: str = "") -> UnreadableAction:
        """Return the error for a field."""
        return self._to.refuse(why, self.at(name), "" if read is _MISSING else shown(read), allowed)

    def take(self, name: str, default: Any = _MISSING) -> Any:
        self._known.append(name)
        value = self._raw.pop(name, default)
        if value is _MISSING:
            others = ", ".join(map(shown, list(self._raw)[:3]))
            raise self.refuse(name, f"the field {name!r} is missing{others and f'; given: {others}'}")
        return value

    def text(self, name: str, default: Any = _MISSING) -> str:
        value = self.take(name, default)
        if not isinstance(value, str):
            raise self.refuse(name, "it must be text", value)
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return a field that is true or false."""
        value = self.take(name, default)
        if not isinstance(value, bool):
            raise self.refuse(name, "it must be true or false", value)
        return value

    def number(self, name: str, low: float, high: float, default: Any = _MISSING) -> float:
        """Return a field that is a number within bounds."""
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise self.refuse(name, f"it must be a number from {low:g} to {high:g}", value)
        return value

    def whole(self, name: str, low: int, high: int, default: Any = _MISSING) -> int:
        """Return a field that is a whole number within bounds; 2.0 is one."""
        value = self.number(name, low, high, default)
        if value != int(value):
            raise self.refuse(name, "it must be a whole number", value)
        return int(value)

    def seconds_ms(self, name: str, default: Any = _MISSING) -> float:
        """Return a field in seconds as milliseconds."""
        return self.number(name, 0, MAX_DURATION_MS / 1000, default) * 1000

    def choice(self, name: str, options: Sequence[str], default: Any = _MISSING) -> str:
        """Return a field that is one of a few words."""
        value = self.take(name, default)
        if not isinstance(value, str) or value not in options:
            raise self.refuse(name, "unknown value", value, ", ".join(options))
        return value

    def keys(self, name: str, default: Any = _MISSING) -> list[str]:
        """Return a field with a chord: a list of keys, or text such as ``ctrl+s``."""
        value = self.take(name, default)
        if not isinstance(value, (str, list)):
            raise self.refuse(name, f"it must be a list of 1 to {MAX_KEYS} keys", value)
        try:
            return split_chord(value) if isinstance(value, str) else listed_chord(value)
        except ChordError as exc:
            read = ", ".join(map(str, value[: MAX_KEYS + 1])) if isinstance(value, list) else value
            raise self.refuse(name, str(exc), read) from None

    def modifiers(self, name: str) -> list[str] | None:
        """Return a field with keys to hold meanwhile, or None."""
        value = self.take(name, None)
        if value is None or value == [] or value == "":
            return None
        self._raw[name] = value
        return self.keys(name)

    def pixel(self, space: Space, x: str = "x", y: str = "y", needed: bool = True) -> tuple[int, int] | None:
        """Return the pixel that two fields name; None when both are absent and need not be there."""
        if not needed and x not in self._raw and y not in self._raw:
            self._known += [x, y]
            return None
        at = self.take(x), self.take(y)
        return self._on(space, x, at)

    def pair(self, name: str, space: Space, needed: bool = True) -> tuple[int, int] | None:
        """Return the pixel that a field ``[x, y]`` names."""
        value = self.take(name, _MISSING if needed else None)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != 2:
            raise self.refuse(name, "a point must be [x, y]", value)
        return self._on(space, name, (value[0], value[1]))

    def point(self, name: str, space: Space) -> tuple[int, int]:
        """Return the pixel that a field ``[x, y]`` names, which must be there."""
        at = self.pair(name, space)
        assert at is not None
        return at

    def points(self, name: str, space: Space, most: int) -> list[list[int]]:
        """Return the pixels of a path; its points are ``{"x", "y"}`` or ``[x, y]``."""
        value = self.take(name)
        if not isinstance(value, list) or not 2 <= len(value) <= most:
            raise self.refuse(name, f"it must be a list of 2 to {most} points", value)
        path = []
        for place, item in enumerate(value):
            if isinstance(item, Mapping) and set(item) == {"x", "y"}:
                at = item["x"], item["y"]
            elif isinstance(item, list) and len(item) == 2:
                at = item[0], item[1]
            else:
                raise self.refuse(f"{name}[{place}]", "a point must have x and y", item)
            path.append(list(self._on(space, f"{name}[{place}]", at)))
        return path

    def _on(self, space: Space, name: str, at: tuple[Any, Any]) -> tuple[int, int]:
        pixel = space.pixel(*at)
        if pixel is None:
            read = f"({shown(at[0])}, {shown(at[1])})"
            raise self._to.refuse(space.why(*at), self.at(name), read, space.allowed())
        return pixel

    def finish(self) -> None:
        """Check that nothing is left. Raises UnreadableAction if a field is unknown."""
        if self._raw:
            name = next(iter(self._raw))
            raise self.refuse(
                name[:40],
                f"unknown field {shown(name)}",
                allowed=", ".join(dict.fromkeys(self._known)),
            )


def xy(at: tuple[int, int] | None) -> dict[str, int]:
    """Return the fields of an action for a point, or none."""
    return {} if at is None else {"x": at[0], "y": at[1]}
