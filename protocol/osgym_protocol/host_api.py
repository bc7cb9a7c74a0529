"""Messages of host API v1. Observations pass through as the guest made them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from osgym_protocol.bounds import Actions, Bounds, Count, DurationMs, Id, Seconds, Seq, Ttl
from osgym_protocol.codec import OMIT, Message, Request
from osgym_protocol.codes import Done, ErrorClass, Evidence
from osgym_protocol.episode_options import EpisodeOptions
from osgym_protocol.limits import (
    DEFAULT_FORK_WAIT_S,
    MAX_BATCH_STEPS,
    MAX_CHECKPOINT_TTL_S,
    MAX_CHILDREN,
    MAX_DRAIN_S,
    MAX_NOTE_CHARS,
    MAX_RENEWED_LEASES,
    MAX_THINK_S,
)
from osgym_protocol.observation import ErrorInfo, Observation
from osgym_protocol.options import FrameHash, ObserveOptions, SettleOptions
from osgym_protocol.telemetry import TRACEPARENT

_CheckpointTtl = Annotated[float, Bounds(gt=0, le=MAX_CHECKPOINT_TTL_S)]

LEASE_HEADER = "OSGym-Lease"
CLIENT_HEADER = "OSGym-Client"
"""Header with the client's name, at most ``MAX_ID_CHARS``; clients wait for replicas in fair turns."""


@dataclass(frozen=True, slots=True)
class Notice(Message):
    """Notice that a host will be taken away. It gives out no replicas, and running episodes should end.

    Some seconds before ``deadline`` (the host's ``drain_margin_s``) episodes that are still open end as lost,
    with the cause ``host_going``.
    """

    kind: str
    """``terminate``, ``stop``, ``hibernate`` (AWS), ``preempted``, ``maintenance`` (Google Cloud), or
    ``operator``. Open: a client must accept others."""
    deadline: float | None = None
    """Time at which the host goes, in Unix time (s); None: when no episode is open any more."""


@dataclass(frozen=True, slots=True)
class ParentInfo(Message):
    """Episode that an episode was branched from, and the last of its steps before that."""

    episode_id: str
    step: int
    checkpoint_id: str | None = field(default=None, metadata=OMIT)
    """Checkpoint that the episode was restored from, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRequest(EpisodeOptions):
    """``POST /v1/episodes``. Repeating ``request_id`` gives the same episode."""

    request_id: Id

    @classmethod
    def of(cls, request_id: str, options: EpisodeOptions) -> CreateRequest:
        chosen = {name: getattr(options, name) for name in EpisodeOptions.field_names()}
        return cls(request_id=request_id, **chosen)


@dataclass(frozen=True, slots=True)
class SetupWarning(Message):
    """A command of the task's setup failed, and the episode began all the same, as in OSWorld."""

    step: int
    """Index in the task's ``config``."""
    type: str
    what: str
    """Command, shortened."""
    exit_status: int
    stderr: str = ""
    """End of its standard error. Written in the replica: show it, never interpret it."""


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
    setup_warnings: tuple[SetupWarning, ...] = ()
    """Failures of the task's setup; ``strict_setup`` makes each of them a refusal."""
    template: str | None = field(default=None, metadata=OMIT)
    """Use of a task template: ``hit``, ``made``, ``no (reason)``; absent where templates are off."""
    warm_apps: tuple[str, ...] | None = field(default=None, metadata=OMIT)
    """Warm programs that the set-up used; absent where none ran in this replica."""
    notes: bool | None = field(default=None, metadata=OMIT)
    """The ``note`` of a step is kept; absent where nothing is recorded."""
    image_digest: str | None = field(default=None, metadata=OMIT)
    """Golden image of the desktop, one of ``images`` of ``GET /v1/host``; absent at older hosts."""


