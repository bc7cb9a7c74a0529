"""Host API v1: what clients ask of a host, and what it answers. An observation is as the guest made it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from osgym_protocol.codec import OMIT, Message
from osgym_protocol.codes import Done, ErrorClass, Evidence
from osgym_protocol.episode_options import EpisodeOptions
from osgym_protocol.limits import DEFAULT_FORK_WAIT_S
from osgym_protocol.observation import ErrorInfo, Observation
from osgym_protocol.options import ObserveOptions, SettleOptions

LEASE_HEADER = "OSGym-Lease"
CLIENT_HEADER = "OSGym-Client"
"""A name that a client gives itself, at most ``MAX_ID_CHARS``: clients that wait for replicas take turns."""


@dataclass(frozen=True, slots=True)
class Notice(Message):
    """A host will be taken away: it gives out no replicas, and running episodes should come to their end.

    Some seconds before ``deadline`` (the host's ``drain_margin_s``) episodes that are still open end as
    lost, with the cause ``host_going``.
    """

    kind: str
    """``terminate``, ``stop``, ``hibernate`` (AWS), ``preempted``, ``maintenance`` (Google Cloud), or
    ``operator``. Open: a client must accept others."""
    deadline: float | None = None
    """When the host goes, in Unix time (s); None: when no episode is open any more."""


@dataclass(frozen=True, slots=True)
class ParentInfo(Message):
    """What an episode was branched from, and after which of its steps."""

    episode_id: str
    step: int
    checkpoint_id: str | None = field(default=None, metadata=OMIT)
    """Set where it was restored from a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRequest(EpisodeOptions):
    """``POST /v1/episodes``. Repeating ``request_id`` gives the same episode."""

    request_id: str

    @classmethod
    def of(cls, request_id: str, options: EpisodeOptions) -> CreateRequest:
        """Return the request for an episode with these options."""
        chosen = {name: getattr(options, name) for name in EpisodeOptions.field_names()}
        return cls(request_id=request_id, **chosen)


@dataclass(frozen=True, slots=True)
class SetupWarning(Message):
    """A command of the task's setup failed, and the episode began all the same, as in OSWorld."""

    step: int
    """Index in the task's ``config``."""
    type: str
    what: str
    """The command, shortened."""
    exit_status: int
    stderr: str = ""
    """The end of what it wrote there. Written in the replica: show it, never interpret it."""


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
    """What went wrong in the task's setup; ``strict_setup`` makes each of them a refusal."""
    template: str | None = field(default=None, metadata=OMIT)
    """Whether a task template was used: ``hit``, ``made``, ``no (reason)``; absent where they are off."""
    warm_apps: tuple[str, ...] | None = field(default=None, metadata=OMIT)
    """Programs that ran before the set-up and that it used; absent where none ran in this replica."""
    notes: bool | None = field(default=None, metadata=OMIT)
    """Whether the ``note`` of a step is kept; absent where nothing is recorded."""


@dataclass(frozen=True, slots=True)
class StepRequest(Message):
    """``POST /v1/episodes/{id}/step``; ``seq`` counts from 1, a repeated one acts no second time."""

    lease: str
    seq: int
    actions: tuple[Any, ...]
    settle: SettleOptions | None = field(default=None, metadata=OMIT)
    observe: ObserveOptions | None = field(default=None, metadata=OMIT)
    traceparent: str | None = field(default=None, metadata=OMIT)
    note: str | None = field(default=None, metadata=OMIT)
    """What the policy said, for the trajectory: at most ``MAX_NOTE_CHARS``."""


@dataclass(frozen=True, slots=True)
class BatchStepItem(Message):
    """One step of ``POST /v1/steps``."""

    episode_id: str
    lease: str
    seq: int
    actions: tuple[Any, ...]
    settle: SettleOptions | None = field(default=None, metadata=OMIT)
    observe: ObserveOptions | None = field(default=None, metadata=OMIT)
    traceparent: str | None = field(default=None, metadata=OMIT)
    note: str | None = field(default=None, metadata=OMIT)


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
    interventions: int | None = field(default=None, metadata=OMIT)
    """How often a person acted in this episode so far, where one did."""


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
    disk_free_mib: float | None = field(default=None, metadata=OMIT)
    """Where replicas write; None: the host does not say."""


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
    reach: tuple[str, ...] = ()
    """The ways to reach into a desktop that its guests offer (`ReachKind`)."""
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
    evaluated: bool = False
    """Whether its evaluation has begun, which ends it: no step follows."""
    done: Done | None = None
    termination_reason: str | None = None
    error: ErrorInfo | None = None
    parent: ParentInfo | None = None
    notice: Notice | None = field(default=None, metadata=OMIT)


@dataclass(frozen=True, slots=True)
class ForkRequest(Message):
    """``POST /v1/episodes/{id}/fork``. Repeating ``request_id`` gives the same children."""

    request_id: str
    lease: str
    count: int
    lease_ttl_s: float | None = field(default=None, metadata=OMIT)
    """The parent's unless set."""
    max_steps: int | None = field(default=None, metadata=OMIT)
    """The parent's unless set; counts from the parent's first step."""
    wait_s: float = DEFAULT_FORK_WAIT_S
    """How long to wait for room for all of them."""


@dataclass(frozen=True, slots=True)
class ForkChild(Message):
    """One child: an episode of its own that goes on where the parent was."""

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
    """``pause_ms``: how long the parent's desktop stood still."""

    parent: ParentInfo
    pause_ms: float
    children: tuple[ForkChild, ...]


@dataclass(frozen=True, slots=True)
class CheckpointRequest(Message):
    """``POST /v1/episodes/{id}/checkpoint``. Without ``keep`` it goes with the episode's lease."""

    request_id: str
    lease: str
    keep: bool = False
    ttl_s: float | None = field(default=None, metadata=OMIT)
    """Seconds until it is deleted; without it never, or with the lease."""


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


@dataclass(frozen=True, slots=True)
class CheckpointList(Message):
    """``GET /v1/checkpoints``. ``max_mib`` bounds those that are kept."""

    checkpoints: tuple[CheckpointInfo, ...]
    used_mib: float
    max_mib: int
