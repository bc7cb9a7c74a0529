"""Pool plan: how many replicas to start or retire now. Pure; the pool carries it out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
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
        per_image_min: Warm replicas of each image, whatever the demand, as far as `warm` is enough.
    """

    warm: int
    max_starting: int
    backoff: BackoffPolicy = field(default_factory=BackoffPolicy)
    per_image_min: int = 1


@dataclass(frozen=True, slots=True)
class PoolView:
    """Present state of the pool, or of its replicas of one image.

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

    @property
    def unserved(self) -> int:
        """Number of waiting clients for whom no replica is ready or starting."""
        return max(0, self.waiting - self.ready - self.starting)


def sum_of(views: Iterable[PoolView]) -> PoolView:
    """Return the numbers of several images together."""
    views = tuple(views)
    return PoolView(
        starting=sum(view.starting for view in views),
        ready=sum(view.ready for view in views),
        leased=sum(view.leased for view in views),
        retiring=sum(view.retiring for view in views),
        waiting=sum(view.waiting for view in views),
        stopping=any(view.stopping for view in views),
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions of the pool.

    Attributes:
        start: Image of each replica to start, in order.
        give_up: Number of ready replicas to retire, by image.
        blocked: Cause that kept `start` below the demand.
        wake_at: Time of the next plan without an event, on the clock of `now`.
    """

    start: tuple[str, ...] = ()
    give_up: Mapping[str, int] = field(default_factory=dict)
    blocked: Blocked = Blocked.NOTHING
    wake_at: float | None = None


def plan(
    spec: PoolSpec,
    views: Mapping[str, PoolView],
    targets: Mapping[str, int],
    admission: Admission,
    backoffs: Mapping[str, Backoff],
    now: float,
) -> Plan:
    """Return what the pool should do now.

    Never starts more than there is room for, never more at once than `max_starting`, nothing of an image
    while its failures force a pause, one at a time while they are being probed. Clients who wait come first.
    Retires ready replicas only of images for which nobody waits: those beyond the image's target, and those
    whose room clients of another image wait for.

    Args:
        targets: Warm replicas that each image of `views` should have.
        backoffs: Backoff of images that failed.
    """
    if any(view.stopping for view in views.values()):
        return Plan(blocked=Blocked.STOPPING)
    wanted = {
        name: max(0, targets[name] + view.waiting - view.ready - view.starting)
        for name, view in views.items()
    }
    circuits = {name: backoffs.get(name, Backoff()).circuit(spec.backoff, now) for name in views}
    allowed = {name: _allowed(circuits[name], wanted[name], view.starting) for name, view in views.items()}
    hands = max(0, spec.max_starting - sum(view.starting for view in views.values()))
    start = _starts(views, allowed, min(hands, admission.room))
    give_up = Counter[str]()
    for name, view in views.items():
        if not wanted[name] and not view.waiting:
            give_up[name] = max(0, view.ready - targets[name])
    if len(start) == admission.room < hands:
        give_up += _made_room(views, allowed, start, hands - len(start), targets, give_up)
    paused = [name for name in views if wanted[name] and circuits[name] is Circuit.OPEN]
    wake_at = min((backoffs[name].not_before for name in paused), default=None)
    blocked = Blocked.NOTHING
    if admission.room < min(hands, sum(allowed.values())):
        blocked = blocked_by(admission.limit)
    elif len(start) < sum(allowed.values()):
        probes = all(circuits[name] is Circuit.HALF_OPEN for name in views if allowed[name])
        blocked = Blocked.PROBING if probes else Blocked.CONCURRENCY
    elif paused:
        blocked = Blocked.BACKOFF
    elif len(start) < sum(wanted.values()):
        blocked = Blocked.PROBING
    return Plan(start, +give_up, blocked, wake_at)


def _allowed(circuit: Circuit, wanted: int, starting: int) -> int:
    match circuit:
        case Circuit.OPEN:
            return 0
        case Circuit.HALF_OPEN:
            return min(wanted, max(0, 1 - starting))
        case _:
            return wanted


def _starts(views: Mapping[str, PoolView], allowed: Mapping[str, int], count: int) -> tuple[str, ...]:
    """Return the images of the next `count` replicas: where clients wait, then where most are lacking."""
    unserved = {name: view.unserved for name, view in views.items()}
    left = dict(allowed)
    start: list[str] = []
    for _ in range(min(count, sum(allowed.values()))):
        name = max((name for name in left if left[name]), key=lambda name: (unserved[name], left[name]))
        start.append(name)
        left[name] -= 1
        unserved[name] = max(0, unserved[name] - 1)
    return tuple(start)


def _made_room(
    views: Mapping[str, PoolView],
    allowed: Mapping[str, int],
    start: tuple[str, ...],
    hands: int,
    targets: Mapping[str, int],
    given_up: Mapping[str, int],
) -> Counter[str]:
    """Return the ready replicas to retire so that waiting clients of other images find room.

    Those that are being retired already count. At most so many more go as could be started at once.
    """
    started = Counter(start)
    short = sum(max(0, min(view.unserved, allowed[name]) - started[name]) for name, view in views.items())
    short = min(short, hands) - sum(view.retiring for view in views.values()) - sum(given_up.values())
    idle = {name: view.ready - given_up.get(name, 0) for name, view in views.items() if not view.waiting}
    found = Counter[str]()
    for _ in range(min(short, sum(idle.values()))):
        name = max(idle, key=lambda name: (idle[name] > 0, idle[name] - targets[name]))
        idle[name] -= 1
        found[name] += 1
    return found


def lease_pressure_percent(*, leased: int, waiting: int, admitted: int, draining: bool) -> float | None:
    """Return held and requested leases per possible replica in percent; above 100 clients wait.

    A cloud's scaling follows the number. It is None while the host drains or admits no replica: then the host
    gives no lease whatever the demand, and its low use is no reason to remove another host.
    """
    if draining or (admitted <= 0 and not leased):
        return None
    return 100.0 * (leased + waiting) / max(1, admitted)
