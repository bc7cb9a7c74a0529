"""The life of a replica as a pure, total transition function.

`CREATING → BOOTING → READY → LEASED → RETIRING → GONE`; from any state a fault leads to `RETIRING`
with a reason. The manager feeds events in and carries out the effects; both carry the generation,
and an event of another generation changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from osgym_host.core.reasons import Reason


class ReplicaState(StrEnum):
    """Where a replica is in its life."""

    CREATING = "creating"
    BOOTING = "booting"
    READY = "ready"
    LEASED = "leased"
    RETIRING = "retiring"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Replica:
    """What is decided about one replica.

    Attributes:
        replica_id: Its name, unique over the life of the data directory.
        generation: The number of its clone.
        state: Where it is in its life.
        lease_id: The lease that holds it; set in `LEASED` only.
        reason: Why it retires; set in `RETIRING` and `GONE` only.
    """

    replica_id: str
    generation: int
    state: ReplicaState = ReplicaState.CREATING
    lease_id: str | None = None
    reason: Reason | None = None


# Events: what happened. Each carries the generation it is about.


@dataclass(frozen=True, slots=True)
class Created:
    """The runtime has made the clone and its session is starting."""

    generation: int


@dataclass(frozen=True, slots=True)
class Booted:
    """The desktop is drawn, the guest agent answers."""

    generation: int


@dataclass(frozen=True, slots=True)
class LeaseAsked:
    """A client is to get the replica."""

    generation: int
    lease_id: str


@dataclass(frozen=True, slots=True)
class Returned:
    """The one who got it never touched it (cancelled in the same moment): it is still clean."""

    generation: int
    lease_id: str


@dataclass(frozen=True, slots=True)
class Retire:
    """It is no longer wanted, or something about it failed."""

    generation: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Destroyed:
    """Nothing of it is left."""

    generation: int


Event = Created | Booted | LeaseAsked | Returned | Retire | Destroyed

# Effects: what is to be done now, in this order.


@dataclass(frozen=True, slots=True)
class Boot:
    """Wait for the desktop, then report `Booted` or a fault."""

    generation: int


@dataclass(frozen=True, slots=True)
class Offer:
    """Put it into the pool."""

    generation: int


@dataclass(frozen=True, slots=True)
class GrantLease:
    """Answer the one who asked: it is yours."""

    generation: int
    lease_id: str


@dataclass(frozen=True, slots=True)
class RefuseLease:
    """Answer the one who asked: it is not to be had."""

    generation: int
    lease_id: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take it out of the pool: nobody may get it any more."""

    generation: int


@dataclass(frozen=True, slots=True)
class Revoke:
    """Tell the holder of the lease why it is over."""

    generation: int
    lease_id: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Destroy:
    """Stop what runs (a creation too), remove all of it, then report `Destroyed`."""

    generation: int


@dataclass(frozen=True, slots=True)
class Bury:
    """Forget it: the pool counts it no longer, the journal drops it."""

    generation: int
    reason: Reason


Effect = Boot | Offer | GrantLease | RefuseLease | Withdraw | Revoke | Destroy | Bury

Step = tuple[Replica, tuple[Effect, ...]]


def transition(replica: Replica, event: Event) -> Step:
    """Returns the replica after `event`, and what has to be done.

    Total: every event is allowed in every state; what comes too late, twice, or for another
    generation changes nothing (a lease asked for in vain is refused, so nobody waits for ever).
    """
    if event.generation != replica.generation:
        if isinstance(event, LeaseAsked):
            return replica, (RefuseLease(event.generation, event.lease_id),)
        return replica, ()
    gen = replica.generation
    match event:
        case Created():
            if replica.state is ReplicaState.CREATING:
                return replace(replica, state=ReplicaState.BOOTING), (Boot(gen),)
            return replica, ()
        case Booted():
            if replica.state is ReplicaState.BOOTING:
                return replace(replica, state=ReplicaState.READY), (Offer(gen),)
            return replica, ()
        case LeaseAsked(_, lease_id):
            if replica.state is ReplicaState.READY:
                leased = replace(replica, state=ReplicaState.LEASED, lease_id=lease_id)
                return leased, (GrantLease(gen, lease_id),)
            return replica, (RefuseLease(gen, lease_id),)
        case Returned(_, lease_id):
            if replica.state is ReplicaState.LEASED and replica.lease_id == lease_id:
                return replace(replica, state=ReplicaState.READY, lease_id=None), (Offer(gen),)
            return replica, ()
        case Retire(_, reason):
            return _retire(replica, reason)
        case Destroyed():
            if replica.state is ReplicaState.RETIRING:
                assert replica.reason is not None
                return replace(replica, state=ReplicaState.GONE), (Bury(gen, replica.reason),)
            return replica, ()
        case _ as never:
            assert_never(never)


def _retire(replica: Replica, reason: Reason) -> Step:
    gen = replica.generation
    retiring = replace(replica, state=ReplicaState.RETIRING, lease_id=None, reason=reason)
    match replica.state:
        case ReplicaState.CREATING | ReplicaState.BOOTING:
            return retiring, (Destroy(gen),)
        case ReplicaState.READY:
            return retiring, (Withdraw(gen), Destroy(gen))
        case ReplicaState.LEASED:
            assert replica.lease_id is not None
            return retiring, (Revoke(gen, replica.lease_id, reason), Destroy(gen))
        case ReplicaState.RETIRING | ReplicaState.GONE:
            return replica, ()
        case _ as never:
            assert_never(never)
