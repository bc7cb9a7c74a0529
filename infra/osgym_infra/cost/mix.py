"""Which hosts carry N replicas for the least money: an exact search over a small catalogue. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from osgym_infra.cost.queueing import most
from osgym_infra.errors import BadInput, CannotMeet


@dataclass(frozen=True, slots=True)
class HostOffer:
    """One kind of host that can be bought.

    Attributes:
        name: Unique among the choices, e.g. `aws/us-east-1/r8i.24xlarge/spot`.
        capacity: K, the replicas it carries.
        usd_per_replica_day: Additional price of each replica on it (egress).
    """

    name: str
    capacity: int
    usd_per_day: float
    usd_per_replica_day: float = 0.0
    max_hosts: int | None = None

    def __post_init__(self) -> None:
        if self.capacity < 0 or self.usd_per_day < 0 or self.usd_per_replica_day < 0:
            raise BadInput(self.name, "capacity and prices cannot be below zero")
        if self.max_hosts is not None and self.max_hosts < 0:
            raise BadInput(f"{self.name}.max_hosts", f"{self.max_hosts}", "0 or more")


@dataclass(frozen=True, slots=True)
class Mix:
    """Fleet as numbers of hosts by name, replicas placed on each kind, and its price."""

    hosts: dict[str, int]
    placed: dict[str, int]
    capacity: int
    usd_per_day: float

    @property
    def replicas(self) -> int:
        """Number of replicas that are placed, exactly as requested."""
        return sum(self.placed.values())


def cheapest_mix(choices: Sequence[HostOffer], replicas: int) -> Mix:
    """The cheapest hosts that carry `replicas` replicas; exact.

    In some cheapest fleet at most one host is not full: of two that are not, replicas can move to the one
    with the lower price per replica until it is full or the other is empty, and the cost does not rise. So
    it is enough to know, for every n, the cheapest way to place exactly n replicas on full hosts (an
    unbounded knapsack, bounded where `max_hosts` is set), and to try each kind of host for the last, partly
    filled one. The cost never falls when `replicas` rises: leaving a replica out of a fleet makes it no
    dearer.

    Raises:
        BadInput: `replicas` is below 1.
        CannotMeet: No choice carries a replica, or quotas do not allow as many.
    """
    if replicas < 1:
        raise BadInput("replicas", f"{replicas} replicas", "1 or more")
    usable = [choice for choice in choices if choice.capacity > 0 and choice.max_hosts != 0]
    if len({choice.name for choice in usable}) != len(usable):
        raise BadInput("choices", "two have the same name")
    if not usable:
        raise CannotMeet(
            "replicas",
            "no host of the catalogue can carry a single replica",
            "Name a larger host, or a smaller replica",
        )
    found = _best(usable, replicas)
    if found is None:
        most = sum(c.capacity * (c.max_hosts or 0) for c in usable)
        raise CannotMeet(
            "replicas", f"{replicas} are more than the quotas allow", f"{most} would fit", {"most": most}
        )
    return found


def affordable(choices: Sequence[HostOffer], usd_per_day: float, at_most: int = 1 << 16) -> int:
    """Return the most replicas (up to `at_most`) that `cheapest_mix` carries within a budget; 0: none."""

    def within(replicas: int) -> bool:
        try:
            return cheapest_mix(choices, replicas).usd_per_day <= usd_per_day * (1 + 1e-12)
        except CannotMeet:
            return False

    return most(within, at_most) if within(1) else 0


@dataclass(frozen=True, slots=True)
class _Bought:
    """Linked list of full hosts, shared between the cells of a table."""

    choice: HostOffer
    count: int
    before: _Bought | None


@dataclass(frozen=True, slots=True)
class _CostTable:
    """Least cost of placing exactly n replicas on full hosts, and those hosts, for every n."""

    cost: list[float]
    bought: list[_Bought | None]


def _best(choices: Sequence[HostOffer], replicas: int) -> Mix | None:
    """Try every kind of host as the one that is not full; return `None` when quotas do not suffice."""
    anyone = _full_hosts(choices, replicas, None)
    least, partial, taken, table = anyone.cost[replicas], None, 0, anyone
    for choice in choices:
        # A quota counts the host that is not full too.
        mine = anyone if choice.max_hosts is None else _full_hosts(choices, replicas, choice)
        for count in range(1, min(choice.capacity, replicas) + 1):
            cost = mine.cost[replicas - count] + choice.usd_per_day + count * choice.usd_per_replica_day
            if cost < least:
                least, partial, taken, table = cost, choice, count, mine
    if math.isinf(least):
        return None
    hosts: Counter[str] = Counter()
    placed: Counter[str] = Counter()
    capacity = 0
    if partial is not None:
        hosts[partial.name], placed[partial.name], capacity = 1, taken, partial.capacity
    bought = table.bought[replicas - taken]
    while bought is not None:
        hosts[bought.choice.name] += bought.count
        placed[bought.choice.name] += bought.count * bought.choice.capacity
        capacity += bought.count * bought.choice.capacity
        bought = bought.before
    return Mix(dict(hosts), dict(placed), capacity, least)


def _full_hosts(choices: Sequence[HostOffer], replicas: int, without_one_of: HostOffer | None) -> _CostTable:
    """Solve the knapsack over full hosts; a quota of m is m single hosts, bundled by powers of two."""
    cost = [0.0] + [math.inf] * replicas
    bought: list[_Bought | None] = [None] * (replicas + 1)

    def consider(n: int, choice: HostOffer, count: int) -> None:
        size = count * choice.capacity
        each = choice.usd_per_day + choice.capacity * choice.usd_per_replica_day
        value = cost[n - size] + count * each
        if value < cost[n]:
            cost[n], bought[n] = value, _Bought(choice, count, bought[n - size])

    for choice in choices:
        if choice.max_hosts is None:
            for n in range(choice.capacity, replicas + 1):
                consider(n, choice, 1)
            continue
        left = choice.max_hosts - (choice is without_one_of)
        bundle = 1
        while left > 0:
            count = min(bundle, left)
            for n in range(replicas, count * choice.capacity - 1, -1):
                consider(n, choice, count)
            left -= count
            bundle *= 2
    return _CostTable(cost, bought)