@dataclass(frozen=True, slots=True)
class StepRequest(Request):
    """``POST /v1/episodes/{id}/step``; ``seq`` counts from 1, and a repeated one acts only once."""

    lease: Id
    seq: Seq
    actions: Actions
    settle: SettleOptions | None = field(default=None, metadata=OMIT)
    observe: ObserveOptions | None = field(default=None, metadata=OMIT)
    traceparent: Annotated[str, Bounds(pattern=TRACEPARENT)] | None = field(default=None, metadata=OMIT)
    """Span that the spans of this step are children of."""
    note: Annotated[str, Bounds(max_length=MAX_NOTE_CHARS)] | None = field(default=None, metadata=OMIT)
    """Words of the policy, kept in the trajectory."""
    expects: FrameHash | None = field(default=None, metadata=OMIT)
    """``frame.hash`` of the observation that the actions were chosen for. If the screen shows another frame,
    nothing is done, and the answer's observation has ``screen_changed``."""
    think_s: Annotated[float, Bounds(ge=0, le=MAX_THINK_S)] | None = field(default=None, metadata=OMIT)
    """Time (s) by which the clocks of a desktop with ``think`` ``paused`` move for the thought before this
    step; None: as the episode's ``think_charge`` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStepItem(StepRequest):
    """One step of ``POST /v1/steps``."""

    episode_id: Id


@dataclass(frozen=True, slots=True)
class BatchStepRequest(Request):
    """``POST /v1/steps``."""

    steps: Annotated[tuple[BatchStepItem, ...], Bounds(min_length=1, max_length=MAX_BATCH_STEPS)]


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
    interventions: int | None = field(default=None, metadata=OMIT)
    """Number of actions of a person in this episode so far, where there were any."""


@dataclass(frozen=True, slots=True)
class EpisodeCall(Request):
    """Body of calls on an episode that have no arguments (``evaluate``, ``windows``)."""

    lease: Id


@dataclass(frozen=True, slots=True)
class ObserveRequest(Request):
    """``POST /v1/episodes/{id}/observe``."""

    lease: Id
    observe: ObserveOptions | None = field(default=None, metadata=OMIT)


@dataclass(frozen=True, slots=True)
class FinalRequest(Request):
    """``POST /v1/episodes/{id}/final``."""

    lease: Id
    seq: Seq
    timeout_ms: DurationMs
    observe: ObserveOptions | None = field(default=None, metadata=OMIT)


@dataclass(frozen=True, slots=True)
class EvaluationAnswer(Message):
    """Answer of an evaluation. ``reward`` is None if the check could not be made; then ``error`` says why.

    With the ``error_class`` ``policy``, the policy broke its desktop: the reward is 0 and valid.
    """

    reward: float | None
    termination_reason: str
    valid_for_training: bool
    details: tuple[Any, ...] = ()
    error: ErrorInfo | None = None
    error_class: ErrorClass | None = None
    loss: ErrorInfo | None = field(default=None, metadata=OMIT)
    """Error that ended the episode or its check because of the policy; present only with ``policy``."""
    evidence: Evidence | None = field(default=None, metadata=OMIT)
    """Source of the check's evidence; present if a check was made."""


@dataclass(frozen=True, slots=True)
class RenewRequest(Request):
    """``POST /v1/leases/renew``."""

    leases: Annotated[tuple[Id, ...], Bounds(max_length=MAX_RENEWED_LEASES)]


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
class ServedImage(Message):
    """One of the images that a host serves, with numbers of its replicas and of the clients that wait."""

    digest: str
    flavor: str
    ready: int
    leased: int
    starting: int
    waiting: int
    warm: int
    """Number of ready replicas that the host aims at."""


@dataclass(frozen=True, slots=True)
class HostCapacity(Message):
    """Numbers of replicas by their state. ``max_replicas`` is the bound that admission allows."""

    max_replicas: int
    ready: int
    leased: int
    starting: int = 0
    waiting: int = 0
    """Number of clients that wait for a replica."""
    paused: int = 0
    """Number of replicas that rest with their memory in place; 0 for an older host."""
    reclaimed: int = 0
    """Number of replicas that rest with their memory in swap."""


@dataclass(frozen=True, slots=True)
class HostLoad(Message):
    cpu_count: int
    load1: float
    ram_total_mib: float
    ram_available_mib: float
    disk_free_mib: float | None = field(default=None, metadata=OMIT)
    """Free space where replicas write; None: the host does not report it."""


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
    """Episodes can be forked and checkpointed here."""
    reach: tuple[str, ...] = ()
    """Ways to reach into a desktop that the host's guests offer (`ReachKind`)."""
    notice: Notice | None = field(default=None, metadata=OMIT)
    """Notice because of which the host drains."""
    notices: str = "off"
    """State of the watch for notices: ``off``, ``watching`` or ``failing``."""
    images: tuple[ServedImage, ...] = ()
    """All images of the host, the default one, ``image``, first. An older host, which has only that one,
    lists none."""


