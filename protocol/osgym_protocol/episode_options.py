"""Options of a new episode: their types, bounds and defaults. Callers and hosts pass them on whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from osgym_protocol.bounds import Count, Id, Seconds, Ttl
from osgym_protocol.clock import ClockOptions, ClockTime, parse_clock
from osgym_protocol.codec import OMIT, Request, WireFormatError
from osgym_protocol.limits import DEFAULT_LEASE_TTL_S, DEFAULT_WAIT_S
from osgym_protocol.options import ObserveOptions, SettleOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeOptions(Request):
    """Options of a new episode.

    Raises:
        WireFormatError: A value is out of bounds, or two options contradict each other.
    """

    task: Mapping[str, Any] | None = None
    """Task in OSWorld's format, set up before the episode begins; None gives a clean desktop."""
    wait_s: Seconds = DEFAULT_WAIT_S
    """Longest wait for a replica; a host cuts it to its own limit."""
    lease_ttl_s: Ttl = DEFAULT_LEASE_TTL_S
    """Time without a sign of the client after which the host takes the replica back."""
    max_steps: Count | None = None
    """Number of steps after which the host ends the episode; None sets no bound."""
    observe: ObserveOptions | None = None
    """Image that steps give unless they ask for another; None is a full-size PNG."""
    settle: SettleOptions | None = None
    """Wait for the screen that steps use unless they ask for another; None is ``exact``."""
    checkpoint: Id | None = field(default=None, metadata=OMIT)
    """Checkpoint to start from instead of a clean desktop and a task."""
    image: Id | None = field(default=None, metadata=OMIT)
    """Golden image, by flavor or digest; a host that serves another one refuses the episode."""
    strict_setup: bool = field(default=False, metadata=OMIT)
    """True refuses the episode if a command of the task's setup fails; else each failure is a warning."""
    clock: ClockOptions | ClockTime | None = field(default=None, metadata=OMIT)
    """Time that the desktop shows at the beginning; it takes precedence over the task's ``osgym.clock``."""
    run: Id | None = field(default=None, metadata=OMIT)
    """Name of the run that the episode belongs to, for people who look at it; branches keep it."""

    def __post_init__(self) -> None:
        self.check_bounds()
        parse_clock(self.clock)
        if self.clock is not None and self.checkpoint is not None:
            raise WireFormatError("clock: an episode that goes on from a checkpoint has that one's")
