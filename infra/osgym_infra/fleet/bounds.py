"""Groups of hosts of one kind: least and most hosts, and types that may stand in for their own. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from osgym_infra.catalogue.rows import MachineRow
from osgym_infra.catalogue.shapes import Market
from osgym_infra.config.keys import FleetConfig
from osgym_infra.config.readers import bad_key, full_key
from osgym_infra.cost.planner import Candidate, FleetPlan
from osgym_infra.errors import BadInput, CannotMeet


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Hosts of one kind.

    Attributes:
        name: Part of resource names: small letters, digits, dashes.
        replicas: Most replicas of one host.
        nested: Whether nested virtualisation has to be switched on.
        volume_gib: Size of the network volume; what replicas write goes there unless the type has NVMe.
        least: Fewest hosts; the cloud replaces what is missing.
        most: Most hosts; the cloud adds hosts up to it when clients wait.
        stand_ins: The same for other types, which the cloud may take where it has none of this; their `count`
            is 0.
    """

    name: str
    type: str
    count: int
    replicas: int
    market: Market
    nested: bool
    volume_gib: int
    nvme: bool
    usd_per_hour: float
    least: int = 0
    most: int = 0
    stand_ins: tuple[HostGroup, ...] = ()
    machine: MachineRow | None = None

    @property
    def grows(self) -> bool:
        """Whether the number of hosts follows the load."""
        return self.least < self.most

    @property
    def kinds(self) -> tuple[HostGroup, ...]:
        """The group's own type, then its stand-ins."""
        return (self, *self.stand_ins)


MOST_STAND_INS = 4
"""Each has a launch template of its own; Auto Scaling takes 40 overrides."""
DEARER = 2.5
"""A stand-in costs at most so many times as much per hour as the type that was planned: sizes double, so this
takes the next one up, which is better than no host when spot has none of the planned size."""


def bounded(groups: Sequence[HostGroup], config: FleetConfig) -> tuple[HostGroup, ...]:
    """Return the groups with `least` and `most`, and a number of hosts between them.

    `min_hosts` and `max_hosts` are of the whole fleet: what the plan has less is added to the cheapest group
    per replica, what it has more is taken from the dearest.

    Raises:
        CannotMeet: The most hosts cost more than the budget.
    """
    planned = sum(group.count for group in groups)
    least = planned if config.min_hosts is None else config.min_hosts
    most = max(planned, least) if config.max_hosts is None else config.max_hosts
    if config.min_hosts is None:
        least = min(least, most)
    order = sorted(groups, key=lambda group: (group.usd_per_hour / group.replicas, group.name))
    wanted = [_spread(order, number) for number in (least, min(max(planned, least), most), most)]
    made = {
        group.name: dataclasses.replace(group, least=low, count=now, most=high)
        for group, low, now, high in zip(order, *wanted, strict=True)
    }
    found = tuple(made[group.name] for group in groups)
    if sum(wanted[-1]) > planned:
        _check_budget(found, config)
    return found


def _spread(order: Sequence[HostGroup], hosts: int) -> list[int]:
    """Spread hosts over groups, cheapest first, each up to its planned number."""
    numbers = []
    left = hosts
    for group in order:
        numbers.append(min(group.count, left))
        left -= numbers[-1]
    if numbers:
        numbers[0] += left
    return numbers


def _check_budget(groups: Sequence[HostGroup], config: FleetConfig) -> None:
    """Check that the most hosts that may run stay within the budget too."""
    if config.budget_usd_per_day is None:
        return
    usd = 24 * sum(group.most * group.usd_per_hour for group in groups)
    if usd > config.budget_usd_per_day:
        raise CannotMeet(
            full_key("max_hosts" if config.max_hosts is not None else "min_hosts"),
            f"{sum(group.most for group in groups)} hosts cost {usd:.2f} USD a day without their disks, not "
            f"{config.budget_usd_per_day:.2f}",
            "Set fewer hosts, or a larger budget_usd_per_day",
        )


def stand_ins(plan: FleetPlan, one: Candidate, count: int, config: FleetConfig) -> list[Candidate]:
    """Return types of the same market that a group may take instead of its own, cheapest first.

    Each carries at least as many replicas, and costs neither much more nor more than the budget.
    """
    if config.host_type:
        return []
    budget = config.budget_usd_per_day
    found = [
        other
        for other in plan.candidates
        if (other.row.provider, other.row.region, other.market)
        == (one.row.provider, one.row.region, one.market)
        and other.row.type != one.row.type
        and other.fit.replicas >= one.fit.replicas
        and other.price.high <= DEARER * one.price.high
        and (budget is None or other.day.total * count <= budget)
    ]
    found.sort(key=lambda other: (other.price.high, other.name))
    return found[:MOST_STAND_INS]


def check_zones(config: FleetConfig, offered: Sequence[str], kind: str) -> tuple[str, ...]:
    """Return the zones that hosts are spread over: those configured, or all that have the type.

    Raises:
        BadInput: A configured zone does not have the type, or none has.
    """
    wanted = (config.zone,) if config.zone else config.zones
    key = full_key("zone" if config.zone else "zones")
    there = ", ".join(offered) or "No zone of this region has it; use another host_type or region"
    for zone in wanted:
        if zone not in offered:
            raise BadInput(key, f"{zone} does not have {kind}", there)
    if not offered:
        raise bad_key("region", f"{config.region} does not have {kind}", there)
    return tuple(wanted) or tuple(offered)
