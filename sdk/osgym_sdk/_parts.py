"""The parts of an episode that others make or hand on."""

from __future__ import annotations

from dataclasses import dataclass

from osgym_sdk._placing import Ticket
from osgym_sdk.wire import CreateRequest, ObserveOptions, StepRequest


@dataclass(frozen=True, slots=True)
class EpisodeOptions:
    """What the caller asked for; ``request`` is what goes to the host."""

    request: CreateRequest
    task_id: str | None
    keep_frames: bool
    reuse_frames: bool
    ticket: Ticket | None = None
    """Go on with this episode instead of making one."""
    host: str | None = None
    """Make it on this host only."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A step that is about to be sent: it has its number, and ``started_s`` on the client's clock."""

    request: StepRequest
    options: ObserveOptions
    started_s: float
