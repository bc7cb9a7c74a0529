"""Pool plan: how many replicas to start or retire now. Pure; the pool carries it out."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from osgym_host.core.admission import Admission, Limit
from osgym_host.core.backoff import Backoff, BackoffPolicy, Circuit


class Blocked(StrEnum):
    """Cause that keeps the pool from starting as many replicas as wanted."""

    NOTHING = "nothing"
    CONCURRENCY = "concurrency"
    BACKOFF = "backoff"
    PROBING = "probing"
    STOPPING = "stopping"
    MAX_REPLICAS = "max_replicas"
    RAM = "ram"
    CPU = "cpu"
    DISK = "disk"


_BY_LIMIT = {
    Limit.NONE: Blocked.NOTHING,
    Limit.MAX_REPLICAS: Blocked.MAX_REPLICAS,
    Limit.RAM: Blocked.RAM,
    Limit.CPU: Blocked.CPU,
    Limit.DISK: Blocked.DISK,
}


def blocked_by(limit: Limit) -> Blocked:
    return _BY_LIMIT[limit]


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """Pool size that the operator wants.

    Attributes:
        warm: Clean replicas that wait, ahead of demand.
        max_starting: Replicas that start at the same time.
    """

    warm: int
    max_starting: int
    backoff: BackoffPolicy = field(default_factory=BackoffPolicy)


@dataclass(frozen=True, slots=True)
class PoolView:
    """Present state of the pool.

    Attributes:
        starting: Replicas that are being created or are booting.
        ready: Clean ones that wait.
        retiring: Those that are being removed (they still use resources).
        stopping: True while the service shuts down.
    """

    starting: int = 0
    ready: int = 0
    leased: int = 0
    retiring: int = 0
    waiting: int = 0
    stopping: bool = False

    @property
    def existing(self) -> int:
        return self.starting + self.ready + self.leased + self.retiring


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions of the pool.

    Attributes:
        give_up: Number of ready replicas to retire.
        blocked: Cause that kept `start` below the demand.
        wake_at: Time of the next plan without an event, on the clock of `now`.
    """

    start: int = 0
    give_up: int = 0
    blocked: Blocked = Blocked.NOTHING
    wake_at: float | None = None


def plan(spec: PoolSpec, view: PoolView, admission: Admission, backoff: Backoff, now: float) -> Plan:
    """Return what the pool should do now.

    Never starts more than there is room for, never more at once than `max_starting`, nothing while
    failures force a pause, one at a time while they are being probed; retires ready replicas only
    beyond the warm target and only when nobody waits.
    """
    if view.stopping:
        return Plan(blocked=Blocked.STOPPING)
    wanted = spec.warm + view.waiting - view.ready - view.starting
    if wanted <= 0:
        surplus = view.ready - spec.warm if view.waiting == 0 else 0
        return Plan(give_up=max(0, surplus))
    circuit = backoff.circuit(spec.backoff, now)
    if circuit is Circuit.OPEN:
        return Plan(blocked=Blocked.BACKOFF, wake_at=backoff.not_before)
    at_once = 1 if circuit is Circuit.HALF_OPEN else spec.max_starting
    free_hands = max(0, at_once - view.starting)
    start = min(wanted, admission.room, free_hands)
    if start == wanted:
        return Plan(start=start)
    if admission.room < min(wanted, free_hands):
        return Plan(start=start, blocked=blocked_by(admission.limit))
    blocked = Blocked.PROBING if circuit is Circuit.HALF_OPEN else Blocked.CONCURRENCY
    return Plan(start=start, blocked=blocked)


def lease_pressure_percent(*, leased: int, waiting: int, admitted: int, draining: bool) -> float | None:
    """Return held and requested leases per possible replica in percent; above 100 clients wait.

    A cloud's scaling follows the number. It is None while the host drains or admits no replica: then the host
    gives no lease whatever the demand, and its low use is no reason to remove another host.
    """
    if draining or (admitted <= 0 and not leased):
        return None
    return 100.0 * (leased + waiting) / max(1, admitted)
