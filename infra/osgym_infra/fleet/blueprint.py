"""From a checked configuration to the hosts that shall exist, and what they will cost. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from osgym_infra.catalogue.rows import Catalogue, PriceSource
from osgym_infra.config.keys import FleetConfig
from osgym_infra.config.readers import full_key
from osgym_infra.cost.model import Kvm, Rules
from osgym_infra.cost.planner import Candidate, PlanRequest, plan_fleet
from osgym_infra.cost.price import CostAssumptions, Market
from osgym_infra.errors import BadInput, CannotMeet
from osgym_infra.workloads.profile import Bound, Profile, with_values

ANSWER_FIELDS = {
    "budget_usd_per_day": "budget_usd_per_day",
    "replica_ram_gib": "replica_ram_gib",
    "step_cpu_s": "step_cpu_s",
    "p95_ms": "p95_ms",
    "type": "host_type",
    "region": "region",
    "market": "market",
    "replicas": "replicas",
    "runtime": "runtime",
    "provider": "provider",
    "shared_fraction": "shared",
}
"""The model's fields as configuration keys."""


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Hosts of one kind.

    Attributes:
        name: part of resource names: small letters, digits, dashes.
        type: the provider's name of the type.
        count: how many.
        replicas: how many replicas each carries at most.
        nested: whether nested virtualisation has to be switched on.
        volume_gib: size of the network volume; what replicas write goes there unless the type has NVMe.
        nvme: whether the type has local disks.
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


@dataclass(frozen=True, slots=True)
class Blueprint:
    """What shall exist. Costs are expected values, `None` for machines that are paid for elsewhere."""

    config: FleetConfig
    groups: tuple[HostGroup, ...]
    usd_per_day: float | None
    usd_per_replica_day: float | None
    notes: tuple[str, ...] = ()
    sources: tuple[PriceSource, ...] = ()

    @property
    def capacity(self) -> int:
        """Replicas that fit on all hosts together."""
        return sum(group.count * group.replicas for group in self.groups)


def draw(config: FleetConfig, catalogue: Catalogue, profile: Profile) -> Blueprint:
    """Plan a cloud fleet, or take the machines of an ssh fleet as they are.

    Args:
        catalogue: priced in USD.

    Raises:
        BadInput: with the configuration key: region without prices, type without KVM, replica larger than any
            host.
        CannotMeet: budget or latency, with what would do.
    """
    if not config.provider.rents:
        return _own_machines(config)
    request = make_request(config, profile)
    refuse_silent_nesting(config)
    try:
        found = plan_fleet(request, catalogue, [profile.source()])
    except BadInput as error:
        raise BadInput(_key(error.field), error.problem, error.fits) from error
    except CannotMeet as error:
        raise CannotMeet(_key(error.field), error.problem, error.fits, error.details) from error
    best = found.best
    candidates = {one.name: one for one in found.candidates}
    groups = tuple(_group(candidates[name], count, config) for name, count in sorted(best.mix.hosts.items()))
    return Blueprint(
        config,
        groups,
        best.mix.usd_per_day,
        best.usd_per_replica_day,
        (*profile.mismatch(config.runtime), *found.notes),
        found.sources,
    )


def make_request(config: FleetConfig, profile: Profile) -> PlanRequest:
    """Return what the planner is asked for a configuration."""
    replica = with_values(
        profile.replica(Bound.PESSIMISTIC),
        working_set_gib=config.replica_ram_gib,
        shared_fraction=config.shared,
        step_cpu_s=config.step_cpu_s,
        think_s=config.think_s,
    )
    return PlanRequest(
        replicas=config.replicas,
        replica=replica,
        runtime=config.runtime,
        rules=Rules(max_replicas=config.max_replicas_per_host),
        terms=CostAssumptions(),
        p95_s=None if config.p95_ms is None else config.p95_ms / 1000,
        budget_usd_per_day=config.budget_usd_per_day,
        providers=(config.provider.value,),
        regions=(config.region,),
        markets=(config.market,),
        types=(config.host_type,) if config.host_type else (),
        allow_unknown_kvm=config.allow_unknown_kvm,
    )


def refuse_silent_nesting(config: FleetConfig) -> None:
    """Check the configured type: some take the flag for nested virtualisation and then have no /dev/kvm.

    Raises:
        BadInput: the type cannot nest, and the runtime needs KVM.
    """
    never = config.provider.facts.never_nests
    if never and config.runtime.boots_machines and never.match(config.host_type):
        if config.host_type.endswith("-metal"):
            return
        raise BadInput(
            full_key("host_type"),
            f"{config.host_type} cannot run virtual machines inside, whatever it is told",
            "n2, n4, c3 or a -metal type, or runtime: local",
        )


def _group(one: Candidate, count: int, config: FleetConfig) -> HostGroup:
    nested = config.runtime.boots_machines and one.row.kvm is not Kvm.METAL
    return HostGroup(
        name=slug(one.row.type),
        type=one.row.type,
        count=count,
        replicas=one.fit.replicas,
        market=one.market,
        nested=nested,
        volume_gib=max(30, round(one.volume_gib + 0.5)),
        nvme=bool(one.row.nvme_gb),
        usd_per_hour=one.price.high,
    )


def _own_machines(config: FleetConfig) -> Blueprint:
    limit = config.max_replicas_per_host
    groups = tuple(
        HostGroup(
            name=slug(host.address), type="own", count=1, replicas=host.max_replicas or limit,
            market=Market.DEDICATED, nested=False, volume_gib=0, nvme=False, usd_per_hour=0.0,
        )
        for host in config.hosts
    )  # fmt: skip
    capacity = sum(group.replicas for group in groups)
    if capacity < config.replicas:
        raise BadInput(
            full_key("replicas"),
            f"{config.replicas} replicas do not fit on {len(groups)} hosts",
            f"at most {capacity} with max_replicas (per host) and max_replicas_per_host as they are",
        )
    return Blueprint(config, groups, None, None)


def slug(name: str) -> str:
    """A name as a part of resource names: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def host_names(groups: Iterable[HostGroup]) -> list[tuple[str, HostGroup]]:
    """A name for each host: its group's, with a number."""
    return [(f"{group.name}-{number}", group) for group in groups for number in range(group.count)]


def _key(name: str) -> str:
    return full_key(ANSWER_FIELDS.get(name, name))
