"""Host API v1: the messages of forks and checkpoints. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field

from osgym_sdk._codec import OMIT, Message


@dataclass(frozen=True, slots=True)
class ParentInfo(Message):
    """What an episode was branched from, and after which of its steps."""

    episode_id: str
    step: int
    checkpoint_id: str | None = field(default=None, metadata=OMIT)
    """Set where it was restored from a checkpoint."""


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
    wait_s: float = 10.0
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
