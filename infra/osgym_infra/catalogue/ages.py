"""Ages of prices, and warnings about old and undated ones."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime

from osgym_infra.catalogue.rows import PriceSource
from osgym_infra.errors import BadInput

STALE_DAYS = 30
"""After so long a price is warned about: spot prices move daily, list prices about monthly."""


@dataclass(frozen=True, slots=True)
class Age:
    """Age of a source of figures; `days` is `None` for an undated source."""

    title: str
    as_of: date | None
    days: int | None

    @property
    def stale(self) -> bool:
        """Whether the source is old or undated."""
        return self.days is None or self.days > STALE_DAYS

    def __str__(self) -> str:
        if self.as_of is None:
            return f"{self.title}: undated"
        return f"{self.title}: as of {self.as_of.isoformat()}, {self.days} days old"


def ages(sources: Iterable[PriceSource], today: date) -> tuple[Age, ...]:
    """Return the ages of sources, each once: undated ones first, then the oldest."""
    found = {
        (s.title, s.as_of): Age(s.title, s.as_of, (today - s.as_of).days if s.as_of else None)
        for s in sources
    }
    return tuple(sorted(found.values(), key=lambda a: (a.as_of is not None, -(a.days or 0), a.title)))


def age_lines(sources: Iterable[PriceSource], now: date) -> tuple[list[str], list[str]]:
    """Return lines with the age of every source, and warnings for old and undated ones."""
    found = ages(sources, now)
    return [str(age) for age in found], [_warning(age) for age in found if age.stale]


def _warning(age: Age) -> str:
    old = "undated" if age.days is None else f"{age.days} days old"
    return f"{age.title} is {old}: check before you pay (osgym fleet catalogue refresh)"


def today() -> date:
    """Return today's date, or `$OSGYM_TODAY` (for examples and tests that must not grow old)."""
    if text := os.environ.get("OSGYM_TODAY"):
        try:
            return date.fromisoformat(text)
        except ValueError as error:
            raise BadInput("OSGYM_TODAY", f"{text!r} is not a date", "e.g. 2026-11-21") from error
    return datetime.now(UTC).date()
