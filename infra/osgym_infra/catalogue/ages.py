"""Ages of prices, and warnings about old and undated ones."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, date, datetime

from osgym_infra.catalogue.rows import PriceSource
from osgym_infra.errors import BadInput

STALE_DAYS = 30
"""After so long a price is warned about: spot prices move daily, list prices about monthly."""


def age_lines(sources: Iterable[PriceSource], now: date) -> tuple[list[str], list[str]]:
    """Return the ages of sources, undated and old ones first, and warnings for those that are stale."""
    lines, warnings = [], []
    for source in sorted(
        {PriceSource(one.title, one.as_of) for one in sources},
        key=lambda one: (one.as_of or date.min, one.title),
    ):
        if source.as_of is None:
            lines.append(f"{source.title}: undated")
            old = "undated"
        else:
            days = (now - source.as_of).days
            lines.append(f"{source.title}: as of {source.as_of.isoformat()}, {days} days old")
            old = f"{days} days old" if days > STALE_DAYS else ""
        if old:
            warnings.append(
                f"{source.title} is {old}: check the prices before you pay (osgym fleet catalogue refresh)"
            )
    return lines, warnings


def today() -> date:
    """Return today's date, or `$OSGYM_TODAY` (for examples and tests that must not grow old)."""
    if text := os.environ.get("OSGYM_TODAY"):
        try:
            return date.fromisoformat(text)
        except ValueError as error:
            raise BadInput("OSGYM_TODAY", f"{text!r} is not a date", "e.g. 2026-11-21") from error
    return datetime.now(UTC).date()
