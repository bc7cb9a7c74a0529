"""Options of a new episode: their types, bounds and defaults. Callers and hosts pass them on whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from osgym_protocol.bounds import Count, Id, Seconds, Ttl
from osgym_protocol.clock import ClockOptions, ClockTime, parse_clock
from osgym_protocol.codec import OMIT, Request, WireFormatError
from osgym_protocol.codes import ThinkCharge, ThinkMode
from osgym_protocol.limits import DEFAULT_LEASE_TTL_S, DEFAULT_WAIT_S
from osgym_protocol.options import ObserveOptions, SettleOptions


class PlainOptions(TypedDict, total=False):
    """Options of a new episode that callers write as they are sent, as keyword arguments.

    They are those fields of :class:`EpisodeOptions`, which are documented here.
    """

    wait_s: float
    """Longest wait for a replica: 60 s by default, 600 s in batches and environments of the SDK. A host cuts
    it to its own limit."""
    lease_ttl_s: float
    """Time without a sign of the client after which the host takes the replica back; 60 s by default."""
    max_steps: int | None
    """Number of steps after which the host ends the episode: unbounded by default, 100 in batches and
    environments of the SDK."""
    image: str | None
    """Golden image, by flavor or digest; it takes precedence over the task's ``osgym.image``. A host that
    does not serve the image refuses the episode."""
    strict_setup: bool
    """True: a command of the task's setup that fails ends the start with SetupFailed. By default such a
    failure is one of ``trajectory.setup_warnings``."""
    think: ThinkMode | Literal["live", "paused"] | None
    """What the desktop does while the policy thinks: ``"live"``, it goes on, or ``"paused"``: between the
    answer of a call and the next call all of it stands still, its clocks included"""
    run: str | None
    """Name of the run that the episode belongs to, such as ``"grpo-7"``: the dashboard shows the episodes of
    a run together. Branches of the episode keep it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeOptions(Request):
    """Options of a new episode; :class:`PlainOptions` documents those that have no text here.

    Raises:
        WireFormatError: A value is out of bounds, or two options contradict each other.
    """

    task: Mapping[str, Any] | None = None
    """Task in OSWorld's format, set up before the episode begins; None gives a clean desktop."""
    wait_s: Seconds = DEFAULT_WAIT_S
    lease_ttl_s: Ttl = DEFAULT_LEASE_TTL_S
    max_steps: Count | None = None
    observe: ObserveOptions | None = None
    """Image that steps give unless they ask for another; None is a full-size PNG."""
    settle: SettleOptions | None = None
    """Wait for the screen that steps use unless they ask for another; None is ``exact``."""
    checkpoint: Id | None = field(default=None, metadata=OMIT)
    """Checkpoint to start from instead of a clean desktop and a task."""
    image: Id | None = field(default=None, metadata=OMIT)
    strict_setup: bool = field(default=False, metadata=OMIT)
    clock: ClockOptions | ClockTime | None = field(default=None, metadata=OMIT)
    """Time that the desktop shows at the beginning; it takes precedence over the task's ``osgym.clock``."""
    think: ThinkMode | None = field(default=None, metadata=OMIT)
    think_charge: ThinkCharge | None = field(default=None, metadata=OMIT)
    run: Id | None = field(default=None, metadata=OMIT)

    def __post_init__(self) -> None:
        self.check_bounds()
        parse_clock(self.clock)
        if self.think_charge is not None and self.think is not ThinkMode.PAUSED:
            raise WireFormatError('think_charge is for think="paused"')
        if self.clock is not None and self.checkpoint is not None:
            raise WireFormatError(
                "clock: an episode restored from a checkpoint keeps the checkpoint's clock; leave clock out"
            )
