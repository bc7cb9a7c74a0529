"""Cache of task templates: the latest used ones, bounded in number and size. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

MAX_FAILURES = 2
"""Number of failures after which no template of a key is made."""
MAX_REMEMBERED = 4096
"""Number of keys whose failures are kept; those that failed longest ago are forgotten first."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TemplateBounds:
    """Bounds of all templates of a host."""

    max_count: int
    max_mib: float


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    value: T
    mib: float


class TemplateCache(Generic[T]):
    """Templates by key, least recently used first. The caller frees the templates that it returns."""

    def __init__(self, bounds: TemplateBounds) -> None:
        self._bounds = bounds
        self._kept: OrderedDict[str, _Kept[T]] = OrderedDict()
        self._failures: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: str) -> bool:
        """Return whether the key has a template, without counting that as a use."""
        return key in self._kept

    def used_mib(self) -> float:
        """Return the size of all templates."""
        return sum(kept.mib for kept in self._kept.values())

    def get(self, key: str) -> T | None:
        """Return the template of a key, or None, and mark it as the latest used."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        self._kept.move_to_end(key)
        return kept.value

    def fits(self, mib: float) -> bool:
        """Return whether one template of this size fits into the bounds."""
        return self._bounds.max_count > 0 and mib <= self._bounds.max_mib

    def put(self, key: str, value: T, mib: float) -> list[T]:
        """Keep a template; return those that it displaces, including an older one of its key.

        Raises:
            ValueError: It does not fit, not even alone (`fits`).
        """
        if not self.fits(mib):
            raise ValueError(f"a template of {mib:g} MiB does not fit")
        displaced = [older.value] if (older := self._kept.pop(key, None)) is not None else []
        while self._kept and (
            len(self._kept) >= self._bounds.max_count or self.used_mib() + mib > self._bounds.max_mib
        ):
            displaced.append(self._kept.popitem(last=False)[1].value)
        self._kept[key] = _Kept(value, mib)
        return displaced

    def drop(self, key: str, value: T) -> bool:
        """Remove this very template; return whether it was in the cache."""
        kept = self._kept.get(key)
        if kept is None or kept.value is not value:
            return False
        del self._kept[key]
        return True

    def clear(self) -> list[T]:
        """Remove and return all templates."""
        values = [kept.value for kept in self._kept.values()]
        self._kept.clear()
        return values

    def failed(self, key: str) -> None:
        """Count a failure to make or clone a template of this key."""
        self._failures[key] = self._failures.pop(key, 0) + 1
        while len(self._failures) > MAX_REMEMBERED:
            self._failures.popitem(last=False)

    def is_hopeless(self, key: str) -> bool:
        """Return whether templates of this key failed too often."""
        return self._failures.get(key, 0) >= MAX_FAILURES
