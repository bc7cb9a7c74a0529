"""From a checked configuration to planned hosts and their price. Pure."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass

from osgym_infra.catalogue.rows import Catalogue, PriceSource
from osgym_infra.catalogue.shapes import Kvm, Market
from osgym_infra.config.keys import FleetConfig
from osgym_infra.config.readers import bad_key, full_key
from osgym_infra.cost.compare import MixedFleet
from osgym_infra.cost.model import Rules, boots_machines
from osgym_infra.cost.planner import Candidate, PlanRequest, plan_fleet
from osgym_infra.cost.price import DAYS_PER_MONTH, CostAssumptions, FramesTo
from osgym_infra.errors import BadInput, CannotMeet
from osgym_infra.fleet.bounds import HostGroup as HostGroup
from osgym_infra.fleet.bounds import bounded, stand_ins
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
BUDGET_ALARMS = (0.5, 0.9, 1.0)
"""Parts of a month's budget at which the cloud sends mail."""


@dataclass(frozen=True, slots=True)
class Blueprint:
    """Planned hosts. Costs are expected values, `None` for machines that are paid for elsewhere.

    `compared` is what the same would cost in each market of the region, the configured one included.
    """

    config: FleetConfig
    groups: tuple[HostGroup, ...]
    usd_per_day: float | None
    usd_per_replica_day: float | None
    notes: tuple[str, ...] = ()
    sources: tuple[PriceSource, ...] = ()
    compared: tuple[MixedFleet, ...] = ()

    @property
    def capacity(self) -> int:
        """Number of replicas that fit on all hosts together."""
        return sum(group.count * group.replicas for group in self.groups)

    @property
    def month_usd(self) -> int:
        """Budget for a month, or the expected price, in whole dollars."""
        return max(1, math.ceil((self.config.budget_usd_per_day or self.usd_per_day or 0.0) * DAYS_PER_MONTH))


def draw(config: FleetConfig, catalogue: Catalogue, profile: Profile) -> Blueprint:
    """Plan a fleet of rented hosts, or take the machines of the configuration as they are.

    Args:
        catalogue: Priced in USD.

    Raises:
        BadInput: With the configuration key: region without prices, type without KVM, replica larger than any
            host.
        CannotMeet: Budget or latency, with what would do.
    """
    if not config.provider.rents:
        return _own_machines(config)
    request = make_request(config, profile)
    refuse_silent_nesting(config, catalogue)
    try:
        found = plan_fleet(request, catalogue, [profile.source()])
    except BadInput as error:
        raise BadInput(_key(error.field), error.problem, error.fits) from error
    except CannotMeet as error:
        raise CannotMeet(_key(error.field), error.problem, error.fits, error.details) from error
    best = found.best
    candidates = {one.name: one for one in found.candidates}
    chosen = [(candidates[name], count) for name, count in sorted(best.mix.hosts.items())]
    groups = bounded([_group(one, count, config, catalogue) for one, count in chosen], config)
    groups = tuple(
        dataclasses.replace(
            group,
            stand_ins=tuple(
                _group(other, 0, config, catalogue) for other in stand_ins(found, one, group.most, config)
            ),
        )
        for group, (one, _) in zip(groups, chosen, strict=True)
    )
    return Blueprint(
        config,
        groups,
        best.mix.usd_per_day,
        best.usd_per_replica_day,
        (*found.warnings, *profile.remarks(config.runtime), *found.notes),
        found.sources,
        found.compared,
    )


def make_request(config: FleetConfig, profile: Profile) -> PlanRequest:
    """Return the planner's request for a configuration."""
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
        rules=Rules(max_replicas=config.max_replicas_per_host, thread_efficiency=config.thread_efficiency),
        terms=CostAssumptions(private=config.private, frames_to=frames_to(config)),
        p95_s=None if config.p95_ms is None else config.p95_ms / 1000,
        budget_usd_per_day=config.budget_usd_per_day,
        providers=(config.provider,),
        regions=(config.region,),
        markets=(config.market,),
        types=(config.host_type,) if config.host_type else (),
        allow_unknown_kvm=config.allow_unknown_kvm,
    )


def frames_to(config: FleetConfig) -> FramesTo:
    """Where frames go as far as the configuration says: free are only private addresses in one zone, where a
    trainer is taken to be as well."""
    one_zone = bool(config.zone) or len(config.zones) == 1
    return FramesTo.ZONE if config.private and one_zone else FramesTo.REGION


def refuse_silent_nesting(config: FleetConfig, catalogue: Catalogue) -> None:
    """Refuse a type that accepts the flag for nested virtualisation and then has no /dev/kvm.

    Raises:
        BadInput: The type cannot nest, and the runtime needs KVM.
    """
    machine = catalogue.machine(config.provider, config.host_type)
    if machine is None or machine.nesting or not boots_machines(config.runtime):
        return
    if config.host_type.endswith("-metal"):
        return
    raise bad_key(
        "host_type",
        f"{config.host_type} does not support nested virtualisation",
        "Use n2, n4, c3 or a -metal type, or runtime: local",
    )


def _group(one: Candidate, count: int, config: FleetConfig, catalogue: Catalogue) -> HostGroup:
    nested = boots_machines(config.runtime) and one.row.kvm is not Kvm.METAL
    machine = catalogue.machine(one.row.provider, one.row.type)
    if machine is None and config.provider.facts.needs_machines:
        raise bad_key(
            "host_type",
            f"the catalogue does not say which disks and network cards {one.row.type} takes",
            "Another type, or a [[machine]] table for it in the file of OSGYM_CATALOGUE",
        )
    return HostGroup(
        name=slug(one.row.type),
        type=one.row.type,
        count=count,
        replicas=one.fit.replicas,
        market=one.market,
        nested=nested,
        volume_gib=_volume_gib(one, count, config),
        nvme=bool(one.row.nvme_gb),
        usd_per_hour=one.price.high,
        machine=machine,
    )


def _volume_gib(one: Candidate, count: int, config: FleetConfig) -> int:
    """Return the size of a host's data disk: the replicas' need, or the configured one."""
    needed = max(30, round(one.volume_gib + 0.5))
    if config.data_disk_gib is None or one.row.nvme_gb:
        return needed
    if count and config.data_disk_gib < needed:
        raise bad_key(
            "data_disk_gib",
            f"{config.data_disk_gib} GiB are less than {one.fit.replicas} replicas may write",
            f"Set at least {needed}, or a smaller max_replicas_per_host",
        )
    return config.data_disk_gib


def _own_machines(config: FleetConfig) -> Blueprint:
    limit = config.max_replicas_per_host
    groups = tuple(
        HostGroup(
            name=slug(host.address), type="own", count=1, replicas=host.max_replicas or limit,
            market=Market.DEDICATED, nested=False, volume_gib=0, nvme=False, usd_per_hour=0.0, least=1,
            most=1,
        )
        for host in config.hosts
    )  # fmt: skip
    capacity = sum(group.replicas for group in groups)
    if capacity < config.replicas:
        raise bad_key(
            "replicas",
            f"{config.replicas} replicas do not fit on {len(groups)} hosts",
            f"At most {capacity} fit with these max_replicas (per host) and max_replicas_per_host",
        )
    return Blueprint(config, groups, None, None)


def slug(name: str) -> str:
    """Return a name as a part of resource names: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _key(name: str) -> str:
    return full_key(ANSWER_FIELDS.get(name, name))
