"""Life of a replica as a pure, total transition function.

`CREATING → BOOTING → READY → LEASED → RETIRING → GONE`; from any state a fault leads to `RETIRING`
with a reason. The manager of the replica feeds events in and carries out the effects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from osgym_host.core.reasons import Reason


class ReplicaState(StrEnum):
    CREATING = "creating"
    BOOTING = "booting"
    READY = "ready"
    LEASED = "leased"
    RETIRING = "retiring"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """Decided state of one replica.

    Attributes:
        lease_id: Lease on the replica; set in `LEASED` only.
        reason: Why it retires; set in `RETIRING` and `GONE` only.
    """

    state: ReplicaState = ReplicaState.CREATING
    lease_id: str | None = None
    reason: Reason | None = None


# Events: what happened.


@dataclass(frozen=True, slots=True)
class CloneCreated:
    """The runtime has made the clone, and its session starts."""


@dataclass(frozen=True, slots=True)
class Booted:
    """The desktop is drawn and the guest agent answers."""


@dataclass(frozen=True, slots=True)
class LeaseRequested:
    lease_id: str


@dataclass(frozen=True, slots=True)
class ReturnedUnused:
    """The client was cancelled before it used the replica, which is still clean."""

    lease_id: str


@dataclass(frozen=True, slots=True)
class Retire:
    """The replica is unwanted or failed."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Destroyed:
    """Nothing of the replica is left."""


Event = CloneCreated | Booted | LeaseRequested | ReturnedUnused | Retire | Destroyed

# Effects: what is to be done now, in this order.


@dataclass(frozen=True, slots=True)
class AwaitBoot:
    """Wait for the desktop, then report `Booted` or a fault."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Put the replica into the pool."""


@dataclass(frozen=True, slots=True)
class GrantLease:
    lease_id: str


@dataclass(frozen=True, slots=True)
class RefuseLease:
    """Tell the client that the replica cannot be leased."""

    lease_id: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take the replica out of the pool, since it cannot be leased."""


@dataclass(frozen=True, slots=True)
class Revoke:
    """Tell the holder of the lease why it ended."""

    lease_id: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Destroy:
    """Stop all processes (a creation too), remove the replica, then report `Destroyed`."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove the replica from the pool and the journal."""

    reason: Reason


Effect = AwaitBoot | Offer | GrantLease | RefuseLease | Withdraw | Revoke | Destroy | Forget

Transition = tuple[ReplicaStatus, tuple[Effect, ...]]


def transition(replica: ReplicaStatus, event: Event) -> Transition:
    """Return the replica after `event`, and the actions.

    Total: every event is allowed in every state; what comes too late or twice changes nothing (a lease
    asked for in vain is refused, so no caller waits without end).
    """
    match event:
        case CloneCreated():
            if replica.state is ReplicaState.CREATING:
                return replace(replica, state=ReplicaState.BOOTING), (AwaitBoot(),)
            return replica, ()
        case Booted():
            if replica.state is ReplicaState.BOOTING:
                return replace(replica, state=ReplicaState.READY), (Offer(),)
            return replica, ()
        case LeaseRequested(lease_id):
            if replica.state is ReplicaState.READY:
                leased = replace(replica, state=ReplicaState.LEASED, lease_id=lease_id)
                return leased, (GrantLease(lease_id),)
            return replica, (RefuseLease(lease_id),)
        case ReturnedUnused(lease_id):
            if replica.state is ReplicaState.LEASED and replica.lease_id == lease_id:
                return replace(replica, state=ReplicaState.READY, lease_id=None), (Offer(),)
            return replica, ()
        case Retire(reason):
            return _retire(replica, reason)
        case Destroyed():
            if replica.state is ReplicaState.RETIRING:
                assert replica.reason is not None
                return replace(replica, state=ReplicaState.GONE), (Forget(replica.reason),)
            return replica, ()
        case _ as never:
            assert_never(never)


def _retire(replica: ReplicaStatus, reason: Reason) -> Transition:
    retiring = replace(replica, state=ReplicaState.RETIRING, lease_id=None, reason=reason)
    match replica.state:
        case ReplicaState.CREATING | ReplicaState.BOOTING:
            return retiring, (Destroy(),)
        case ReplicaState.READY:
            return retiring, (Withdraw(), Destroy())
        case ReplicaState.LEASED:
            assert replica.lease_id is not None
            return retiring, (Revoke(replica.lease_id, reason), Destroy())
        case ReplicaState.RETIRING | ReplicaState.GONE:
            return replica, ()
        case _ as never:
            assert_never(never)