@dataclass(frozen=True, slots=True)
class EpisodeState(Message):
    """``GET /v1/episodes/{id}``."""

    episode_id: str
    replica_id: str
    generation: int
    state: str
    step: int
    last_seq: int = 0
    """Last sequence number that the host accepted, answered or not."""
    task_id: str | None = None
    evaluated: bool = False
    """Its evaluation has begun, which ends it: no step follows."""
    done: Done | None = None
    termination_reason: str | None = None
    error: ErrorInfo | None = None
    parent: ParentInfo | None = None
    notice: Notice | None = field(default=None, metadata=OMIT)
    image_digest: str | None = field(default=None, metadata=OMIT)
    """As in the answer of create."""


@dataclass(frozen=True, slots=True)
class ForkRequest(Request):
    """``POST /v1/episodes/{id}/fork``. Repeating ``request_id`` gives the same children."""

    request_id: Id
    lease: Id
    count: Annotated[int, Bounds(ge=1, le=MAX_CHILDREN, strict=True)]
    lease_ttl_s: Ttl | None = field(default=None, metadata=OMIT)
    """Time to live of the children's leases; None gives them the parent's."""
    max_steps: Count | None = field(default=None, metadata=OMIT)
    """Number of steps, counted from the parent's first, after which children end; None gives the parent's."""
    wait_s: Seconds = DEFAULT_FORK_WAIT_S
    """Longest wait for replicas for all children."""


@dataclass(frozen=True, slots=True)
class ForkChild(Message):
    """One child: an episode of its own that continues where the parent was."""

    episode_id: str
    lease: str
    replica_id: str
    generation: int
    screen: tuple[int, int]
    step: int
    last_seq: int
    parent: ParentInfo


@dataclass(frozen=True, slots=True)
class ForkAnswer(Message):
    """``pause_ms``: time for which the parent's desktop was paused."""

    parent: ParentInfo
    pause_ms: float
    children: tuple[ForkChild, ...]


@dataclass(frozen=True, slots=True)
class CheckpointRequest(Request):
    """``POST /v1/episodes/{id}/checkpoint``. Without ``keep`` or ``suspend`` it is deleted with the episode's
    lease."""

    request_id: Id
    lease: Id
    keep: bool = False
    ttl_s: _CheckpointTtl | None = field(default=None, metadata=OMIT)
    """Time after which the host deletes the checkpoint; None sets no such time."""
    suspend: bool = field(default=False, metadata=OMIT)
    """Keep the checkpoint and end the episode with it, as ``suspended``, before it does anything else."""


@dataclass(frozen=True, slots=True)
class CheckpointInfo(Message):
    """One checkpoint. Times are seconds since 1970."""

    checkpoint_id: str
    episode_id: str
    step: int
    kept: bool
    created_at: float
    expires_at: float | None
    ram_mib: float
    disk_mib: float
    pause_ms: float
    image_digest: str
    task_id: str | None = None
    suspended: bool = field(default=False, metadata=OMIT)
    """Its episode ended with it."""


@dataclass(frozen=True, slots=True)
class CheckpointList(Message):
    """``GET /v1/checkpoints``. ``max_mib`` bounds the kept ones."""

    checkpoints: tuple[CheckpointInfo, ...]
    used_mib: float
    max_mib: int


@dataclass(frozen=True, slots=True)
class InterveneRequest(Request):
    """``POST /v1/replicas/{id}/intervene``: what a person does between two steps of the policy."""

    session: Id
    """Name that the person's page makes up; ``seq`` counts from 1 in each."""
    seq: Seq
    actions: Actions
    settle: SettleOptions | None = field(default=None, metadata=OMIT)
    observe: ObserveOptions | None = field(default=None, metadata=OMIT)


@dataclass(frozen=True, slots=True)
class ReplicaForkRequest(Request):
    """``POST /v1/replicas/{id}/fork``: one child, for a person."""

    request_id: Id
    lease_ttl_s: Ttl | None = field(default=None, metadata=OMIT)
    wait_s: Seconds = DEFAULT_FORK_WAIT_S


@dataclass(frozen=True, slots=True)
class ReplicaCheckpointRequest(Request):
    """``POST /v1/replicas/{id}/checkpoint``: a checkpoint that is kept."""

    request_id: Id
    ttl_s: _CheckpointTtl | None = field(default=None, metadata=OMIT)


@dataclass(frozen=True, slots=True)
class DrainRequest(Request):
    """``POST /v1/drain``."""

    deadline_s: Annotated[float, Bounds(ge=0, le=MAX_DRAIN_S)] | None = field(default=None, metadata=OMIT)
    """Time until episodes that are still open end; None waits for their clients to end them."""
