"""Answer to a step or a look: results, end of the wait, and frame. Guest, host and client share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from osgym_protocol.codec import OMIT, Message
from osgym_protocol.codes import ImageFormat, SettlePolicy, SettleReason
from osgym_protocol.records import record_head


@dataclass(frozen=True, slots=True)
class ErrorInfo(Message):
    """Body of every error answer."""

    code: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ActionResult(Message):
    """Result of one action of a step; actions after a failed one are absent."""

    ok: bool
    op: str
    error: ErrorInfo | None = field(default=None, metadata=OMIT)


@dataclass(frozen=True, slots=True)
class SettleInfo(Message):
    """End of a wait. ``last_change_ms`` counts from the last action; None: nothing changed."""

    policy: SettlePolicy
    reason: SettleReason
    wait_ms: float
    last_change_ms: float | None = None


@dataclass(frozen=True, slots=True)
class FrameInfo(Message):
    """Image of an observation: ``width`` × ``height`` as sent, ``screen`` as it is."""

    hash: str
    format: ImageFormat
    width: int
    height: int
    screen: tuple[int, int]
    unchanged: bool = False
    t_ms: float | None = None


@dataclass(frozen=True, slots=True)
class PreviousFrame(Message):
    """Report of the watch about step ``seq`` after its answer."""

    seq: int
    final: bool
    changed_after_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Observation(Message):
    """Meta of a frame, as the guest made it (docs/protocol.md, Steps).

    `final` is present in the answer to `final`, and in that of a step that settled by `certain`.
    `screen_changed` is present where the screen was not the one that a step expected: nothing was done.
    """

    frame: FrameInfo
    seq: int = 0
    replayed: bool = False
    screen_changed: bool = field(default=False, metadata=OMIT)
    results: tuple[ActionResult, ...] = ()
    failed_index: int | None = None
    settle: SettleInfo | None = None
    previous: PreviousFrame | None = None
    final: bool | None = field(default=None, metadata=OMIT)
    timing_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ObservedFrame:
    """An observation and its image; `image` is empty when unchanged or not asked for."""

    observation: Observation
    image: bytes | memoryview = field(repr=False)

    def record(self) -> tuple[bytes, bytes | memoryview]:
        """Return it as a record in two parts, so that the image need not be copied."""
        return record_head(self.observation.to_dict(), len(self.image)), self.image

    def replayed(self) -> ObservedFrame:
        """Return a copy that is marked as a repeated answer."""
        return replace(self, observation=replace(self.observation, replayed=True))
