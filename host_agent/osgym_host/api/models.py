"""What clients send, checked at the edge."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[str, Field(min_length=1, max_length=128)]
Lease = Annotated[str, Field(min_length=1, max_length=128)]
Pixels = Annotated[int, Field(ge=1, le=16384)]
Offset = Annotated[int, Field(ge=0, le=16384)]
Seq = Annotated[int, Field(ge=1, le=2**53, strict=True)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SettleBody(_Body):
    """How to wait for the screen after the actions."""

    policy: Literal["exact", "fast", "fixed"] = "exact"
    quiet_ms: float | None = Field(default=None, ge=0, le=60_000)
    max_ms: float | None = Field(default=None, ge=0, le=600_000)
    pause_ms: float | None = Field(default=None, ge=0, le=600_000)


class ObserveBody(_Body):
    """What image to send."""

    format: Literal["png", "jpeg", "webp", "none"] = "png"
    quality: int | None = Field(default=None, ge=1, le=100)
    size: tuple[Pixels, Pixels] | None = None
    region: tuple[Offset, Offset, Pixels, Pixels] | None = None
    unless_hash: str | None = Field(default=None, max_length=128)


class CreateBody(_Body):
    """`POST /v1/episodes`."""

    request_id: Id
    task: dict[str, Any] | None = None
    wait_s: float = Field(default=60.0, ge=0)
    lease_ttl_s: float = Field(default=60.0, gt=0)
    max_steps: int | None = Field(default=None, ge=1)
    observe: ObserveBody | None = None
    settle: SettleBody | None = None
    checkpoint: Id | None = None


class ForkBody(_Body):
    """`POST /v1/episodes/{id}/fork`."""

    request_id: Id
    lease: Lease
    count: int = Field(ge=1, le=64, strict=True)
    lease_ttl_s: float | None = Field(default=None, gt=0)
    max_steps: int | None = Field(default=None, ge=1)
    wait_s: float = Field(default=10.0, ge=0)


class CheckpointBody(_Body):
    """`POST /v1/episodes/{id}/checkpoint`."""

    request_id: Id
    lease: Lease
    keep: bool = False
    ttl_s: float | None = Field(default=None, gt=0, le=10**9)


class StepBody(_Body):
    """`POST /v1/episodes/{id}/step`."""

    lease: Lease
    seq: Seq
    actions: list[str | dict[str, Any]] = Field(max_length=256)
    settle: SettleBody | None = None
    observe: ObserveBody | None = None


class BatchItem(StepBody):
    """One step of `POST /v1/steps`."""

    episode_id: Id


class BatchBody(_Body):
    """`POST /v1/steps`."""

    steps: list[BatchItem] = Field(min_length=1, max_length=4096)


class ObserveCall(_Body):
    """`POST /v1/episodes/{id}/observe`."""

    lease: Lease
    observe: ObserveBody | None = None


class FinalCall(_Body):
    """`POST /v1/episodes/{id}/final`."""

    lease: Lease
    seq: Seq
    timeout_ms: float = Field(ge=0, le=600_000)
    observe: ObserveBody | None = None


class EvaluateCall(_Body):
    """`POST /v1/episodes/{id}/evaluate`."""

    lease: Lease


class RenewBody(_Body):
    """`POST /v1/leases/renew`."""

    leases: list[Lease] = Field(max_length=65536)


class DrainBody(_Body):
    """`POST /v1/drain`."""

    deadline_s: float | None = Field(default=None, ge=0, le=10**6)


class ResetBody(BaseModel):
    """`POST /reset` of the OSGym API; `timeout` is an idle time to live in seconds."""

    task_config: dict[str, Any]
    timeout: int = Field(ge=1)


class OsgymStepBody(BaseModel):
    """`POST /step` of the OSGym API."""

    action: str
    vm_id: int = Field(strict=True)


class ShutdownBody(BaseModel):
    """`POST /shutdown` of the OSGym API."""

    vm_id: Annotated[int, Field(strict=True)] | Literal["all"]


def options(body: BaseModel | None) -> dict[str, Any] | None:
    """Returns what was set of settle or observe options, for the guest."""
    return None if body is None else body.model_dump(mode="json", exclude_none=True)
