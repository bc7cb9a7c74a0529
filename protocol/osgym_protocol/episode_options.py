"""Options of a new episode: their types, bounds and defaults. Callers and hosts pass them on whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from osgym_protocol.clock import ClockOptions
from osgym_protocol.codec import OMIT, Message, WireFormatError
from osgym_protocol.limits import DEFAULT_LEASE_TTL_S, DEFAULT_WAIT_S, MAX_ID_CHARS
from osgym_protocol.options import ObserveOptions, SettleOptions

_NAME: dict[str, Any] = {**OMIT, "min_length": 1, "max_length": MAX_ID_CHARS}


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeOptions(Message):
    """Options of a new episode.

    The metadata of a field has its bounds under pydantic's names: ``ge``, ``gt``, ``min_length``,
    ``max_length``.

    Raises:
        WireFormatError: A value is out of bounds, or two options contradict each other.
    """

    task: Mapping[str, Any] | None = None
    """Task in OSWorld's format, set up before the episode begins; None gives a clean desktop."""
    wait_s: float = field(default=DEFAULT_WAIT_S, metadata={"ge": 0})
    """Longest wait for a replica; a host cuts it to its own limit."""
    lease_ttl_s: float = field(default=DEFAULT_LEASE_TTL_S, metadata={"gt": 0})
    """Time without a sign of the client after which the host takes the replica back."""
    max_steps: int | None = field(default=None, metadata={"ge": 1})
    """Number of steps after which the host ends the episode; None sets no bound."""
    observe: ObserveOptions | None = None
    """Image that steps give unless they ask for another; None is a full-size PNG."""
    settle: SettleOptions | None = None
    """Wait for the screen that steps use unless they ask for another; None is ``exact``."""
    checkpoint: str | None = field(default=None, metadata=_NAME)
    """Checkpoint to start from instead of a clean desktop and a task."""
    strict_setup: bool = field(default=False, metadata=OMIT)
    """True refuses the episode if a command of the task's setup fails; else each failure is a warning."""
    clock: ClockOptions | None = field(default=None, metadata=OMIT)
    """Time that the desktop shows at the beginning; it takes precedence over the task's ``osgym.clock``."""
    run: str | None = field(default=None, metadata=_NAME)
    """Name of the run that the episode belongs to, for people who look at it; branches keep it."""

    def __post_init__(self) -> None:
        for option in dataclasses.fields(self):
            _check(option.name, getattr(self, option.name), option.metadata)
        if self.clock is not None and self.checkpoint is not None:
            raise WireFormatError("clock: an episode that goes on from a checkpoint has that one's")


def _check(name: str, value: Any, bounds: Mapping[str, Any]) -> None:
    if value is None:
        return
    if "max_length" in bounds:
        if not isinstance(value, str) or not bounds["min_length"] <= len(value) <= bounds["max_length"]:
            raise WireFormatError(f"{name}: {value!r} is no name of 1 to {bounds['max_length']} characters")
    elif "ge" in bounds or "gt" in bounds:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise WireFormatError(f"{name} must be a number")
        if "ge" in bounds and not value >= bounds["ge"]:
            raise WireFormatError(f"{name} must be {bounds['ge']} or more")
        if "gt" in bounds and not value > bounds["gt"]:
            raise WireFormatError(f"{name} must be more than {bounds['gt']}")
