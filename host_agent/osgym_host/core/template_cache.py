"""Which task templates are kept: those used last, within a count and a size. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

MAX_FAILURES = 2
"""After so many failures no template of a key is made any more."""
MAX_REMEMBERED = 4096
"""Keys whose failures are remembered; those that failed longest ago are forgotten first."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TemplateBounds:
    """How much all templates of a host may be together."""

    max_count: int
    max_mib: float


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    value: T
    mib: float


class TemplateCache(Generic[T]):
    """Templates by their key, the one used longest ago first. What it gives back is the caller's to free."""

    def __init__(self, bounds: TemplateBounds) -> None:
        """Start empty."""
        self._bounds = bounds
        self._kept: OrderedDict[str, _Kept[T]] = OrderedDict()
        self._failures: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._kept)

    def __contains__(self, key: str) -> bool:
        """Return whether there is one of this key; that is no use of it."""
        return key in self._kept

    def used_mib(self) -> float:
        """Return how large all are together."""
        return sum(kept.mib for kept in self._kept.values())

    def get(self, key: str) -> T | None:
        """Return the template of a key, None without one. It is the one used last from now on."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        self._kept.move_to_end(key)
        return kept.value

    def fits(self, mib: float) -> bool:
        """Return whether one of this size could be kept, were it alone."""
        return self._bounds.max_count > 0 and mib <= self._bounds.max_mib

    def put(self, key: str, value: T, mib: float) -> list[T]:
        """Keep one; return those that it displaces, an older one of its key too.

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
        """Take out this very template; return whether it was still there."""
        kept = self._kept.get(key)
        if kept is None or kept.value is not value:
            return False
        del self._kept[key]
        return True

    def clear(self) -> list[T]:
        """Take out all and return them."""
        values = [kept.value for kept in self._kept.values()]
        self._kept.clear()
        return values

    def failed(self, key: str) -> None:
        """Note that a template of this key could not be made, or that a clone of it could not."""
        self._failures[key] = self._failures.pop(key, 0) + 1
        while len(self._failures) > MAX_REMEMBERED:
            self._failures.popitem(last=False)

    def is_hopeless(self, key: str) -> bool:
        """Return whether templates of this key failed too often to try again."""
        return self._failures.get(key, 0) >= MAX_FAILURES
