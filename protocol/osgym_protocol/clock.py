"""Clock of a desktop: its time at the beginning of an episode, and whether it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Annotated, Any

from osgym_protocol.bounds import Bounds
from osgym_protocol.codec import Request, WireFormatError, known_fields
from osgym_protocol.limits import MAX_CLOCK_S, MIN_CLOCK_S

_START = re.compile(r"(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2})(:\d{2})?Z?", re.ASCII)
ClockTime = Annotated[str, Bounds(max_length=40)]


@dataclass(frozen=True, slots=True)
class ClockOptions(Request):
    """Wall clock of a desktop that differs from its host's.

    Attributes:
        start: Time at the episode's beginning, before the task's setup: ``2026-01-01T09:00`` or with seconds,
            in UTC, which is the images' time zone. From 2020 to 2099.
        frozen: The clock stays at its start; else it runs.

    Raises:
        WireFormatError: ``start`` is not such a time.
    """

    start: ClockTime
    frozen: bool = False

    def __post_init__(self) -> None:
        _ = self.start_ns

    @property
    def start_ns(self) -> int:
        """Return the time in nanoseconds since 1970."""
        found = _START.fullmatch(self.start)
        try:
            if found is None:
                raise ValueError("another form")
            day, minute, second = found.groups()
            at = datetime.fromisoformat(f"{day}T{minute}{second or ':00'}").replace(tzinfo=timezone.utc)
        except ValueError as exc:
            shown = self.start[:40]
            raise WireFormatError(f"clock.start must be a time like 2026-01-01T09:00, not {shown!r}") from exc
        seconds = int(at.timestamp())
        if not MIN_CLOCK_S <= seconds < MAX_CLOCK_S:
            raise WireFormatError(f"clock.start must be from 2020 to 2099, not {self.start}")
        return seconds * 10**9


def parse_clock(raw: Any) -> ClockOptions | None:
    """Parse the `clock` of a task or a request: a time, or an object with ``start`` and ``frozen``.

    Raises:
        WireFormatError: It is neither.
    """
    if raw is None or isinstance(raw, ClockOptions):
        return raw
    if isinstance(raw, str):
        return ClockOptions(raw)
    if not isinstance(raw, Mapping):
        raise WireFormatError("clock must be a time or an object with start and frozen")
    return ClockOptions.from_dict(known_fields(raw, ClockOptions.field_names(), "clock"))
