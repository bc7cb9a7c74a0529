"""What describes an episode and its steps before they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from osgym_sdk._fleet.scheduler import Ticket
from osgym_sdk._inputs.reading import Reading
from osgym_sdk._models.recorder import Recorder
from osgym_sdk._tracing import RequestSpan
from osgym_sdk.wire import CreateRequest, ObserveOptions, StepRequest

if TYPE_CHECKING:
    from osgym_protocol.grammars import Parsed


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
    reading: Reading | None = None
    """How what steps are given is read; None: it is actions that the host knows."""
    recorder: Recorder | None = None
    task: Mapping[str, Any] | None = None
    """As it was given; a request that goes on from a checkpoint has none."""


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """A step that is about to be sent: it has its number, and ``started_s`` on the client's clock."""

    request: StepRequest
    options: ObserveOptions
    started_s: float
    parsed: Parsed | None = None
    """What was read, where a model's output was given."""
    info: Any = None
    """Of the :class:`Decision`, where one was given."""
    span: RequestSpan | None = None
    """None where nobody wants spans."""
