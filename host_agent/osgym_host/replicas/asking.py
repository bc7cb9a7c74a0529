"""Who asks the pool for replicas, and what they may hear: shared by the pool and its rooms."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field

from osgym_host.core.plan import Blocked
from osgym_host.core.reasons import Reason
from osgym_host.errors import OsgymHostError
from osgym_host.replicas.manager import ReplicaManager, Revoked
from osgym_sdk.wire import Notice

HAND_OVER_S = 0.1
"""What a hand-over may take even for one who does not want to wait."""


class NoCapacity(OsgymHostError):
    """No replica was free in time.

    Attributes:
        waited_s: How long was waited.
        blocked: What keeps the pool from making more.
        last_failure: Why the last attempt to make one failed, empty when none did.
    """

    def __init__(self, waited_s: float, blocked: Blocked, last_failure: str) -> None:
        """Keeps the fields beside the message."""
        why = f"; the last one could not be made: {last_failure}" if last_failure else ""
        super().__init__(f"No replica was free within {waited_s:.1f} s (blocked by {blocked.value}){why}")
        self.waited_s = waited_s
        self.blocked = blocked
        self.last_failure = last_failure


class PoolStopping(OsgymHostError):
    """The host agent is stopping; it hands out no replicas."""

    def __init__(self, text: str = "The host agent is stopping.") -> None:
        """Takes another reason for the same."""
        super().__init__(text)


class PoolDraining(PoolStopping):
    """The host will be taken away; it hands out no replicas unless that is taken back."""

    def __init__(self, notice: Notice) -> None:
        """Keeps what was told."""
        super().__init__("This host will be taken away; it takes no new episodes.")
        self.notice = notice


class NotMade(OsgymHostError):
    """A replica that was made for somebody (a child, an adopted one) failed before it was handed over."""

    def __init__(self, replica_id: str, reason: Reason, detail: str) -> None:
        """Keeps the fields beside the message."""
        super().__init__(f"replica {replica_id} could not be made ({reason.value}): {detail}")
        self.replica_id = replica_id
        self.reason = reason
        self.detail = detail


@dataclass(slots=True, eq=False)
class Waiter:
    """One who waits for a replica; with `own`, for one certain replica and no other."""

    lease_id: str
    revoked: Revoked
    answer: asyncio.Future[ReplicaManager]
    own: bool = False

    def fail(self, error: OsgymHostError) -> None:
        """Tells that there will be none. Idempotent."""
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(slots=True)
class PoolStats:
    """Counters since the start."""

    created: int = 0
    retired: Counter[Reason] = field(default_factory=Counter)
    ready_s: deque[float] = field(default_factory=lambda: deque(maxlen=256))
    """Seconds from the start of a creation to ready, of the last clean replicas."""
