"""What clients send, checked at the edge."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from osgym_protocol import limits
from osgym_protocol.clock import ClockOptions, parse_clock
from osgym_protocol.codes import ImageFormat, SettlePolicy
from osgym_protocol.options import ObserveOptions, SettleOptions
from osgym_protocol.telemetry import TRACEPARENT

Id = Annotated[str, Field(min_length=1, max_length=limits.MAX_ID_CHARS)]
Lease = Annotated[str, Field(min_length=1, max_length=limits.MAX_ID_CHARS)]
ImageSide = Annotated[int, Field(ge=1, le=limits.MAX_IMAGE_SIDE_PX)]
ScreenSide = Annotated[int, Field(ge=1, le=limits.MAX_SCREEN_SIDE_PX)]
ScreenOffset = Annotated[int, Field(ge=0, le=limits.MAX_SCREEN_SIDE_PX)]
ActionItem = Annotated[
    Any, WithJsonSchema({"anyOf": [{"type": "string"}, {"additionalProperties": True, "type": "object"}]})
]
"""Checked where actions are parsed: what a policy got wrong is that step's `invalid_action`, not a malformed
request, and in `POST /v1/steps` no other step's fault."""
Seq = Annotated[int, Field(ge=1, le=limits.MAX_SEQ, strict=True)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SettleBody(_Body):
    """How to wait for the screen after the actions."""

    policy: SettlePolicy = SettlePolicy.EXACT
    quiet_ms: float | None = Field(default=None, ge=0, le=limits.MAX_QUIET_MS)
    max_ms: float | None = Field(default=None, ge=0, le=limits.MAX_DURATION_MS)
    pause_ms: float | None = Field(default=None, ge=0, le=limits.MAX_DURATION_MS)

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"policy": {"const": "fixed"}}, "required": ["policy"]},
            "then": {"properties": {"pause_ms": {"type": "number"}}, "required": ["pause_ms"]},
        }
    )

    @model_validator(mode="after")
    def _checked(self) -> Self:
        settle_options(self)
        return self


class ObserveBody(_Body):
    """What image to send."""

    format: ImageFormat = ImageFormat.PNG
    quality: int | None = Field(default=None, ge=1, le=limits.MAX_IMAGE_QUALITY)
    size: tuple[ImageSide, ImageSide] | None = None
    region: tuple[ScreenOffset, ScreenOffset, ScreenSide, ScreenSide] | None = None
    unless_hash: str | None = Field(default=None, max_length=limits.MAX_HASH_CHARS)


class ClockBody(_Body):
    """The desktop's time at the beginning, as `2026-01-01T09:00` in UTC."""

    start: str = Field(max_length=40)
    frozen: bool = False


class CreateBody(_Body):
    """`POST /v1/episodes`."""

    request_id: Id
    task: dict[str, Any] | None = None
    wait_s: float = Field(default=limits.DEFAULT_WAIT_S, ge=0)
    lease_ttl_s: float = Field(default=limits.DEFAULT_LEASE_TTL_S, gt=0)
    max_steps: int | None = Field(default=None, ge=1)
    observe: ObserveBody | None = None
    settle: SettleBody | None = None
    checkpoint: Id | None = None
    strict_setup: bool = False
    clock: ClockBody | Annotated[str, Field(max_length=40)] | None = None
    run: Id | None = None

    @model_validator(mode="after")
    def _checked(self) -> Self:
        clock_options(self.clock)
        if self.clock is not None and self.checkpoint is not None:
            raise ValueError("clock: an episode that goes on from a checkpoint has that one's")
        return self


class ForkBody(_Body):
    """`POST /v1/episodes/{id}/fork`."""

    request_id: Id
    lease: Lease
    count: int = Field(ge=1, le=limits.MAX_CHILDREN, strict=True)
    lease_ttl_s: float | None = Field(default=None, gt=0)
    max_steps: int | None = Field(default=None, ge=1)
    wait_s: float = Field(default=limits.DEFAULT_FORK_WAIT_S, ge=0)


