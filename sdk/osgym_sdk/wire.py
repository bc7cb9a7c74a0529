"""Host API v1: the messages, the error codes and the framing of records. Standard library only.

The one definition that client and host share. JSON objects are frozen dataclasses with ``from_dict``
and ``to_dict``; frames travel in records (``u32 meta_len, u32 blob_len, meta JSON, blob``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from osgym_sdk._codec import OMIT, Message, WireFormatError
from osgym_sdk._codes import (
    Done,
    ErrorClass,
    ErrorCode,
    ImageFormat,
    SettlePolicy,
    SettleReason,
    TerminationReason,
)
from osgym_sdk._forks import (
    CheckpointInfo,
    CheckpointList,
    CheckpointRequest,
    ForkAnswer,
    ForkChild,
    ForkRequest,
    ParentInfo,
)
from osgym_sdk._framing import (
    MAX_BLOB_BYTES,
    MAX_META_BYTES,
    Record,
    RecordDecoder,
    decode_record,
    encode_record,
)
from osgym_sdk._notices import Notice

__all__ = [
    "LEASE_HEADER",
    "MAX_BLOB_BYTES",
    "MAX_META_BYTES",
    "RECORDS_TYPE",
    "ActionResult",
    "BatchStepItem",
    "BatchStepRequest",
    "CheckpointInfo",
    "CheckpointList",
    "CheckpointRequest",
    "CreateAnswer",
    "CreateRequest",
    "Done",
    "EpisodeCall",
    "EpisodeState",
    "ErrorClass",
    "ErrorCode",
    "ErrorInfo",
    "EvaluationAnswer",
    "FinalRequest",
    "ForkAnswer",
    "ForkChild",
    "ForkRequest",
    "FrameInfo",
    "HostCapacity",
    "HostImage",
    "HostLoad",
    "HostState",
    "ImageFormat",
    "LostLease",
    "Message",
    "Notice",
    "Observation",
    "ObserveOptions",
    "ObserveRequest",
    "ParentInfo",
    "PreviousFrame",
    "Record",
    "RecordDecoder",
    "RenewAnswer",
    "RenewRequest",
    "SettleInfo",
    "SettleOptions",
    "SettlePolicy",
    "SettleReason",
    "StepAnswer",
    "StepRequest",
    "TerminationReason",
    "WireFormatError",
    "decode_record",
    "encode_record",
]

RECORDS_TYPE = "application/x-osgym-records"
LEASE_HEADER = "OSGym-Lease"


@dataclass(frozen=True, slots=True)
class ErrorInfo(Message):
    """The body of every error answer."""

    code: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SettleOptions(Message):
    """How to wait for the screen after the actions; unset fields are the policy's own."""

    policy: SettlePolicy = SettlePolicy.EXACT
    quiet_ms: float | None = field(default=None, metadata=OMIT)
    max_ms: float | None = field(default=None, metadata=OMIT)
    pause_ms: float | None = field(default=None, metadata=OMIT)


@dataclass(frozen=True, slots=True)
class ObserveOptions(Message):
    """What image to send; ``size`` is ``(width, height)``, ``region`` is ``(x, y, width, height)`` px."""

    format: ImageFormat = ImageFormat.PNG
    quality: int | None = field(default=None, metadata=OMIT)
    size: tuple[int, int] | None = field(default=None, metadata=OMIT)
    region: tuple[int, int, int, int] | None = field(default=None, metadata=OMIT)
    unless_hash: str | None = field(default=None, metadata=OMIT)


@dataclass(frozen=True, slots=True)
class ActionResult(Message):
    """What became of one action of a step; actions after a failed one are absent."""

    ok: bool
    op: str
    error: ErrorInfo | None = field(default=None, metadata=OMIT)


@dataclass(frozen=True, slots=True)
class SettleInfo(Message):
    """How the wait ended. ``last_change_ms`` counts from the last action; None: nothing changed."""

    policy: SettlePolicy
    reason: SettleReason
    wait_ms: float
    last_change_ms: float | None = None


@dataclass(frozen=True, slots=True)
class FrameInfo(Message):
    """The image of an observation: ``width`` × ``height`` as sent, ``screen`` as it is."""

    hash: str
    format: ImageFormat
    width: int
    height: int
    screen: tuple[int, int]
    unchanged: bool = False
    t_ms: float | None = None


@dataclass(frozen=True, slots=True)
class PreviousFrame(Message):
    """What the watch saw of step ``seq`` after its answer had gone out."""

    seq: int
    final: bool
    changed_after_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Observation(Message):
    """Meta of a frame, as the guest made it (ARCHITECTURE.md, record meta of a step)."""

    frame: FrameInfo
    seq: int = 0
    replayed: bool = False
    results: tuple[ActionResult, ...] = ()
    failed_index: int | None = None
    settle: SettleInfo | None = None
    previous: PreviousFrame | None = None
    final: bool | None = field(default=None, metadata=OMIT)
    timing_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateRequest(Message):
    """``POST /v1/episodes``. Repeating ``request_id`` gives the same episode."""

    request_id: str
    task: Mapping[str, Any] | None = None
    wait_s: float = 60.0
    lease_ttl_s: float = 60.0
    max_steps: int | None = None
    observe: ObserveOptions | None = None
    settle: SettleOptions | None = None
    checkpoint: str | None = field(default=None, metadata=OMIT)
    """Go on from this checkpoint instead of a fresh desktop; then without a task."""