class CheckpointBody(_Body):
    """`POST /v1/episodes/{id}/checkpoint`."""

    request_id: Id
    lease: Lease
    keep: bool = False
    ttl_s: float | None = Field(default=None, gt=0, le=limits.MAX_CHECKPOINT_TTL_S)


class StepBody(_Body):
    """`POST /v1/episodes/{id}/step`."""

    lease: Lease
    seq: Seq
    actions: list[ActionItem] = Field(json_schema_extra={"maxItems": limits.MAX_ACTIONS})
    settle: SettleBody | None = None
    observe: ObserveBody | None = None
    traceparent: Annotated[str, Field(pattern=f"^{TRACEPARENT}$")] | None = None
    note: Annotated[str, Field(max_length=limits.MAX_NOTE_CHARS)] | None = None


class BatchItem(StepBody):
    """One step of `POST /v1/steps`."""

    episode_id: Id


class BatchBody(_Body):
    """`POST /v1/steps`."""

    steps: list[BatchItem] = Field(min_length=1, max_length=limits.MAX_BATCH_STEPS)


class ObserveCall(_Body):
    """`POST /v1/episodes/{id}/observe`."""

    lease: Lease
    observe: ObserveBody | None = None


class FinalCall(_Body):
    """`POST /v1/episodes/{id}/final`."""

    lease: Lease
    seq: Seq
    timeout_ms: float = Field(ge=0, le=limits.MAX_DURATION_MS)
    observe: ObserveBody | None = None


class InterveneBody(_Body):
    """`POST /v1/replicas/{id}/intervene`; `session` is a name that the person's page makes up."""

    session: Id
    seq: Seq
    actions: list[ActionItem] = Field(json_schema_extra={"maxItems": limits.MAX_ACTIONS})
    settle: SettleBody | None = None
    observe: ObserveBody | None = None


class CopyBody(_Body):
    """`POST /v1/replicas/{id}/fork`."""

    request_id: Id
    lease_ttl_s: float | None = Field(default=None, gt=0)
    wait_s: float = Field(default=limits.DEFAULT_FORK_WAIT_S, ge=0)


class KeepBody(_Body):
    """`POST /v1/replicas/{id}/checkpoint`."""

    request_id: Id
    ttl_s: float | None = Field(default=None, gt=0, le=limits.MAX_CHECKPOINT_TTL_S)


class EvaluateCall(_Body):
    """`POST /v1/episodes/{id}/evaluate`."""

    lease: Lease


class RenewBody(_Body):
    """`POST /v1/leases/renew`."""

    leases: list[Lease] = Field(max_length=limits.MAX_RENEWED_LEASES)


class DrainBody(_Body):
    """`POST /v1/drain`."""

    deadline_s: float | None = Field(default=None, ge=0, le=limits.MAX_DRAIN_S)


class ResetBody(BaseModel):
    """`POST /reset` of the OSGym API; `timeout` is an idle time to live in seconds."""

    task_config: dict[str, Any]
    timeout: int = Field(ge=1)
    strict_setup: bool = False


class OsgymStepBody(BaseModel):
    """`POST /step` of the OSGym API."""

    action: str
    vm_id: int = Field(strict=True)


class ShutdownBody(BaseModel):
    """`POST /shutdown` of the OSGym API."""

    vm_id: Annotated[int, Field(strict=True)] | Literal["all"]


def settle_options(body: SettleBody | None) -> SettleOptions | None:
    """Return them as the protocol has them.

    Raises:
        WireFormatError: They contradict each other.
    """
    return None if body is None else SettleOptions(**dict(body))


def clock_options(body: ClockBody | str | None) -> ClockOptions | None:
    """Return it as the protocol has it.

    Raises:
        WireFormatError: It is not a time, or out of bounds.
    """
    return parse_clock(body.model_dump() if isinstance(body, ClockBody) else body)


def observe_options(body: ObserveBody | None) -> ObserveOptions | None:
    """Return them as the protocol has them."""
    return None if body is None else ObserveOptions(**dict(body))