@dataclass(frozen=True, slots=True)
class CreateAnswer(Message):
    """Record meta of ``POST /v1/episodes``. ``step`` and ``last_seq`` are 0 for a fresh desktop."""

    episode_id: str
    lease: str
    replica_id: str
    generation: int
    screen: tuple[int, int]
    observation: Observation
    timing_ms: Mapping[str, float] = field(default_factory=dict)
    step: int = 0
    last_seq: int = 0
    parent: ParentInfo | None = None


@dataclass(frozen=True, slots=True)
class StepRequest(Message):
    """``POST /v1/episodes/{id}/step``; ``seq`` counts from 1, a repeated one acts no second time."""

    lease: str
    seq: int
    actions: tuple[Any, ...]
    settle: SettleOptions | None = field(default=None, metadata=OMIT)
    observe: ObserveOptions | None = field(default=None, metadata=OMIT)


@dataclass(frozen=True, slots=True)
class BatchStepItem(Message):
    """One step of ``POST /v1/steps``."""

    episode_id: str
    lease: str
    seq: int
    actions: tuple[Any, ...]
    settle: SettleOptions | None = field(default=None, metadata=OMIT)
    observe: ObserveOptions | None = field(default=None, metadata=OMIT)


@dataclass(frozen=True, slots=True)
class BatchStepRequest(Message):
    """``POST /v1/steps``."""

    steps: tuple[BatchStepItem, ...]


@dataclass(frozen=True, slots=True)
class StepAnswer(Message):
    """Record meta of a step. In ``POST /v1/steps``: with ``index``, or ``index`` and ``error`` only."""

    observation: Observation | None = None
    step: int = 0
    actions: tuple[Mapping[str, Any], ...] = ()
    done: Done | None = None
    timing_ms: Mapping[str, float] = field(default_factory=dict)
    index: int | None = field(default=None, metadata=OMIT)
    error: ErrorInfo | None = field(default=None, metadata=OMIT)
    notice: Notice | None = field(default=None, metadata=OMIT)


@dataclass(frozen=True, slots=True)
class EpisodeCall(Message):
    """Body of calls that carry the lease only (evaluate)."""

    lease: str


@dataclass(frozen=True, slots=True)
class ObserveRequest(Message):
    """``POST /v1/episodes/{id}/observe``."""

    lease: str
    observe: ObserveOptions | None = field(default=None, metadata=OMIT)


@dataclass(frozen=True, slots=True)
class FinalRequest(Message):
    """``POST /v1/episodes/{id}/final``."""

    lease: str
    seq: int
    timeout_ms: float
    observe: ObserveOptions | None = field(default=None, metadata=OMIT)


@dataclass(frozen=True, slots=True)
class EvaluationAnswer(Message):
    """``reward`` is None whenever the check could not be made; then ``error`` says why."""

    reward: float | None
    termination_reason: str
    valid_for_training: bool
    details: tuple[Any, ...] = ()
    error: ErrorInfo | None = None
    error_class: ErrorClass | None = None


@dataclass(frozen=True, slots=True)
class RenewRequest(Message):
    """``POST /v1/leases/renew``."""

    leases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LostLease(Message):
    lease: str
    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class RenewAnswer(Message):
    renewed: tuple[str, ...] = ()
    lost: tuple[LostLease, ...] = ()
    notice: Notice | None = field(default=None, metadata=OMIT)


@dataclass(frozen=True, slots=True)
class HostImage(Message):
    digest: str
    flavor: str


@dataclass(frozen=True, slots=True)
class HostCapacity(Message):
    """Replicas by what they do now. ``max_replicas`` is what admission allows in all."""

    max_replicas: int
    ready: int
    leased: int
    starting: int = 0
    waiting: int = 0
    """Clients that wait for a replica."""


@dataclass(frozen=True, slots=True)
class HostLoad(Message):
    cpu_count: int
    load1: float
    ram_total_mib: float
    ram_available_mib: float


@dataclass(frozen=True, slots=True)
class HostState(Message):
    """``GET /v1/host``."""

    host_id: str
    version: str
    runtime: str
    image: HostImage
    screen: tuple[int, int]
    capacity: HostCapacity
    load: HostLoad
    draining: bool = False
    branching: bool = False
    """Whether episodes can be forked and checkpointed here."""
    notice: Notice | None = field(default=None, metadata=OMIT)
    """Why it drains."""
    notices: str = "off"
    """Whether notices are watched for: ``off``, ``watching`` or ``failing``."""


@dataclass(frozen=True, slots=True)
class EpisodeState(Message):
    """``GET /v1/episodes/{id}``."""

    episode_id: str
    replica_id: str
    generation: int
    state: str
    step: int
    last_seq: int = 0
    """The last sequence number that the host accepted, answered or not."""
    task_id: str | None = None
    done: Done | None = None
    termination_reason: str | None = None
    error: ErrorInfo | None = None
    parent: ParentInfo | None = None
    notice: Notice | None = field(default=None, metadata=OMIT)
